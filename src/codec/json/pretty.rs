//! Indents JSON like Go's `json.MarshalIndent` with two spaces. The output has no line feed at the end.

/// Appends compact `json`, indented by two spaces for each level.
pub fn push_pretty(out: &mut Vec<u8>, json: &[u8]) {
    Pretty::default().push(out, json);
}

/// Indents JSON that arrives in pieces. A piece may end at any byte.
#[derive(Debug, Default)]
pub struct Pretty {
    depth: usize,
    in_string: bool,
    /// Whether the last byte was the backslash of an escape in a string.
    is_escaped: bool,
    /// The last byte, if it was an opening bracket. If the next byte closes this bracket, no line break comes between
    /// them.
    opened: Option<u8>,
}

impl Pretty {
    /// Appends the next piece of compact JSON.
    pub fn push(&mut self, out: &mut Vec<u8>, json: &[u8]) {
        out.reserve(json.len() * 2);
        for byte in json.iter().copied() {
            if self.in_string {
                out.push(byte);
                match byte {
                    _ if self.is_escaped => self.is_escaped = false,
                    b'\\' => self.is_escaped = true,
                    b'"' => self.in_string = false,
                    _ => {}
                }
                continue;
            }
            if byte == b'\n' {
                continue;
            }
            if let Some(open) = self.opened.take() {
                if byte == open + 2 {
                    out.push(byte);
                    continue;
                }
                self.depth += 1;
                push_line(out, self.depth);
            }
            match byte {
                b'"' => {
                    self.in_string = true;
                    out.push(byte);
                }
                b'{' | b'[' => {
                    self.opened = Some(byte);
                    out.push(byte);
                }
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    push_line(out, self.depth);
                    out.push(byte);
                }
                b',' => {
                    out.push(byte);
                    push_line(out, self.depth);
                }
                b':' => out.extend_from_slice(b": "),
                _ => out.push(byte),
            }
        }
    }
}

fn push_line(out: &mut Vec<u8>, depth: usize) {
    out.push(b'\n');
    out.resize(out.len() + 2 * depth, b' ');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::text;

    fn pretty(json: &str) -> String {
        text(|out| push_pretty(out, json.as_bytes()))
    }

    #[test]
    fn pretty_json_is_indented_as_in_go() {
        assert_eq!(
            pretty("{\"a\":{},\"b\":[],\"c\":[1,{\"d\":\"x:{,\\\"}\\\\\"}],\"e\":null}\n"),
            "{\n  \"a\": {},\n  \"b\": [],\n  \"c\": [\n    1,\n    {\n      \"d\": \"x:{,\\\"}\\\\\"\n    }\n  ],\n  \"e\": null\n}"
        );
        assert_eq!(pretty(""), "");
    }

    #[test]
    fn pretty_json_keeps_the_value() {
        for file in
            [include_str!("../../../tests/wire/lease-full.json"), include_str!("../../../tests/wire/table.json")]
        {
            let indented = pretty(file);
            let value: serde_json::Value = serde_json::from_str(file).expect("JSON");
            assert_eq!(serde_json::from_str::<serde_json::Value>(&indented).expect("JSON"), value);
            assert!(!indented.ends_with('\n'));
        }
    }

    #[test]
    fn pretty_json_does_not_depend_on_the_input_pieces() {
        let json = r#"{"a":"\\\"{\n,","b":{},"c":[],"d":[1,{"e":[[]]}]}"#;
        for first in 0..json.len() {
            for second in first..json.len() {
                let (mut out, mut printer) = (Vec::new(), Pretty::default());
                for piece in [&json[..first], &json[first..second], &json[second..]] {
                    printer.push(&mut out, piece.as_bytes());
                }
                assert_eq!(String::from_utf8(out).expect("UTF-8"), pretty(json), "{first} {second}");
            }
        }
    }
}
