//! Compares the fast path of a renewal with the general path. Goal: a client cannot tell which path a request took.
//! Method: two APIs, each with its own table, get the same random requests. One of the APIs always takes the general
//! path. Replies and watch events of both APIs must have the same bytes, and both tables must have the same Leases and
//! versions. The requests are renewals as clients send them, variants of these renewals, and other writes.

use super::super::{Api, Reply};
use crate::auth::Credentials;
use crate::clock::Now;
use crate::http::{Method, NoLines, RequestHead};
use crate::resource::{ApiVersion, ResourceVersion};
use crate::table::Table;
use crate::timestamp::Time;
use crate::watch::Watchers;

/// The data of a request.
#[derive(Clone, Debug)]
struct Sent {
    method: Method,
    path: String,
    query: &'static str,
    accept: Option<&'static str>,
    content_type: Option<&'static str>,
    user_agent: Option<&'static str>,
    body: Vec<u8>,
}

impl Sent {
    /// Returns a request in JSON, as kubelet sends it.
    fn new(method: Method, name: &str, body: impl Into<Vec<u8>>) -> Self {
        let user_agent = Some("kubelet/v1.34");
        let (path, body) = (path_of(name), body.into());
        Self { method, path, query: "", accept: Some(JSON), content_type: Some(JSON), user_agent, body }
    }
}

/// Status, `Content-Type`, warnings and body of a reply. A list or a watch counts as status 200 with an empty body.
type Answer = (u16, Option<&'static str>, Vec<String>, Vec<u8>);

/// An API, its table, and its watchers.
struct Side {
    api: Api,
    table: Table,
    watchers: Watchers<usize>,
}

const FIRST: ResourceVersion = ResourceVersion(9_950);
const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const NAMES: [&str; 4] = ["a", "b", "c", "d"];

impl Side {
    fn new(long_way_only: bool) -> Self {
        let mut api = Api::new();
        api.long_way_only = long_way_only;
        let mut side = Self { api, table: Table::new(FIRST, 40, usize::MAX), watchers: Watchers::new(FIRST) };
        let watches = [
            ("watch=1", JSON),
            ("watch=1", "application/vnd.kubernetes.protobuf;stream=watch"),
            ("watch=1&labelSelector=l%3D1", JSON),
            ("watch=1&fieldSelector=metadata.name%3Da", JSON),
            ("watch=1", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"),
            ("watch=1", "application/json;as=Table;g=meta.k8s.io;v=v1"),
        ];
        for (at, (query, accept)) in watches.into_iter().enumerate() {
            let watch = Sent { query, accept: Some(accept), ..Sent::new(Method::Get, "", "") };
            match side.reply(&watch, Now::default()) {
                Reply::Watch(spec) => _ = side.watchers.add(at, *spec, Now::default()),
                other => panic!("{other:?}"),
            }
        }
        side
    }

    fn reply(&mut self, sent: &Sent, now: Now) -> Reply {
        let request = RequestHead {
            accept: sent.accept.map(str::as_bytes),
            content_type: sent.content_type.map(str::as_bytes),
            user_agent: sent.user_agent.map(str::as_bytes),
            ..RequestHead::bare(sent.method, &sent.path, sent.query, &NoLines)
        };
        let body = sent.body.clone();
        self.api.handle(&mut self.table, &request, &body, None, &Credentials::insecure(), now)
    }

    fn answer(&mut self, sent: &Sent, now: Now) -> Answer {
        match self.reply(sent, now) {
            Reply::Response(response) => {
                (response.status, Some(response.content_type), response.warnings, response.body.into_bytes().to_vec())
            }
            Reply::Job(_) | Reply::Watch(_) | Reply::Waiting(_) => (200, None, Vec::new(), Vec::new()),
        }
    }

    /// Returns the events of the last change, each with the number of its watcher.
    fn seen(&mut self, now: Now) -> Vec<(usize, Vec<u8>)> {
        self.watchers.notify(&self.table, usize::MAX);
        let mut seen = Vec::new();
        while let Some((key, owner)) = self.watchers.pop_dirty() {
            let mut events = Vec::new();
            self.watchers.fill(key, &self.table, now, &mut events, usize::MAX);
            seen.push((owner, events));
        }
        seen
    }

    fn body_of(&mut self, name: &str, accept: &'static str) -> Option<Vec<u8>> {
        let get = Sent { accept: Some(accept), ..Sent::new(Method::Get, name, "") };
        let (status, _, _, body) = self.answer(&get, Now::default());
        (status == 200).then_some(body)
    }
}

fn path_of(name: &str) -> String {
    let leases = "/apis/coordination.k8s.io/v1/namespaces/n/leases";
    if name.is_empty() { leases.to_owned() } else { format!("{leases}/{name}") }
}

struct World {
    short: Side,
    long: Side,
    rng: fastrand::Rng,
    now: Now,
    /// Bodies that clients have received. Each has the index of its Lease's name, and whether the body is protobuf.
    got: Vec<(usize, bool, Vec<u8>)>,
    micros: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        Self {
            short: Side::new(false),
            long: Side::new(true),
            rng: fastrand::Rng::with_seed(seed),
            now: Now { ms: 0, wall: Time(1_795_219_345) },
            got: Vec::new(),
            micros: 0,
        }
    }

    fn choose<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.rng.usize(..of.len())]
    }

    /// Creates a random Lease in the table of the fast path. UIDs are random, so the other table gets a copy of this
    /// Lease.
    fn create(&mut self, name: &str) {
        let mut meta = format!(r#""name":"{name}","namespace":"n""#);
        if self.rng.bool() {
            meta += r#","ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"a","uid":"5dfea7de-ed50"}]"#;
        }
        if self.rng.u8(..3) == 0 {
            meta += r#","labels":{"l":"1","renewTime":"x"},"annotations":{"time":"{\"renewTime\":\"<&\"}"}"#;
        }
        if self.rng.u8(..4) == 0 {
            meta += r#","finalizers":["example.com/f"]"#;
        }
        let mut spec = r#""holderIdentity":"é","leaseDurationSeconds":40"#.to_owned();
        if self.rng.u8(..5) > 0 {
            spec += r#","renewTime":"2026-11-21T00:02:25.500000Z""#;
        }
        if self.rng.bool() {
            spec += r#","leaseTransitions":3,"acquireTime":"2026-11-21T00:02:25.000001Z""#;
        }
        let creation = Sent::new(Method::Post, "", format!(r#"{{"metadata":{{{meta}}},"spec":{{{spec}}}}}"#));
        let (status, ..) = self.short.answer(&creation, self.now);
        assert_eq!(status, 201);
        let (_, created) = self.short.table.find("n", name).expect("it was created");
        self.long.table.create(created.lease().into_owned());
    }

    /// Returns a renewal of the Lease in `body`. In one of three calls, [`World::change`] makes a random variant of the
    /// renewal.
    fn renewal(&mut self, at: usize, is_protobuf: bool, mut body: Vec<u8>) -> Sent {
        self.micros += self.rng.u64(1..3_000_000);
        let micros = 500_000 + self.micros;
        let time = format!(
            "2026-11-{:02}T00:{:02}:{:02}.{:06}Z",
            21,
            micros / 60_000_000 % 60,
            micros / 1_000_000 % 60,
            micros % 1_000_000
        );
        if is_protobuf {
            body = self.protobuf_with_time(&body, &time);
        } else if let Some(found) = memchr::memmem::rfind(&body, b"\"renewTime\":\"2") {
            body[found + 13..found + 40].copy_from_slice(time.as_bytes());
        }
        let mut sent = Sent {
            query: self.choose(&["", "", "timeout=10s", "fieldManager=kubelet", "fieldValidation=Strict"]),
            accept: Some(if is_protobuf { PROTOBUF } else { JSON }),
            content_type: Some(if is_protobuf { PROTOBUF } else { JSON }),
            user_agent: Some("kubelet/v1.34.1 (linux/amd64) kubernetes/93248f9"),
            ..Sent::new(Method::Put, NAMES[at], body)
        };
        if self.rng.u8(..3) == 0 {
            self.change(&mut sent);
        }
        sent
    }

    /// Returns the Lease in `body` with another `renewTime`, encoded as by a client that knows all fields of the API.
    fn protobuf_with_time(&mut self, body: &[u8], time: &str) -> Vec<u8> {
        let Ok(decoded) = crate::codec::protobuf::decode_lease(body, ApiVersion::V1) else { return body.to_vec() };
        let mut lease = decoded.lease;
        if lease.spec.renew_time.is_some() {
            lease.spec.renew_time = crate::timestamp::parse_micro_time(time).ok();
        }
        let version = lease.metadata.resource_version.parse().ok().map(ResourceVersion);
        let mut out = Vec::new();
        crate::codec::protobuf::encode_lease_into(&mut out, &lease, version, crate::resource::API_VERSION);
        out
    }

    fn change(&mut self, sent: &mut Sent) {
        let at = self.rng.usize(..sent.body.len().max(1));
        match self.rng.u8(..16) {
            0 if !sent.body.is_empty() => sent.body[at] ^= 1 << self.rng.u8(..8),
            1 if !sent.body.is_empty() => _ = sent.body.remove(at),
            2 => sent.body.insert(at, self.rng.u8(..)),
            3 => sent.body.truncate(at),
            4 => sent.body.extend_from_slice(self.choose(&[&b"\n"[..], b" ", b"\n\n", b"{}", b"\x78\x00"])),
            5 => sent.body = sent.body.strip_suffix(b"\n").unwrap_or(&sent.body).to_vec(),
            6 => self.change_text(sent),
            7 => sent.query = self.choose(&["dryRun=All", "dryRun=x", "pretty=1", "fieldManager=", "force=1"]),
            8 => sent.query = self.choose(&["fieldManager=other", "fieldManager=x%09", "fieldValidation=x"]),
            9 => sent.user_agent = self.choose(&[None, Some(""), Some("other/1"), Some("kubelet"), Some("kubelet2/1")]),
            10 => {
                let table = "application/json;as=Table;g=meta.k8s.io;v=v1";
                let partial = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
                let list = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
                let accept = [None, Some("*/*"), Some(JSON), Some(PROTOBUF), Some("application/yaml"), Some(table)];
                sent.accept = self.choose(&accept);
                if self.rng.u8(..4) == 0 {
                    sent.accept = self.choose(&[Some(partial), Some(list), Some("text/html")]);
                }
            }
            11 => {
                let types = [None, Some(JSON), Some(PROTOBUF), Some("application/yaml"), Some("text/plain")];
                sent.content_type = self.choose(&types);
            }
            12 => sent.path = path_of(self.choose(&NAMES)),
            13 => sent.path = sent.path.replace("/v1/", self.choose(&["/v1beta1/", "/%761/", "//v1/"])),
            14 => sent.path = sent.path.replace("/n/", self.choose(&["/m/", "/%6E/"])),
            _ => sent.path.push('/'),
        }
    }

    /// Changes a JSON body: the order of its fields, a missing field, another value, or another form of a time.
    fn change_text(&mut self, sent: &mut Sent) {
        let Ok(mut lease) = serde_json::from_slice::<serde_json::Value>(&sent.body) else { return };
        match self.rng.u8(..10) {
            // The body changes all the same, since serde_json has sorted its fields by name.
            0 => {}
            1 => _ = lease["metadata"].as_object_mut().and_then(|meta| meta.remove("managedFields")),
            2 => _ = lease["metadata"].as_object_mut().and_then(|meta| meta.remove("resourceVersion")),
            3 => lease["metadata"]["managedFields"] = serde_json::json!([]),
            4 => lease["spec"]["unknown"] = 1.into(),
            5 => lease["metadata"]["uid"] = "another".into(),
            6 => lease["spec"]["leaseTransitions"] = self.rng.u8(..).into(),
            7 => lease["metadata"]["labels"] = serde_json::json!({"l": self.rng.u8(..2).to_string()}),
            8 => lease["metadata"]["finalizers"] = serde_json::json!([]),
            _ => {
                let times = [
                    "0001-01-01T00:00:00.000000Z",
                    "2026-11-21T00:02:25.5Z",
                    "2026-11-21T01:02:25.500000+01:00",
                    "2026-02-30T00:02:25.500000Z",
                    "2026-11-21T24:02:25.500000Z",
                    "9999-12-31T23:59:59.999999Z",
                    "0000-01-01T00:00:00.000000Z",
                    "",
                ];
                let text = String::from_utf8_lossy(&sent.body).into_owned();
                if let Some(found) = text.rfind("\"renewTime\":\"2") {
                    let time = self.choose(&times);
                    sent.body = [&text[..found + 13], time, &text[found + 40..]].concat().into_bytes();
                }
                return;
            }
        }
        sent.body = lease.to_string().into_bytes();
    }

    /// Returns a request that is not a renewal.
    fn other(&mut self, at: usize) -> Sent {
        let (method, content_type, query, body) = match self.rng.u8(..8) {
            0 => (Method::Delete, JSON, "", ""),
            1 => (Method::Delete, JSON, "propagationPolicy=Orphan", ""),
            2 => (Method::Patch, "application/merge-patch+json", "", r#"{"metadata":{"finalizers":null}}"#),
            3 => (Method::Patch, "application/merge-patch+json", "", r#"{"metadata":{"labels":{"l":"1","m":null}}}"#),
            4 => (Method::Patch, "application/merge-patch+json", "", r#"{"metadata":{"labels":{"l":null}}}"#),
            5 => (
                Method::Patch,
                "application/merge-patch+json",
                "fieldManager=second",
                r#"{"spec":{"renewTime":"2026-11-21T00:02:25.700000Z"}}"#,
            ),
            6 => (
                Method::Patch,
                "application/apply-patch+yaml",
                "fieldManager=applier&force=true",
                r#"{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","spec":{"leaseDurationSeconds":41}}"#,
            ),
            _ => (
                Method::Patch,
                "application/merge-patch+json",
                "",
                r#"{"metadata":{"managedFields":[{}]},"spec":{"holderIdentity":"h"}}"#,
            ),
        };
        let user_agent = Some(self.choose(&["kubelet/1", "kubectl/1", "zz/1"]));
        Sent { query, content_type: Some(content_type), user_agent, ..Sent::new(method, NAMES[at], body) }
    }

    fn step(&mut self) {
        let at = self.rng.usize(..NAMES.len());
        let name = NAMES[at];
        let is_protobuf = self.rng.bool();
        self.now.wall.0 += [0, 0, 1, 1, 10, -1][self.rng.usize(..6)];
        if self.short.table.find("n", name).is_none() {
            self.create(name);
        }
        // In one of four steps, a client reads the Lease. Later renewals start from the body that it received.
        if self.rng.u8(..4) == 0 {
            let accept = if is_protobuf { PROTOBUF } else { JSON };
            let bodies = [self.short.body_of(name, accept), self.long.body_of(name, accept)];
            assert_eq!(bodies[0], bodies[1]);
            if let [Some(body), _] = bodies {
                self.got.push((at, is_protobuf, body));
            }
        }
        let sent = match self.got.len() {
            // Some renewals are made from an older body than the newest one.
            count if count > 0 && self.rng.u8(..8) > 0 => {
                let back = if self.rng.u8(..6) == 0 { self.rng.usize(..count.min(4)) } else { 0 };
                let (at, is_protobuf, body) = self.got[count - 1 - back].clone();
                self.renewal(at, is_protobuf, body)
            }
            _ => self.other(at),
        };
        let answers = [self.short.answer(&sent, self.now), self.long.answer(&sent, self.now)];
        assert_eq!(answers[0], answers[1], "{sent:?}");
        if answers[0].0 == 200
            && sent.method == Method::Put
            && sent.query != "dryRun=All"
            && sent.accept == sent.content_type
        {
            let at = NAMES.iter().position(|name| sent.path.contains(&format!("leases/{name}"))).unwrap_or(at);
            let [(_, _, _, body), _] = answers;
            self.got.push((at, sent.accept == Some(PROTOBUF), body));
        }
        self.compare(&sent);
    }

    /// Compares everything in the two tables that clients can see.
    fn compare(&mut self, sent: &Sent) {
        let tables = [&self.short.table, &self.long.table];
        assert_eq!(tables[0].version(), tables[1].version(), "{sent:?}");
        assert_eq!(tables[0].len(), tables[1].len());
        for name in NAMES {
            match tables.map(|table| table.find("n", name).map(|(_, object)| object)) {
                [None, None] => {}
                [Some(short), Some(long)] => {
                    assert_eq!(short.version, long.version, "{sent:?}");
                    assert_eq!(short.lease(), long.lease(), "{sent:?}");
                    assert_eq!(short.renew_time(), long.renew_time());
                }
                _ => panic!("{name} is in one table: {sent:?}"),
            }
        }
        let now = self.now;
        assert_eq!(self.short.seen(now), self.long.seen(now), "{sent:?}");
        // The table keeps one encoding of a Lease, its template, in JSON or protobuf. A body in that format is a copy
        // of the template. A body in the other format is encoded from the Lease. So both formats are compared, in one
        // of eight steps.
        if self.rng.u8(..8) == 0 {
            for name in NAMES {
                for accept in [JSON, PROTOBUF] {
                    assert_eq!(self.short.body_of(name, accept), self.long.body_of(name, accept), "{sent:?}");
                }
            }
        }
    }
}

#[test]
fn the_fast_path_and_the_general_path_answer_the_same() {
    let (mut renewals, mut steps) = ([0; 2], 0);
    for seed in 0..60 {
        let mut world = World::new(seed);
        for _ in 0..400 {
            world.step();
            steps += 1;
        }
        assert_eq!(world.long.api.short_ways, [0; 2]);
        let [in_json, in_protobuf] = world.short.api.short_ways;
        renewals = [renewals[0] + in_json, renewals[1] + in_protobuf];
    }
    // The test is meaningful only if enough requests took the fast path.
    assert!(renewals.iter().all(|count| count * 12 > steps), "{renewals:?} of {steps}");
}

/// Goal: a Lease that the server loaded from the store takes the fast path from its first renewal on. Otherwise the
/// first renewal of each Lease after a restart would write the whole Lease to the journal.
#[test]
fn a_lease_from_the_store_is_renewed_on_the_fast_path() {
    let now = Now { ms: 0, wall: Time(1_795_219_345) };
    let mut side = Side::new(false);
    let spec = r#"{"holderIdentity":"h","renewTime":"2026-01-02T03:04:05.000001Z"}"#;
    let lease = format!(r#"{{"metadata":{{"name":"a"}},"spec":{spec}}}"#);
    let (status, _, _, created) = side.answer(&Sent::new(Method::Post, "", lease), now);
    let (_, object) = side.table.find("n", "a").expect("created");
    let mut table = Table::new(object.version, 10, usize::MAX);
    table.restore(object.number(), object.version, object.lease().into_owned()).expect("a table that is new");
    side.table = table;
    let renewed = String::from_utf8(created).expect("JSON").replace("05.000001Z", "15.000001Z");
    let (status_of_renewal, ..) = side.answer(&Sent::new(Method::Put, "a", renewed), now);
    assert_eq!((status, status_of_renewal, side.api.short_ways), (201, 200, [1, 0]));
}
