//! Fuzzes label, field and shard selectors, and the queries that contain them. Nothing panics, and a selector without
//! requirements matches everything.
#![no_main]

use coordination_apiserver::lease::StringMap;
use coordination_apiserver::options::{ListOptions, Query};
use coordination_apiserver::selector::field::FieldSelector;
use coordination_apiserver::selector::label::LabelSelector;
use coordination_apiserver::selector::shard::ShardSelector;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(selector) = LabelSelector::parse(text) {
        let mut labels = StringMap::default();
        assert!(!selector.is_everything() || selector.matches(&labels));
        for (key, value) in [("a", "b"), ("environment", "production"), ("x", "1")] {
            labels.insert(key.into(), value.into());
        }
        _ = selector.matches(&labels);
    }
    if let Ok(selector) = FieldSelector::parse(text) {
        assert!(!selector.is_everything() || selector.matches("namespace", "name"));
        if let (Some(name), Some(namespace)) = (selector.required_name(), selector.required_namespace()) {
            assert!(!selector.matches("another-namespace", name) || namespace == "another-namespace");
        }
    }
    if let Ok(selector) = ShardSelector::parse(text) {
        assert!(ShardSelector::parse(selector.as_str()).is_ok_and(|again| again == selector));
    }
    let query = Query::new(text);
    for (name, _) in query.pairs().take(100) {
        _ = query.value(&name);
    }
    _ = ListOptions::parse(&query);
});
