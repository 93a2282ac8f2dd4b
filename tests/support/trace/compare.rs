//! Compares a recorded value with a received one.
//!
//! The recursion is as deep as the recorded value, which is a file of this repository.

use super::symbols::{Bindings, Place, Symbol, is_age, is_time};
use serde_json::{Map, Value};

/// A comparison of bodies, which collects differences. It binds the symbols of the recorded body, such as `${uid:1}`,
/// to received values.
#[derive(Debug)]
pub(crate) struct Comparison<'a> {
    bindings: &'a mut Bindings,
    place: Place,
    differences: Vec<String>,
}

impl<'a> Comparison<'a> {
    /// Starts a comparison of values at `place`: in a response, or in the events of a stream.
    pub(crate) fn new(bindings: &'a mut Bindings, place: Place) -> Self {
        Self { bindings, place, differences: Vec::new() }
    }

    /// Returns the differences, one in each line.
    pub(crate) fn differences(self) -> Vec<String> {
        self.differences
    }

    /// Compares `got` with the recorded value `want`. `at` is the path of both in the body.
    pub(crate) fn compare(&mut self, at: &str, want: &Value, got: &Value) {
        match (want, got) {
            (Value::Object(want), Value::Object(got)) => self.compare_objects(at, want, got),
            (Value::Array(want), Value::Array(got)) => self.compare_arrays(at, want, got),
            (Value::String(want), Value::String(got)) => self.compare_strings(at, want, got),
            _ if want == got => {}
            _ => self.differ(at, &format!("got {}, want {}", short(got), short(want))),
        }
    }

    /// Compares the members of both objects. `metadata` comes first, since it binds symbols, such as the UID, which
    /// texts in other members contain.
    fn compare_objects(&mut self, at: &str, want: &Map<String, Value>, got: &Map<String, Value>) {
        let unexpected = got.keys().filter(|key| !want.contains_key(*key));
        let mut keys: Vec<&String> = want.keys().chain(unexpected).collect();
        keys.sort_by_key(|key| (*key != "metadata", *key));
        for key in keys {
            let at = format!("{at}.{key}");
            match (want.get(key), got.get(key)) {
                (Some(want), Some(got)) => self.compare(&at, want, got),
                (Some(want), None) => self.differ(&at, &format!("missing, want {}", short(want))),
                (None, got) => self.differ(&at, &format!("unexpected {}", short(got.unwrap_or(&Value::Null)))),
            }
        }
    }

    /// Compares arrays item by item, in order.
    fn compare_arrays(&mut self, at: &str, want: &[Value], got: &[Value]) {
        let want = &self.in_order_of_names(want);
        if want.len() != got.len() {
            let got_all = short(&Value::from(got));
            self.differ(at, &format!("{} items, want {}: got {got_all}", got.len(), want.len()));
        }
        for (index, (want, got)) in want.iter().zip(got).enumerate() {
            self.compare(&format!("{at}[{index}]"), want, got);
        }
    }

    /// Returns the recorded items in the order of their names in this replay. A list is sorted by name, and generated
    /// names have another order than in the recording.
    fn in_order_of_names(&self, items: &[Value]) -> Vec<Value> {
        let name = |item: &Value| item["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let mut items = items.to_vec();
        if items.iter().any(|item| Symbol::parse(&name(item)).is_some()) {
            items.sort_by_key(|item| self.bindings.fill(&name(item)));
        }
        items
    }

    /// Compares a symbol, a text with symbols, or plain text.
    fn compare_strings(&mut self, at: &str, want: &str, got: &str) {
        if let Some(symbol) = Symbol::parse(want) {
            if let Err(why) = self.bindings.bind(symbol, got, self.place) {
                self.differ(at, &why);
            }
            return;
        }
        match want {
            "${time}" if is_time(got) => {}
            "${time}" => self.differ(at, &format!("{got:?} is not a time in whole seconds")),
            "${age}" if is_age(got) => {}
            "${age}" => self.differ(at, &format!("{got:?} is not an age")),
            _ => {
                let want = self.bindings.fill(want);
                if want != got {
                    self.differ(at, &format!("got {got:?}, want {want:?}"));
                }
            }
        }
    }

    fn differ(&mut self, at: &str, why: &str) {
        self.differences.push(format!("{at}: {why}"));
    }
}

/// Formats a value on one line of limited length.
pub(crate) fn short(value: &Value) -> String {
    const CHARS_MAX: usize = 400;
    let text = value.to_string();
    match text.char_indices().nth(CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn differences(want: &Value, got: &Value) -> Vec<String> {
        let mut bindings = Bindings::default();
        let mut comparison = Comparison::new(&mut bindings, Place::Answer);
        comparison.compare("body", want, got);
        comparison.differences()
    }

    #[test]
    fn equal_bodies_do_not_differ() {
        let want = json!({"metadata": {"uid": "${uid:1}", "resourceVersion": "${rv:1}", "creationTimestamp": "${time}"}, "n": 1});
        let got = json!({"metadata": {"uid": "u", "resourceVersion": "5", "creationTimestamp": "2026-01-02T03:04:05Z"}, "n": 1});
        assert_eq!(differences(&want, &got), [""; 0]);
    }

    #[test]
    fn a_wrong_a_missing_and_an_unexpected_member_are_reported_with_their_paths() {
        let want = json!({"kind": "Lease", "spec": {"holderIdentity": "a", "leaseTransitions": 1}});
        let got = json!({"kind": "Lease", "spec": {"holderIdentity": "b", "strategy": "x"}});
        assert_eq!(
            differences(&want, &got),
            [
                r#"body.spec.holderIdentity: got "b", want "a""#,
                "body.spec.leaseTransitions: missing, want 1",
                r#"body.spec.strategy: unexpected "x""#,
            ]
        );
    }

    #[test]
    fn numbers_strings_booleans_and_null_are_not_confused() {
        for (want, got) in
            [(json!(1), json!(1.0)), (json!(1), json!("1")), (json!(1), json!(true)), (json!({}), json!(null))]
        {
            assert_eq!(differences(&want, &got).len(), 1, "{want} {got}");
        }
    }

    #[test]
    fn a_missing_event_is_reported() {
        let want = json!([{"type": "ADDED"}, {"type": "DELETED"}]);
        assert_eq!(
            differences(&want, &json!([{"type": "ADDED"}])),
            [r#"body: 1 items, want 2: got [{"type":"ADDED"}]"#]
        );
    }

    #[test]
    fn events_out_of_order_are_reported() {
        let event = |version: &str| json!({"object": {"metadata": {"resourceVersion": version}}});
        let want = json!([event("${rv:1}"), event("${rv:2}")]);
        assert_eq!(differences(&want, &json!([event("1"), event("2")])), [""; 0]);
        let found = differences(&want, &json!([event("2"), event("1")]));
        assert_eq!(found, ["body[1].object.metadata.resourceVersion: ${rv:2}=1 is out of order with ${rv:1}=2"]);
    }

    #[test]
    fn a_uid_shared_by_two_objects_is_reported() {
        let want = json!([{"uid": "${uid:1}"}, {"uid": "${uid:2}"}]);
        assert_eq!(
            differences(&want, &json!([{"uid": "u"}, {"uid": "u"}])),
            ["body[1].uid: ${uid:2} repeats ${uid:1}: u"]
        );
    }

    #[test]
    fn generated_names_are_compared_in_their_local_order() {
        let item = |name: &str, n: i32| json!({"metadata": {"name": name}, "n": n});
        let created = json!([{"name": "${name:1}"}, {"name": "${name:2}"}]);
        let mut bindings = Bindings::default();
        let mut comparison = Comparison::new(&mut bindings, Place::Answer);
        comparison.compare("created", &created, &json!([{"name": "gen-b"}, {"name": "gen-a"}]));
        let listed = json!([item("${name:1}", 1), item("${name:2}", 2)]);
        comparison.compare("listed", &listed, &json!([item("gen-a", 2), item("gen-b", 1)]));
        assert_eq!(comparison.differences(), [""; 0]);
        let mut comparison = Comparison::new(&mut bindings, Place::Answer);
        comparison.compare("listed", &listed, &json!([item("gen-b", 1), item("gen-a", 2)]));
        assert_eq!(comparison.differences().len(), 4, "a list that is not sorted by name");
    }

    #[test]
    fn metadata_is_bound_before_a_message_that_names_it() {
        let want = json!({"details": "of ${uid:1}", "metadata": {"uid": "${uid:1}"}});
        assert_eq!(differences(&want, &json!({"details": "of u", "metadata": {"uid": "u"}})), [""; 0]);
        assert_eq!(differences(&want, &json!({"details": "of v", "metadata": {"uid": "u"}})).len(), 1);
    }
}
