//! Users named in field lines by the front proxy: what the lines say.
//!
//! kube-apiserver's aggregator proves itself with the front-proxy certificate and names in `X-Remote-*` for whom it
//! speaks (Kubernetes, "Configure the Aggregation Layer"). Whether the peer may do so is not decided here.

use crate::http::FieldLines;
use crate::tls::identity::Identity;
use crate::tls::trust::HeaderNames;
use percent_encoding::percent_decode;

/// Why field lines name nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unnamed {
    /// They say nothing of a user.
    Absent,
    /// They say something, and no user that could be told from others: no name, or bytes that are no text.
    Unreadable,
}

/// What a field line is about.
enum Role<'a> {
    /// User, by the name at this position.
    Username(usize),
    /// Group.
    Group,
    /// UID, by the name at this position.
    Uid(usize),
    /// A further attribute of this key.
    Extra(&'a [u8]),
}

/// Whether a request claims to be somebody's, or something about who sends it.
pub(super) fn is_claim(names: &HeaderNames, fields: &dyn FieldLines) -> bool {
    let mut found = false;
    fields.for_each(&mut |name, _| found = found || role_of(names, name).is_some());
    found
}

/// Writes into `identity`, whose memory is used again, whom the field lines name. Of more than 64 names for a
/// user, or for a UID, the last ones say nothing.
///
/// # Errors
/// [`Unnamed`]; `identity` is nobody's then.
pub(super) fn read(names: &HeaderNames, fields: &dyn FieldLines, identity: &mut Identity) -> Result<(), Unnamed> {
    let mut reading = Reading {
        is_claim: false,
        is_text: true,
        username: FirstLines::default(),
        uid: FirstLines::default(),
        groups: 0,
        extra: 0,
    };
    identity.user.clear();
    identity.uid.clear();
    fields.for_each(&mut |name, value| {
        if let Some(role) = role_of(names, name) {
            reading.take(role, value, identity);
        }
    });
    identity.groups.truncate(reading.groups);
    identity.extra.truncate(reading.extra);
    match reading {
        Reading { is_claim: false, .. } => Err(Unnamed::Absent),
        Reading { is_text: true, .. } if !identity.user.is_empty() => Ok(()),
        _ => Err(Unnamed::Unreadable),
    }
}

fn role_of<'a>(names: &HeaderNames, name: &'a [u8]) -> Option<Role<'a>> {
    let position = |names: &[String]| names.iter().position(|own| own.as_bytes().eq_ignore_ascii_case(name));
    if let Some(at) = position(&names.username) {
        return Some(Role::Username(at));
    }
    if position(&names.group).is_some() {
        return Some(Role::Group);
    }
    if let Some(at) = position(&names.uid) {
        return Some(Role::Uid(at));
    }
    names.extra_prefix.iter().find_map(|prefix| {
        let (head, key) = name.split_at_checked(prefix.len())?;
        head.eq_ignore_ascii_case(prefix.as_bytes()).then_some(Role::Extra(key))
    })
}

/// What has been read of the field lines of one request.
struct Reading {
    is_claim: bool,
    is_text: bool,
    username: FirstLines,
    uid: FirstLines,
    /// How many of the identity's are of this request.
    groups: usize,
    extra: usize,
}

impl Reading {
    fn take(&mut self, role: Role<'_>, value: &[u8], identity: &mut Identity) {
        self.is_claim = true;
        let Ok(value) = str::from_utf8(value) else {
            self.is_text = false;
            return;
        };
        match role {
            Role::Username(at) => self.username.take(at, value, &mut identity.user),
            Role::Uid(at) => self.uid.take(at, value, &mut identity.uid),
            Role::Group if value.is_empty() => {}
            Role::Group => {
                refill(&mut identity.groups, self.groups).push_str(value);
                self.groups += 1;
            }
            Role::Extra(key) => {
                if self.extra == identity.extra.len() {
                    identity.extra.push(Default::default());
                }
                // The one just pushed, or an older one to be written over.
                if let Some((own_key, own_value)) = identity.extra.get_mut(self.extra) {
                    unescape_key(key, own_key);
                    own_value.clear();
                    own_value.push_str(value);
                }
                self.extra += 1;
            }
        }
    }
}

/// Of some names, of which one value is wanted, those that have had a line.
#[derive(Default)]
struct FirstLines {
    /// A bit for each name; one that has none is not looked at.
    seen: u64,
    /// The position of the name that the value is from.
    taken: Option<usize>,
}

impl FirstLines {
    /// Keeps the value of the name that stands first in the configuration, and of its lines the first, whatever it says:
    /// if it is empty the next name has its turn and not the next line (apiserver `headerrequest`, `headerValue`, and
    /// Go's `Header.Get`).
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

/// The string at `at`, emptied; a new one if there is none.
fn refill(strings: &mut Vec<String>, at: usize) -> &mut String {
    if at >= strings.len() {
        strings.push(String::new());
    }
    let last = strings.len() - 1;
    let string = &mut strings[at.min(last)];
    string.clear();
    string
}

/// A key in lower case, its escapes resolved; one with a broken escape is taken as it is, as kube-apiserver does.
fn unescape_key(escaped: &[u8], key: &mut String) {
    key.clear();
    let lower = |bytes: &[u8]| String::from_utf8_lossy(bytes).to_ascii_lowercase();
    if !escaped.contains(&b'%') {
        key.extend(escaped.iter().map(|b| char::from(b.to_ascii_lowercase())));
        return;
    }
    let lowered = lower(escaped);
    if has_broken_escape(lowered.as_bytes()) {
        key.push_str(&lowered);
    } else {
        key.push_str(&percent_decode(lowered.as_bytes()).decode_utf8_lossy());
    }
}

fn has_broken_escape(text: &[u8]) -> bool {
    let is_hex = |at: usize| text.get(at).is_some_and(u8::is_ascii_hexdigit);
    text.iter().enumerate().any(|(at, b)| *b == b'%' && !(is_hex(at + 1) && is_hex(at + 2)))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Field lines of a test.
    pub(crate) struct Lines<'a>(pub(crate) &'a [(&'a str, &'a [u8])]);

    impl FieldLines for Lines<'_> {
        fn for_each(&self, each: &mut dyn FnMut(&[u8], &[u8])) {
            for (name, value) in self.0 {
                each(name.as_bytes(), value);
            }
        }
    }

    fn identity(names: &HeaderNames, lines: &[(&str, &[u8])]) -> Result<Identity, Unnamed> {
        let mut identity = Identity {
            user: "somebody".into(),
            uid: "1".into(),
            groups: vec!["of".into(), "an".into(), "earlier".into(), "request".into()],
            extra: vec![("k".into(), "v".into()), ("k".into(), "w".into())],
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
        assert_eq!((found.user.as_str(), found.uid.as_str()), ("system:node:n1", "u-1"));
        assert_eq!(found.groups, ["system:nodes", "system:authenticated"]);
        assert_eq!(found.extra, [("authentication.kubernetes.io/credential-id".into(), "X509SHA256=ab".into())]);
    }

    #[test]
    fn the_first_name_with_a_value_wins_and_of_its_lines_the_first() {
        let names = HeaderNames { username: vec!["X-A".into(), "X-B".into()], ..HeaderNames::default() };
        let user = |lines: &[(&str, &[u8])]| identity(&names, lines).map(|found| found.user);
        assert_eq!(user(&[("x-b", b"b"), ("x-a", b"a"), ("x-a", b"c"), ("x-b", b"d")]).as_deref(), Ok("a"));
        assert_eq!(user(&[("x-b", b"b"), ("x-a", b"")]).as_deref(), Ok("b"));
        assert_eq!(user(&[("x-a", b"")]), Err(Unnamed::Unreadable));
        // An empty first line is the first one.
        assert_eq!(user(&[("x-a", b""), ("x-a", b"a")]), Err(Unnamed::Unreadable));
        assert_eq!(user(&[("x-a", b""), ("x-b", b"b"), ("x-a", b"a")]).as_deref(), Ok("b"));
        assert_eq!(user(&[("x-b", b""), ("x-a", b""), ("x-b", b"b"), ("x-a", b"a")]), Err(Unnamed::Unreadable));
    }

    #[test]
    fn a_uid_is_of_the_first_line_too() {
        let uid = |lines: &[(&str, &[u8])]| identity(&HeaderNames::default(), lines).map(|found| found.uid);
        assert_eq!(uid(&[("x-remote-user", b"u"), ("x-remote-uid", b""), ("x-remote-uid", b"1")]).as_deref(), Ok(""));
        assert_eq!(uid(&[("x-remote-user", b"u"), ("x-remote-uid", b"1"), ("x-remote-uid", b"")]).as_deref(), Ok("1"));
    }

    #[test]
    fn names_beyond_those_that_are_looked_at_say_nothing() {
        const NAMES_MAX: usize = u64::BITS as usize;
        let names =
            HeaderNames { username: (0..=NAMES_MAX).map(|at| format!("X-{at}")).collect(), ..HeaderNames::default() };
        let user = |at: usize| identity(&names, &[(format!("x-{at}").as_str(), b"u")]).map(|found| found.user);
        assert_eq!(user(NAMES_MAX - 1).as_deref(), Ok("u"));
        assert_eq!(user(NAMES_MAX), Err(Unnamed::Unreadable));
    }

    #[test]
    fn nothing_is_left_of_the_request_before() {
        let found = identity(&HeaderNames::default(), &[("X-Remote-User", b"u")]).expect("a user");
        assert_eq!(found, Identity { user: "u".into(), ..Identity::default() });
    }

    #[test]
    fn who_is_not_named_is_nobody() {
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

    #[test]
    fn keys_are_unescaped_as_go_does() {
        for (escaped, key) in [
            (&b"Scopes"[..], "scopes"),
            (b"a%2Fb", "a/b"),
            (b"a%2fb+c", "a/b+c"),
            (b"a%2", "a%2"),
            (b"a%zz%2F", "a%zz%2f"),
            (b"%", "%"),
            (b"%E4", "\u{fffd}"),
            (b"", ""),
        ] {
            let mut own = "left over".to_owned();
            unescape_key(escaped, &mut own);
            assert_eq!(own, key);
        }
    }
}
