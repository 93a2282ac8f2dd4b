//! Fuzzes HTTP/1.1 requests. The parser returns the same requests whether their bytes arrive at once or in pieces.
//! Bodies stay within their limit.
#![no_main]

use coordination_apiserver::buffer::{ByteBuf, Pool};
use coordination_apiserver::http1::request::{RequestError, RequestParser, Step};
use coordination_apiserver_fuzz::Cuts;
use libfuzzer_sys::fuzz_target;

const BODY_BYTES_MAX: usize = 1024;

/// Parses `pieces`. Returns a description of each request, and the error that ended the parsing.
fn requests<'i>(pieces: impl Iterator<Item = &'i [u8]>) -> (Vec<String>, Option<RequestError>) {
    let (mut buf, mut pool) = (ByteBuf::default(), Pool::default());
    let mut parser = RequestParser::new(BODY_BYTES_MAX);
    let mut seen = Vec::new();
    for piece in pieces {
        buf.append(piece, &mut pool);
        loop {
            let step = parser.next(&mut buf, |request, body, after| {
                assert!(body.len() <= BODY_BYTES_MAX);
                let mut lines = Vec::new();
                request.fields.for_each(&mut |name, value| lines.push((name.to_vec(), value.to_vec())));
                (format!("{request:?} {:?} {lines:?} {body:?}", request.accept), after)
            });
            match step {
                Ok(Step::Served((request, after))) => {
                    seen.push(request);
                    if !after.keep_alive {
                        return (seen, None);
                    }
                }
                Ok(Step::Incomplete { .. }) => break,
                Err(error) => return (seen, Some(error)),
            }
        }
    }
    (seen, None)
}

fuzz_target!(|data: &[u8]| {
    let Some((input, cuts)) = Cuts::of(data) else { return };
    let (whole, error) = requests(std::iter::once(input));
    let (cut, cut_error) = requests(cuts);
    assert_eq!(whole, cut);
    // If the input has two errors, the pieces may decide which error is found first. So only the presence of an error
    // is compared.
    assert_eq!(error.is_some(), cut_error.is_some(), "{error:?} {cut_error:?}");
});
