//! Finds repeated fields in the body of a patch, as strict decoding does (sigs.k8s.io/json `UnmarshalStrict`). If the
//! patch is an object, the search covers all objects at any depth. In a JSON patch, the search also finds unknown
//! fields of the operations.

use super::tape::{Elements, Members, Value};
use crate::codec::warnings::{Complaint, FieldWarnings};
use std::collections::HashSet;
use std::fmt::Write as _;

/// Names of the fields of an operation in a JSON patch.
const OPERATION: [&str; 4] = ["op", "path", "from", "value"];

/// Finds repeated fields in `root` and all objects below it. The depth of `root` must be limited, since the search
/// recurses.
pub(super) fn in_any_value(root: Value<'_, '_>) -> FieldWarnings {
    let mut search = Search::default();
    search.value(root);
    search.found
}

/// Finds repeated and unknown fields in the operations of the JSON patch `root`, and repeated fields in their values.
pub(super) fn in_operations(root: Value<'_, '_>) -> FieldWarnings {
    let mut search = Search::default();
    if let Value::Array(operations) = root {
        search.elements(operations, |search, operation| {
            if let Value::Object(members) = operation {
                search.operation(members);
            }
        });
    }
    search.found
}

#[derive(Default)]
struct Search {
    /// Path of the current value, such as `metadata.labels` or `[0].value`.
    path: String,
    found: FieldWarnings,
}

impl Search {
    fn value(&mut self, value: Value<'_, '_>) {
        match value {
            Value::Object(members) => self.members(members),
            Value::Array(elements) => self.elements(elements, Self::value),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn members(&mut self, members: Members<'_, '_>) {
        let mut seen = HashSet::new();
        for (key, value) in members {
            if !seen.insert(key) {
                self.report(Complaint::Duplicate, key);
            }
            self.below(key, value);
        }
    }

    fn operation(&mut self, members: Members<'_, '_>) {
        let mut seen = [false; OPERATION.len()];
        for (key, value) in members {
            let Some(at) = OPERATION.iter().position(|field| *field == key) else {
                // Like strict decoding, the search skips the value of an unknown field.
                self.report(Complaint::Unknown, key);
                continue;
            };
            if std::mem::replace(&mut seen[at], true) {
                self.report(Complaint::Duplicate, key);
            }
            self.below(key, value);
        }
    }

    fn elements<'t, 'i>(&mut self, elements: Elements<'t, 'i>, mut each: impl FnMut(&mut Self, Value<'t, 'i>)) {
        let length = self.path.len();
        for (at, element) in elements.enumerate() {
            // A write to a string cannot fail.
            let _ = write!(self.path, "[{at}]");
            each(self, element);
            self.path.truncate(length);
        }
    }

    fn below(&mut self, key: &str, value: Value<'_, '_>) {
        if !matches!(value, Value::Object(_) | Value::Array(_)) {
            return;
        }
        let length = self.path.len();
        if length > 0 {
            self.path.push('.');
        }
        self.path.push_str(key);
        self.value(value);
        self.path.truncate(length);
    }

    #[cold]
    fn report(&mut self, what: Complaint, key: &str) {
        let Self { path, found } = self;
        let dot = if path.is_empty() { "" } else { "." };
        found.report(what, || format!("{path}{dot}{key}"));
    }
}

#[cfg(test)]
mod tests {
    use super::super::Decoder;

    #[test]
    fn repeated_fields_are_found_at_any_depth() {
        let found = |body: &str| -> Vec<String> {
            let found = Decoder::new().repeated_fields(body.as_bytes());
            found.messages().map(str::to_owned).collect()
        };
        assert_eq!(found(r#"{"a":1,"b":{"a":[{"a":2}]}}"#), [""; 0]);
        assert_eq!(
            found(
                r#"{"spec":{"x":1,"\u0078":2},"spec":{"x":1},"metadata":{"labels":{"a":"b","a":"c","a":"d"}},"l":[1,{"k":{},"k":[{"z":0,"z":0}]}]}"#
            ),
            [
                r#"duplicate field "spec.x""#,
                r#"duplicate field "spec""#,
                r#"duplicate field "metadata.labels.a""#,
                r#"duplicate field "l[1].k""#,
                r#"duplicate field "l[1].k[0].z""#,
            ]
        );
        assert_eq!(found("5"), [""; 0]);
    }

    #[test]
    fn many_repeated_fields_below_a_long_key_take_linear_time() {
        let (key, repeated) = ("k".repeat(2_000_000), "\"a\":0,".repeat(60_000));
        let found = Decoder::new().repeated_fields(format!(r#"{{"{key}":{{{repeated}"b":0}}}}"#).as_bytes());
        assert_eq!(found.messages().count(), 1);
        assert!(found.is_full(), "it is not looked at any more");
    }

    #[test]
    fn unknown_and_repeated_fields_of_operations_are_found() {
        let body = r#"[{"op":"add","op":"test","path":"/a","Path":"/b","value":{"a":1,"a":2},"x":{"y":1,"y":2}},5,{"from":"","from":""}]"#;
        let found = Decoder::new().json_patch_complaints(body.as_bytes());
        let messages: Vec<_> = found.messages().collect();
        assert_eq!(
            messages,
            [
                r#"duplicate field "[0].op""#,
                r#"unknown field "[0].Path""#,
                r#"duplicate field "[0].value.a""#,
                r#"unknown field "[0].x""#,
                r#"duplicate field "[2].from""#,
            ]
        );
    }
}
