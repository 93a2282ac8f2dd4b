//! Reads the user that the front proxy names in the field lines of a request.
//!
//! kube-apiserver's aggregator authenticates itself with the front-proxy certificate, and names the user in
//! `X-Remote-*` fields (Kubernetes, "Configure the Aggregation Layer"). The caller of this module decides whether the
//! peer may name users.

use crate::http::FieldLines;
use crate::tls::identity::Identity;
use crate::tls::trust::HeaderNames;

/// The reason why the field lines name no user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unnamed {
    /// No field line names a user or an attribute of a user.
    Absent,
    /// Field lines ask for impersonation, or claim a user whom the server cannot determine. In the second case, no line
    /// names the user, or the name or a group is not UTF-8.
    Unreadable,
}

/// The meaning of a field line for the identity of the user.
enum Role {
    /// The user name. The number is the position of the field name in the configured names.
    Username(usize),
    /// A group of the user.
    Group,
    /// The UID of the user or an extra attribute, which this server does not use.
    Other,
}

/// Whether the field lines name a user or an attribute of a user. An impersonation field counts too (Kubernetes, "User
/// impersonation"). If the server ignored such a field, the server would use the sender's own rights, which may be
/// greater.
pub(super) fn is_claim(names: &HeaderNames, fields: &dyn FieldLines) -> bool {
    let mut found = false;
    fields.for_each(&mut |name, _| {
        found = found || role_of(names, name).is_some() || is_impersonation(name);
    });
    found
}

/// Reads the user that the field lines name. Stores the user in `identity`, and reuses the memory of the value there.
/// Only the first 64 configured field names for the user name count.
///
/// # Errors
/// [`Unnamed`]. The user name in `identity` is then not valid.
pub(super) fn read(names: &HeaderNames, fields: &dyn FieldLines, identity: &mut Identity) -> Result<(), Unnamed> {
    let mut reading = Reading { is_claim: false, is_text: true, username: FirstLines::default(), groups: 0 };
    identity.user.clear();
    fields.for_each(&mut |name, value| {
        match role_of(names, name) {
            Some(role) => reading.take(role, value, identity),
            // kube-apiserver acts on impersonation fields itself and forwards none. So with such a field, the lines
            // count as unreadable.
            None if is_impersonation(name) => (reading.is_claim, reading.is_text) = (true, false),
            None => {}
        }
    });
    identity.groups.truncate(reading.groups);
    match reading {
        Reading { is_claim: false, .. } => Err(Unnamed::Absent),
        Reading { is_text: true, .. } if !identity.user.is_empty() => Ok(()),
        _ => Err(Unnamed::Unreadable),
    }
}

fn role_of(names: &HeaderNames, name: &[u8]) -> Option<Role> {
    let position = |names: &[String]| names.iter().position(|own| own.as_bytes().eq_ignore_ascii_case(name));
    if let Some(at) = position(&names.username) {
        return Some(Role::Username(at));
    }
    if position(&names.group).is_some() {
        return Some(Role::Group);
    }
    // An empty prefix, which a ConfigMap may contain, would match every field.
    let is_extra = |prefix: &String| !prefix.is_empty() && has_prefix(name, prefix.as_bytes());
    (position(&names.uid).is_some() || names.extra_prefix.iter().any(is_extra)).then_some(Role::Other)
}

fn is_impersonation(name: &[u8]) -> bool {
    has_prefix(name, b"Impersonate-")
}

fn has_prefix(name: &[u8], prefix: &[u8]) -> bool {
    name.split_at_checked(prefix.len()).is_some_and(|(head, _)| head.eq_ignore_ascii_case(prefix))
}

/// What the server has read from the field lines of one request so far.
struct Reading {
    is_claim: bool,
    is_text: bool,
    username: FirstLines,
    /// Number of groups in this request. They are the first elements of `Identity::groups`. Later elements are from an
    /// earlier request.
    groups: usize,
}

impl Reading {
    fn take(&mut self, role: Role, value: &[u8], identity: &mut Identity) {
        self.is_claim = true;
        match (role, str::from_utf8(value)) {
            (Role::Other, _) | (Role::Group, Ok("")) => {}
            (_, Err(_)) => self.is_text = false,
            (Role::Username(at), Ok(value)) => self.username.take(at, value, &mut identity.user),
            (Role::Group, Ok(value)) => {
                refill(&mut identity.groups, self.groups).push_str(value);
                self.groups += 1;
            }
        }
    }
}

/// The configured field names for the user name that have had a line in this request, and the one whose value is used.
#[derive(Default)]
struct FirstLines {
    /// A bit for each configured field name that has had a line. Names after the 64th are ignored.
    seen: u64,
    /// Position of the configured field name whose value is used.
    taken: Option<usize>,
}

impl FirstLines {
    /// Stores `value` in the user name `own`, unless an earlier field name in the configuration has set `own`. `at` is
    /// the position of the value's field name in the configuration. Only the first line of each field name counts. If
    /// this line is empty, the next field name is used, not the next line of this name (apiserver `headerrequest`,
    /// `headerValue`, and Go's `Header.Get`).
    fn take(&mut self, at: usize, value: &str, own: &mut String) {
        let Some(bit) = u32::try_from(at).ok().and_then(|at| 1_u64.checked_shl(at)) else { return };
        let is_first = self.seen & bit == 0;
        self.seen |= bit;
        if is_first && !value.is_empty() && self.taken.is_none_or(|taken| at < taken) {
            self.taken = Some(at);
            own.clear();
            own.push_str(value);
        }
    }
}

/// Clears and returns the string at position `at`. Appends a new string if `at` is beyond the end.
fn refill(strings: &mut Vec<String>, at: usize) -> &mut String {
    if at >= strings.len() {
        strings.push(String::new());
    }
    let last = strings.len() - 1;
    let string = &mut strings[at.min(last)];
    string.clear();
    string
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::Lines;

    fn identity(names: &HeaderNames, lines: &[(&str, &[u8])]) -> Result<Identity, Unnamed> {
        let mut identity = Identity {
            user: "somebody".into(),
            groups: vec!["of".into(), "an".into(), "earlier".into(), "request".into()],
        };
        read(names, &Lines(lines), &mut identity).map(|()| identity)
    }

    #[test]
    fn the_default_names_are_read_in_any_case() {
        let lines: [(&str, &[u8]); 8] = [
            ("host", b"x"),
            ("x-remote-user", b"system:node:n1"),
            ("X-REMOTE-GROUP", b"system:nodes"),
            ("X-Remote-Group", b"system:authenticated"),
            ("X-Remote-Group", b""),
            ("X-Remote-Uid", b"u-1"),
            ("X-Remote-Extra-Authentication.kubernetes.io%2FCredential-Id", b"X509SHA256=ab"),
            ("X-Remote-Usera", b"no"),
        ];
        let found = identity(&HeaderNames::default(), &lines).expect("a user");
        assert_eq!(found.user, "system:node:n1");
        assert_eq!(found.groups, ["system:nodes", "system:authenticated"]);
    }

    #[test]
    fn the_first_header_with_a_value_names_the_user() {
        let names = HeaderNames { username: vec!["X-A".into(), "X-B".into()], ..HeaderNames::default() };
        let user = |lines: &[(&str, &[u8])]| identity(&names, lines).map(|found| found.user);
        assert_eq!(user(&[("x-b", b"b"), ("x-a", b"a"), ("x-a", b"c"), ("x-b", b"d")]).as_deref(), Ok("a"));
        assert_eq!(user(&[("x-b", b"b"), ("x-a", b"")]).as_deref(), Ok("b"));
        assert_eq!(user(&[("x-a", b"")]), Err(Unnamed::Unreadable));
        // An empty first line still counts as the first line of its field name.
        assert_eq!(user(&[("x-a", b""), ("x-a", b"a")]), Err(Unnamed::Unreadable));
        assert_eq!(user(&[("x-a", b""), ("x-b", b"b"), ("x-a", b"a")]).as_deref(), Ok("b"));
        assert_eq!(user(&[("x-b", b""), ("x-a", b""), ("x-b", b"b"), ("x-a", b"a")]), Err(Unnamed::Unreadable));
    }

    #[test]
    fn a_claim_is_a_field_of_a_known_name_or_prefix() {
        let names = HeaderNames { extra_prefix: vec![String::new(), "X-Extra-".into()], ..HeaderNames::default() };
        assert!(!is_claim(&names, &Lines(&[("accept", b"*/*")])));
        assert!(is_claim(&names, &Lines(&[("x-extra-a", b"b")])));
        assert!(is_claim(&names, &Lines(&[("impersonate-user", b"b")])));
        assert!(!is_claim(&names, &Lines(&[("impersonator", b"b")])));
    }

    #[test]
    fn user_header_names_beyond_the_maximum_are_ignored() {
        const NAMES_MAX: usize = u64::BITS as usize;
        let names =
            HeaderNames { username: (0..=NAMES_MAX).map(|at| format!("X-{at}")).collect(), ..HeaderNames::default() };
        let user = |at: usize| identity(&names, &[(format!("x-{at}").as_str(), b"u")]).map(|found| found.user);
        assert_eq!(user(NAMES_MAX - 1).as_deref(), Ok("u"));
        assert_eq!(user(NAMES_MAX), Err(Unnamed::Unreadable));
    }

    #[test]
    fn an_identity_keeps_nothing_of_an_earlier_request() {
        let found = identity(&HeaderNames::default(), &[("X-Remote-User", b"u")]).expect("a user");
        assert_eq!(found, Identity { user: "u".into(), groups: Vec::new() });
    }

    #[test]
    fn a_request_without_a_user_header_has_no_identity() {
        let names = HeaderNames::default();
        assert_eq!(identity(&names, &[("Host", b"x")]), Err(Unnamed::Absent));
        assert_eq!(identity(&names, &[("X-Remote-Group", b"system:masters")]), Err(Unnamed::Unreadable));
        assert_eq!(identity(&names, &[("X-Remote-User", b"\xff")]), Err(Unnamed::Unreadable));
        assert_eq!(identity(&names, &[("X-Remote-User", b"u"), ("X-Remote-Group", b"\xff")]), Err(Unnamed::Unreadable));
        for (name, value) in [("x-remote-extra-a", &b""[..]), ("x-remote-extra-", b"\xff"), ("X-Remote-Uid", b"")] {
            assert!(is_claim(&names, &Lines(&[("Host", b"x"), (name, value)])), "{name}");
        }
        assert!(!is_claim(&names, &Lines(&[("Host", b"x"), ("X-Remote", b"u"), ("", b"")])));
    }
}
