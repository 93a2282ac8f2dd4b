//! Indented JSON, as Go's `json.MarshalIndent` writes it with two spaces: no line feed at the end.

/// Appends `json`, which is compact, with line feeds and two spaces for each level.
pub fn push_pretty(out: &mut Vec<u8>, json: &[u8]) {
    out.reserve(json.len() * 2);
    let mut depth = 0usize;
    let mut in_string = false;
    let mut bytes = json.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        if in_string {
            out.push(byte);
            match byte {
                b'\\' => out.extend(bytes.next()),
                b'"' => in_string = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => {
                in_string = true;
                out.push(byte);
            }
            b'{' | b'[' => {
                out.push(byte);
                // Nothing in it: both brackets stay together.
                if let Some(close) = bytes.next_if(|next| *next == byte + 2) {
                    out.push(close);
                } else {
                    depth += 1;
                    push_line(out, depth);
                }
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                push_line(out, depth);
                out.push(byte);
            }
            b',' => {
                out.push(byte);
                push_line(out, depth);
            }
            b':' => out.extend_from_slice(b": "),
            b'\n' => {}
            _ => out.push(byte),
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

    fn pretty(json: &str) -> String {
        let mut out = Vec::new();
        push_pretty(&mut out, json.as_bytes());
        String::from_utf8(out).expect("UTF-8")
    }

    #[test]
    fn indented_as_go_indents() {
        assert_eq!(
            pretty("{\"a\":{},\"b\":[],\"c\":[1,{\"d\":\"x:{,\\\"}\\\\\"}],\"e\":null}\n"),
            "{\n  \"a\": {},\n  \"b\": [],\n  \"c\": [\n    1,\n    {\n      \"d\": \"x:{,\\\"}\\\\\"\n    }\n  ],\n  \"e\": null\n}"
        );
        assert_eq!(pretty(""), "");
    }

    #[test]
    fn the_value_stays_the_same() {
        for file in
            [include_str!("../../../tests/wire/lease-full.json"), include_str!("../../../tests/wire/table.json")]
        {
            let indented = pretty(file);
            let value: serde_json::Value = serde_json::from_str(file).expect("JSON");
            assert_eq!(serde_json::from_str::<serde_json::Value>(&indented).expect("JSON"), value);
            assert!(!indented.ends_with('\n'));
        }
    }
}
