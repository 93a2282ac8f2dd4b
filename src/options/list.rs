//! Options of a list, a watch and a deletion of a collection, in the query.

use super::{Query, integer, is_true, keep_first, text_or_empty, valid_or};
use crate::api_error::{ApiError, FieldError};
use crate::go::json::json_quoted;
use crate::selector::Selector;
use crate::selector::field::FieldTerms;
use crate::selector::label::LabelSelector;
use compact_str::CompactString;
use std::borrow::Cow;

/// `metav1.ListOptions`, converted and validated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListOptions {
    /// Selector of Leases, without the shard: `shard_selector` is not parsed yet.
    pub selector: Selector,
    /// `shardSelector`; empty if absent. The value is not parsed yet, since it has an effect only if a feature gate is
    /// on.
    pub shard_selector: String,
    /// Whether the request is a watch.
    pub watch: bool,
    /// Whether the client accepts bookmarks.
    pub allow_watch_bookmarks: bool,
    /// Requested `resourceVersion`; empty for the newest state. The value is not parsed yet, since the error depends on
    /// the verb: [`parse_list_resource_version`](super::parse_list_resource_version) or
    /// [`parse_watch_resource_version`](super::parse_watch_resource_version).
    pub resource_version: CompactString,
    /// The states that `resource_version` allows for a list.
    pub resource_version_match: ResourceVersionMatch,
    /// Timeout of a watch, in seconds; may be negative.
    pub timeout_seconds: Option<i64>,
    /// Maximum number of items on one page; 0 or a negative number for no limit.
    pub limit: i64,
    /// `continue` token of the page, not decoded yet; empty for the first page.
    pub continue_token: String,
    /// Whether a watch begins with the existing Leases. [`ListOptions::parse`] sets this to `true` for a query with
    /// `watch=true` whose `resourceVersion` is absent, empty or `0`. `None` means that a watch begins with the changes
    /// after `resource_version`, or with the existing Leases if that is 0. It may be 0 in another spelling, such as
    /// `00`, or if a path below `/watch/` has no `watch=true`. For a list the value is always `None`.
    pub send_initial_events: Option<bool>,
}

/// The states that a `resourceVersion` allows for a list (`resourceVersionMatch`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResourceVersionMatch {
    /// The request does not contain `resourceVersionMatch`.
    #[default]
    None,
    /// The state at exactly this `resourceVersion`.
    Exact,
    /// Any state that is not older than this `resourceVersion`.
    NotOlderThan,
}

impl ResourceVersionMatch {
    /// Returns the value named `text`; `None` for an unknown name.
    fn known(text: &str) -> Option<Self> {
        match text {
            "" => Some(Self::None),
            "Exact" => Some(Self::Exact),
            "NotOlderThan" => Some(Self::NotOlderThan),
            _ => None,
        }
    }
}

/// Name of the parameter that most errors of this module are about.
const MATCH: &str = "resourceVersionMatch";

impl ListOptions {
    /// Parses the options of a list or a watch.
    ///
    /// # Errors
    /// 400 for a number or selector that cannot be parsed. 422 for an invalid combination of options. If there are
    /// several mistakes, the error is about the mistake that kube-apiserver finds first. kube-apiserver checks in this
    /// order: numbers, label selector, syntax of the field selector, combinations of options, unknown fields of the
    /// field selector.
    pub fn parse(query: &Query<'_>) -> Result<Self, ApiError> {
        if query.is_empty() {
            return Ok(Self::default());
        }
        let raw = Raw::collect(query);
        let timeout_seconds = raw.timeout_seconds.as_deref().map(integer).transpose()?;
        let limit = raw.limit.as_deref().map_or(Ok(0), integer)?;
        let labels = LabelSelector::parse(text_or_empty(&raw.label_selector))?;
        let field_terms = FieldTerms::parse(text_or_empty(&raw.field_selector))?;

        let mut send_initial_events = raw.send_initial_events;
        let mut version_match = text_or_empty(&raw.resource_version_match);
        let watch = raw.watch.unwrap_or_default();
        let version = text_or_empty(&raw.resource_version);
        // A watch without a `resourceVersion` begins with the existing Leases. Since the introduction of streaming
        // lists (KEP-3157), such a watch is the same as one with `sendInitialEvents=true`.
        if watch && send_initial_events.is_none() && version_match.is_empty() && matches!(version, "" | "0") {
            send_initial_events = Some(true);
            version_match = "NotOlderThan";
        }
        let given = Given { version, version_match, token: text_or_empty(&raw.token), send_initial_events };
        valid_or("ListOptions", if watch { given.watch_complaints() } else { given.list_complaints() })?;

        Ok(Self {
            selector: Selector { labels, fields: field_terms.into_selector()?, shard: None },
            shard_selector: raw.shard_selector.map(Cow::into_owned).unwrap_or_default(),
            watch,
            allow_watch_bookmarks: raw.allow_watch_bookmarks.unwrap_or_default(),
            resource_version: CompactString::from(version),
            resource_version_match: ResourceVersionMatch::known(version_match).unwrap_or_default(),
            timeout_seconds,
            limit,
            send_initial_events,
            continue_token: raw.token.map(Cow::into_owned).unwrap_or_default(),
        })
    }
}

/// The first value of each parameter. Values of booleans are already converted.
#[derive(Default)]
struct Raw<'a> {
    allow_watch_bookmarks: Option<bool>,
    field_selector: Option<Cow<'a, str>>,
    label_selector: Option<Cow<'a, str>>,
    limit: Option<Cow<'a, str>>,
    resource_version: Option<Cow<'a, str>>,
    resource_version_match: Option<Cow<'a, str>>,
    send_initial_events: Option<bool>,
    shard_selector: Option<Cow<'a, str>>,
    timeout_seconds: Option<Cow<'a, str>>,
    token: Option<Cow<'a, str>>,
    watch: Option<bool>,
}

impl<'a> Raw<'a> {
    fn collect(query: &Query<'a>) -> Self {
        let mut raw = Self::default();
        for (name, value) in query.pairs() {
            match name.as_ref() {
                "allowWatchBookmarks" => keep_first(&mut raw.allow_watch_bookmarks, is_true(&value)),
                "continue" => keep_first(&mut raw.token, value),
                "fieldSelector" => keep_first(&mut raw.field_selector, value),
                "labelSelector" => keep_first(&mut raw.label_selector, value),
                "limit" => keep_first(&mut raw.limit, value),
                "resourceVersion" => keep_first(&mut raw.resource_version, value),
                "resourceVersionMatch" => keep_first(&mut raw.resource_version_match, value),
                "sendInitialEvents" => keep_first(&mut raw.send_initial_events, is_true(&value)),
                "shardSelector" => keep_first(&mut raw.shard_selector, value),
                "timeoutSeconds" => keep_first(&mut raw.timeout_seconds, value),
                "watch" => keep_first(&mut raw.watch, is_true(&value)),
                _ => {}
            }
        }
        raw
    }
}

/// The options of a list or a watch whose combination is validated.
struct Given<'a> {
    version: &'a str,
    version_match: &'a str,
    token: &'a str,
    send_initial_events: Option<bool>,
}

impl Given<'_> {
    fn list_complaints(&self) -> Vec<FieldError> {
        let mut complaints = Vec::new();
        if !self.version_match.is_empty() {
            if self.version.is_empty() {
                let detail = "resourceVersionMatch is forbidden unless resourceVersion is provided";
                complaints.push(FieldError::forbidden(MATCH, detail));
            }
            complaints.extend(self.match_with_continue());
            let known = ResourceVersionMatch::known(self.version_match);
            if known.is_none() {
                complaints.push(self.unsupported_match(&["Exact", "NotOlderThan", ""]));
            }
            if known == Some(ResourceVersionMatch::Exact) && self.version == "0" {
                let detail = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
                complaints.push(FieldError::forbidden(MATCH, detail));
            }
        }
        if self.send_initial_events.is_some() {
            complaints.push(FieldError::forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
        }
        complaints
    }

    fn watch_complaints(&self) -> Vec<FieldError> {
        let mut complaints = Vec::new();
        let not_older_than = self.version_match == "NotOlderThan";
        if self.send_initial_events.is_some() && !not_older_than {
            let detail = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            complaints.push(FieldError::forbidden(MATCH, detail));
        }
        if !self.version_match.is_empty() {
            if self.send_initial_events.is_none() {
                let detail = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
                complaints.push(FieldError::forbidden(MATCH, detail));
            }
            if !not_older_than {
                complaints.push(self.unsupported_match(&["NotOlderThan"]));
            }
            complaints.extend(self.match_with_continue());
        }
        complaints
    }

    fn match_with_continue(&self) -> Option<FieldError> {
        let detail = "resourceVersionMatch is forbidden when continue is provided";
        (!self.token.is_empty()).then(|| FieldError::forbidden(MATCH, detail))
    }

    fn unsupported_match(&self, supported: &[&str]) -> FieldError {
        FieldError::not_supported_unquoted(MATCH, json_quoted(self.version_match), supported)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(raw: &str) -> ListOptions {
        ListOptions::parse(&Query::new(raw)).expect(raw)
    }

    /// Returns the status code and the message of the error.
    fn refusal(raw: &str) -> (u16, String) {
        let status = ListOptions::parse(&Query::new(raw)).expect_err(raw).status();
        (status.code, status.message)
    }

    fn invalid(complaints: &str) -> (u16, String) {
        (422, format!("ListOptions.meta.k8s.io \"\" is invalid: {complaints}"))
    }

    #[test]
    fn reads_every_option() {
        let options = parse(
            "labelSelector=a%3Db&fieldSelector=metadata.name%3Dn&watch=1&allowWatchBookmarks&resourceVersion=7&timeoutSeconds=-3&limit=5&continue=abc",
        );
        assert!(!options.selector.is_everything());
        assert_eq!(options.selector.fields.required_name(), Some("n"));
        assert!(options.watch && options.allow_watch_bookmarks);
        assert_eq!(options.resource_version, "7");
        assert_eq!(options.resource_version_match, ResourceVersionMatch::None);
        assert_eq!((options.timeout_seconds, options.limit), (Some(-3), 5));
        assert_eq!(options.continue_token, "abc");
        assert_eq!(options.send_initial_events, None);
    }

    #[test]
    fn an_empty_query_gives_default_options() {
        assert_eq!(parse(""), ListOptions::default());
        assert_eq!(parse("pretty=true&unknown=%31"), ListOptions::default());
        assert_eq!(parse("watch=false&limit=0&labelSelector=&continue="), ListOptions::default());
        assert_eq!(parse("limit=-1").limit, -1);
        assert_eq!(parse("limit=1&limit=x").limit, 1, "the first value counts");
    }

    #[test]
    fn a_watch_without_a_version_starts_with_the_current_state() {
        for raw in ["watch=true", "watch=true&resourceVersion=0", "watch=&resourceVersion="] {
            let options = parse(raw);
            assert_eq!(options.send_initial_events, Some(true), "{raw}");
            assert_eq!(options.resource_version_match, ResourceVersionMatch::NotOlderThan, "{raw}");
        }
        assert_eq!(parse("watch=true&resourceVersion=1").send_initial_events, None);
        let options = parse("watch=true&sendInitialEvents=false&resourceVersionMatch=NotOlderThan");
        assert_eq!(options.send_initial_events, Some(false));
        assert_eq!(parse("resourceVersion=0").send_initial_events, None);
    }

    #[test]
    fn matches_of_a_list_need_a_version() {
        assert_eq!(
            parse("resourceVersion=5&resourceVersionMatch=Exact").resource_version_match,
            ResourceVersionMatch::Exact
        );
        assert_eq!(
            parse("resourceVersion=0&resourceVersionMatch=NotOlderThan").resource_version_match,
            ResourceVersionMatch::NotOlderThan
        );
        for (raw, complaints) in [
            (
                "resourceVersion=0&resourceVersionMatch=Exact",
                "resourceVersionMatch: Forbidden: resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
            ),
            (
                "resourceVersionMatch=Exact",
                "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
            ),
            (
                "resourceVersion=1&resourceVersionMatch=Nonsense",
                "resourceVersionMatch: Unsupported value: \"Nonsense\": supported values: \"Exact\", \"NotOlderThan\", \"\"",
            ),
            (
                "resourceVersion=1&resourceVersionMatch=Exact&continue=x&sendInitialEvents=true",
                "[resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided, sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list]",
            ),
        ] {
            assert_eq!(refusal(raw), invalid(complaints), "{raw}");
        }
    }

    #[test]
    fn matches_of_a_watch_need_initial_events() {
        const REQUIRES: &str =
            "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
        for (raw, complaints) in [
            ("watch=true&sendInitialEvents=true", REQUIRES.to_owned()),
            (
                "watch=true&sendInitialEvents=true&resourceVersionMatch=Exact",
                format!("[{REQUIRES}, resourceVersionMatch: Unsupported value: \"Exact\": supported values: \"NotOlderThan\"]"),
            ),
            (
                "watch=true&resourceVersionMatch=NotOlderThan",
                "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided".to_owned(),
            ),
            (
                "watch=true&resourceVersionMatch=NotOlderThan&sendInitialEvents=1&continue=x",
                "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided".to_owned(),
            ),
        ] {
            assert_eq!(refusal(raw), invalid(&complaints), "{raw}");
        }
    }

    #[test]
    fn the_first_invalid_option_is_reported() {
        let number = |text: &str| (400, format!("strconv.ParseInt: parsing \"{text}\": invalid syntax"));
        assert_eq!(refusal("watch=true&timeoutSeconds=x"), number("x"));
        assert_eq!(refusal("limit=x"), number("x"));
        assert_eq!(refusal("limit="), number(""));
        assert_eq!(refusal("limit=y&timeoutSeconds=x&labelSelector=a%20b"), number("x"));
        let labels = "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt".to_owned();
        assert_eq!(refusal("watch=true&labelSelector=a%20b&fieldSelector=x"), (400, labels));
        let fields =
            "\"spec.x\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"".to_owned();
        assert_eq!(refusal("watch=true&fieldSelector=spec.x=1"), (400, fields));
        let form = "invalid selector: 'x'; can't understand 'x'".to_owned();
        assert_eq!(refusal("fieldSelector=x&resourceVersionMatch=Exact"), (400, form));
        assert_eq!(refusal("fieldSelector=spec.x=1&resourceVersionMatch=Exact").0, 422);
    }
}
