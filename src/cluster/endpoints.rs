//! Maintains the EndpointSlices of a Service, as kube-apiserver's lease reconciler does for the Service `kubernetes`
//! (Kubernetes, "EndpointSlices", "Management"). The event loop sends the endpoints of the live replicas over a channel
//! to the cluster thread, which sends all requests to kube-apiserver.
//!
//! Each replica renews an identity Lease, which shows that the replica is alive, and contains its address. Every
//! replica computes the same slices from these Leases, and checks the slices every ten seconds. A replica replaces a
//! slice only at the `resourceVersion` that it has read. So a replica overwrites no change that it has not seen. A new
//! replica creates an identity Lease. A replica that has not applied this Lease yet removes the new replica's endpoint.
//! Once it has applied the Lease, it adds the endpoint again. The slices do not depend on kube-controller-manager,
//! which has no leader while Leases are unavailable.

use super::Followed;
use super::follow::{PAUSE_MAX, PAUSE_MIN, told};
use crate::lease::validation::format::is_dns_label;
use crate::updates::UpdateSender;
use compact_str::CompactString;
use k8s_openapi::api::discovery::v1::{
    Endpoint, EndpointConditions, EndpointHints, EndpointPort, EndpointSlice, ForNode,
};
use kube::api::{DeleteParams, ListParams, ObjectMeta, PostParams, Preconditions};
use kube::{Api, Client, ResourceExt as _};
use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::timeout;

/// Label of the slices that this server maintains, and the value of this label.
const MANAGED_BY: (&str, &str) = ("endpointslice.kubernetes.io/managed-by", "coordination-apiserver");
/// Label whose value is the name of the Service of a slice.
const SERVICE_LABEL: &str = "kubernetes.io/service-name";
/// Name of the Service's port.
const PORT_NAME: &str = "https";
/// HTTP status codes for a write of a slice that was changed or deleted after this replica read it.
const CONFLICT: u16 = 409;
const NOT_FOUND: u16 = 404;
/// Interval at which a replica checks the slices while they are correct.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// The namespace and name of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceName {
    /// The namespace of the Service.
    pub namespace: String,
    /// The name within the namespace.
    pub name: String,
}

impl FromStr for ServiceName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('/') {
            Some((namespace, name)) if is_dns_label(namespace.as_bytes()) && is_dns_label(name.as_bytes()) => {
                Ok(Self { namespace: namespace.to_owned(), name: name.to_owned() })
            }
            _ => Err("NAMESPACE/NAME is wanted, such as kube-system/coordination-apiserver".to_owned()),
        }
    }
}

impl fmt::Display for ServiceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Endpoint at which clients reach a replica.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReplicaEndpoint {
    /// Address and port of the replica.
    pub address: SocketAddr,
    /// Name of the replica's node. The kube-proxy of that node prefers this replica to all others.
    pub node: Option<CompactString>,
}

impl fmt::Display for ReplicaEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.node {
            Some(node) => write!(f, "{} on {node}", self.address),
            None => self.address.fmt(f),
        }
    }
}

/// The endpoints of the replicas, as the event loop has set them last.
#[derive(Clone, Debug, Default)]
struct Said {
    /// Number of times that the endpoints have changed.
    generation: u64,
    endpoints: Vec<ReplicaEndpoint>,
}

/// The event loop's end of the endpoints channel.
#[derive(Clone, Debug)]
pub struct EndpointsSender(watch::Sender<Said>);

/// The cluster thread's end of the endpoints channel.
#[derive(Debug)]
pub struct EndpointsReceiver(watch::Receiver<Said>);

/// Creates the two ends of the endpoints channel. The cluster thread leaves the slices unchanged until the event loop
/// sets endpoints.
#[must_use]
pub fn endpoints() -> (EndpointsSender, EndpointsReceiver) {
    let (sender, receiver) = watch::channel(Said::default());
    (EndpointsSender(sender), EndpointsReceiver(receiver))
}

impl EndpointsSender {
    /// Sets the endpoints of the live replicas, sorted. Never blocks. Returns the generation of these endpoints.
    pub fn set(&self, endpoints: Vec<ReplicaEndpoint>) -> u64 {
        self.0.send_if_modified(|said| {
            let is_other = said.endpoints != endpoints;
            if is_other {
                *said = Said { generation: said.generation + 1, endpoints };
            }
            is_other
        });
        self.0.borrow().generation
    }
}

/// Maximum number of consecutive attempts that fail because another replica may have changed the slices first. A
/// further such failure counts as an error.
const RACES_MAX: u32 = 4;

/// Maintains the slices of `service` while the sender of the endpoints exists. Reports to `published` the generation
/// (sequence number) of the endpoints that the slices contain.
///
/// An empty list of endpoints leaves the slices unchanged. It means that this replica does not know which replicas are
/// alive, or that the last live replica stops. A stopped replica may soon return at the same address.
pub(super) async fn keep_endpoints(
    client: Client,
    service: &ServiceName,
    followed: &Followed,
    EndpointsReceiver(mut said): EndpointsReceiver,
    published: UpdateSender<u64>,
) {
    let api: Api<EndpointSlice> = Api::namespaced(client, &service.namespace);
    let mut pause = PAUSE_MIN;
    let mut races = 0;
    loop {
        let Said { generation, endpoints } = said.borrow_and_update().clone();
        let mut wait = LOOK_EVERY;
        if !endpoints.is_empty() {
            match reconcile(&api, service, &endpoints).await {
                Ok(()) => {
                    (pause, races) = (PAUSE_MIN, 0);
                    followed.hear();
                    if !published.send(generation) {
                        return;
                    }
                }
                // The usual cause of these errors is another replica. After `RACES_MAX` errors in a row, the cause must
                // be something else, such as a missing namespace.
                Err(kube::Error::Api(status)) if [CONFLICT, NOT_FOUND].contains(&status.code) && races < RACES_MAX => {
                    tracing::debug!(%service, "another replica was first; looking again");
                    wait = PAUSE_MIN;
                    races += 1;
                }
                Err(error) => {
                    let error = told(&error);
                    let pause_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
                    tracing::warn!(error, %service, pause_ms, "cannot keep the EndpointSlices; trying again");
                    wait = pause;
                    pause = (pause * 2).min(PAUSE_MAX);
                }
            }
        }
        if let Ok(Err(_)) = timeout(wait, said.changed()).await {
            return;
        }
    }
}

/// Changes the slices in the cluster so that they contain exactly the endpoints `wanted`.
async fn reconcile(
    api: &Api<EndpointSlice>,
    service: &ServiceName,
    wanted: &[ReplicaEndpoint],
) -> Result<(), kube::Error> {
    let labels = format!("{}={},{SERVICE_LABEL}={}", MANAGED_BY.0, MANAGED_BY.1, service.name);
    let found = api.list(&ListParams::default().labels(&labels)).await?;
    for step in plan(service, found.items, wanted) {
        let (what, name) = match &step {
            Step::Create(slice) => ("created", slice.name_any()),
            Step::Replace(slice) => ("replaced", slice.name_any()),
            Step::Delete(slice) => ("deleted", slice.name_any()),
        };
        match step {
            Step::Create(slice) => _ = api.create(&PostParams::default(), &slice).await?,
            Step::Replace(slice) => _ = api.replace(&name, &PostParams::default(), &slice).await?,
            Step::Delete(slice) => {
                let preconditions = Preconditions { resource_version: slice.resource_version(), uid: slice.uid() };
                _ = api.delete(&name, &DeleteParams::default().preconditions(preconditions)).await?;
            }
        }
        let endpoints = Vec::from_iter(wanted.iter().map(ToString::to_string));
        tracing::info!(slice = name, ?endpoints, "EndpointSlice {what}");
    }
    Ok(())
}

/// A change of one slice.
#[derive(Debug, PartialEq)]
enum Step {
    Create(EndpointSlice),
    /// Replaces the slice, at the `resourceVersion` that this replica has read.
    Replace(EndpointSlice),
    /// Deletes the slice, at the `resourceVersion` that this replica has read.
    Delete(EndpointSlice),
}

/// Returns the changes after which the slices `found` contain exactly the endpoints `wanted`. All endpoints of a slice
/// share one port and one address family, so each such pair has a slice. Deletions come last, so that at any time some
/// slice has endpoints.
fn plan(service: &ServiceName, found: Vec<EndpointSlice>, wanted: &[ReplicaEndpoint]) -> Vec<Step> {
    let mut groups: BTreeMap<String, Vec<&ReplicaEndpoint>> = BTreeMap::new();
    for endpoint in wanted {
        let family = if endpoint.address.is_ipv4() { "ipv4" } else { "ipv6" };
        groups.entry(format!("{}-{family}-{}", service.name, endpoint.address.port())).or_default().push(endpoint);
    }
    let mut found: BTreeMap<_, _> = found.into_iter().map(|slice| (slice.name_any(), slice)).collect();
    let mut steps = Vec::new();
    for (name, endpoints) in groups {
        let wanted = slice(service, &name, &endpoints);
        match found.remove(&name) {
            None => steps.push(Step::Create(wanted)),
            Some(known) if is_right(&known, &wanted) => {}
            Some(known) => steps.push(Step::Replace(EndpointSlice { metadata: known.metadata, ..wanted })),
        }
    }
    steps.extend(found.into_values().map(Step::Delete));
    steps
}

/// Whether the slice `known` has the endpoints and ports of `wanted`. Missing hints are accepted, since kube-apiserver
/// before 1.34 drops the hints that name nodes.
fn is_right(known: &EndpointSlice, wanted: &EndpointSlice) -> bool {
    let is_same = |known: &Endpoint, wanted: &Endpoint| {
        let is_dropped = known.hints.as_ref().is_none_or(|hints| *hints == EndpointHints::default());
        let hints = if is_dropped { &known.hints } else { &wanted.hints };
        *known == Endpoint { hints: hints.clone(), ..wanted.clone() }
    };
    let (known_endpoints, wanted_endpoints) = (endpoints_of(known), endpoints_of(wanted));
    let is_as_long = known_endpoints.len() == wanted_endpoints.len();
    let mut pairs = known_endpoints.iter().zip(wanted_endpoints);
    is_as_long && pairs.all(|(known, wanted)| is_same(known, wanted)) && known.ports == wanted.ports
}

fn endpoints_of(slice: &EndpointSlice) -> &[Endpoint] {
    slice.endpoints.as_deref().unwrap_or_default()
}

/// Creates a slice of these endpoints, which share one port and one address family.
fn slice(service: &ServiceName, name: &str, endpoints: &[&ReplicaEndpoint]) -> EndpointSlice {
    let conditions = EndpointConditions { ready: Some(true), serving: None, terminating: None };
    let for_node = |node: &CompactString| EndpointHints {
        for_nodes: Some(vec![ForNode { name: node.to_string() }]),
        ..EndpointHints::default()
    };
    let endpoint = |endpoint: &&ReplicaEndpoint| Endpoint {
        addresses: vec![endpoint.address.ip().to_string()],
        conditions: Some(conditions.clone()),
        hints: endpoint.node.as_ref().map(for_node),
        node_name: endpoint.node.as_ref().map(CompactString::to_string),
        ..Endpoint::default()
    };
    let first = endpoints.first().map(|endpoint| endpoint.address);
    let family = match first.map(|address| address.ip()) {
        Some(IpAddr::V6(_)) => "IPv6",
        Some(IpAddr::V4(_)) | None => "IPv4",
    };
    EndpointSlice {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(service.namespace.clone()),
            labels: Some(
                [MANAGED_BY, (SERVICE_LABEL, &service.name)]
                    .map(|(label, value)| (label.to_owned(), value.to_owned()))
                    .into(),
            ),
            ..ObjectMeta::default()
        },
        address_type: family.to_owned(),
        endpoints: Some(endpoints.iter().map(endpoint).collect()),
        ports: Some(vec![EndpointPort {
            name: Some(PORT_NAME.to_owned()),
            port: first.map(|address| address.port().into()),
            protocol: Some("TCP".to_owned()),
            app_protocol: Some("https".to_owned()),
        }]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service() -> ServiceName {
        "kube-system/leases".parse().expect("a name")
    }

    /// Parses endpoints in the form `ADDRESS` or `ADDRESS@NODE`.
    fn replica_endpoints(texts: &[&str]) -> Vec<ReplicaEndpoint> {
        let endpoint = |text: &&str| {
            let (address, node) = text.split_once('@').map_or((*text, None), |(address, node)| (address, Some(node)));
            ReplicaEndpoint { address: address.parse().expect("an address"), node: node.map(CompactString::from) }
        };
        texts.iter().map(endpoint).collect()
    }

    /// Applies the plan. Returns the slices that the cluster then contains, and the number of changes.
    fn applied(found: Vec<EndpointSlice>, wanted: &[&str]) -> (Vec<EndpointSlice>, usize) {
        let mut held: BTreeMap<_, _> = found.iter().map(|slice| (slice.name_any(), slice.clone())).collect();
        let steps = plan(&service(), found, &replica_endpoints(wanted));
        let count = steps.len();
        for step in steps {
            match step {
                Step::Create(slice) => assert!(held.insert(slice.name_any(), slice).is_none(), "created twice"),
                Step::Replace(slice) => assert!(held.insert(slice.name_any(), slice).is_some(), "nothing there"),
                Step::Delete(slice) => assert!(held.remove(&slice.name_any()).is_some(), "nothing there"),
            }
        }
        (held.into_values().collect(), count)
    }

    fn held(slices: &[EndpointSlice]) -> Vec<String> {
        let of_slice = |slice: &EndpointSlice| {
            let port = slice.ports.iter().flatten().find_map(|port| port.port).expect("a port");
            let address_type = slice.address_type.clone();
            let endpoints = endpoints_of(slice).to_vec();
            endpoints.into_iter().map(move |endpoint| format!("{address_type} {} {port}", endpoint.addresses.join(",")))
        };
        slices.iter().flat_map(of_slice).collect()
    }

    #[test]
    fn slices_follow_the_endpoints_and_correct_slices_are_kept() {
        let (one, steps) = applied(Vec::new(), &["10.0.0.1:10269"]);
        assert_eq!((held(&one), steps), (vec!["IPv4 10.0.0.1 10269".to_owned()], 1));
        let (three, steps) = applied(one, &["10.0.0.1:10269", "10.0.0.2:10269", "10.0.0.3:10269"]);
        assert_eq!((held(&three).len(), steps), (3, 1));
        let (same, steps) = applied(three.clone(), &["10.0.0.1:10269", "10.0.0.2:10269", "10.0.0.3:10269"]);
        assert_eq!((held(&same), steps), (held(&three), 0));
        let (other, steps) = applied(same, &["10.0.0.9:10269", "[fd00::1]:10269", "10.0.0.9:8443"]);
        assert_eq!(held(&other), ["IPv4 10.0.0.9 10269", "IPv4 10.0.0.9 8443", "IPv6 fd00::1 10269"]);
        assert_eq!(steps, 3);
        let (left, steps) = applied(other, &["10.0.0.9:8443"]);
        assert_eq!((held(&left), steps), (vec!["IPv4 10.0.0.9 8443".to_owned()], 2));
    }

    #[test]
    fn each_endpoint_has_a_hint_for_its_node() {
        let wanted = ["10.0.0.1:10269@node-a", "10.0.0.2:10269@node-b"];
        let (mut found, _) = applied(Vec::new(), &wanted);
        let of_endpoint = |endpoint: &Endpoint| {
            let hints = endpoint.hints.as_ref().and_then(|hints| hints.for_nodes.as_ref()).expect("a hint");
            (endpoint.node_name.clone().expect("a node"), Vec::from_iter(hints.iter().map(|node| node.name.clone())))
        };
        let nodes: Vec<_> = endpoints_of(&found[0]).iter().map(of_endpoint).collect();
        let expected = ["node-a", "node-b"].map(|node| (node.to_owned(), vec![node.to_owned()]));
        assert_eq!(nodes, expected);
        // The plan replaces a hint that another client has changed. But it does not write a hint again that an old
        // kube-apiserver has dropped.
        let endpoints = found[0].endpoints.as_mut().expect("endpoints");
        endpoints[0].hints = endpoints[1].hints.clone();
        let (mut found, steps) = applied(found, &wanted);
        assert_eq!(steps, 1);
        for endpoint in found[0].endpoints.iter_mut().flatten() {
            endpoint.hints = Some(EndpointHints::default());
        }
        let (found, steps) = applied(found, &wanted);
        assert_eq!(steps, 0);
        assert_eq!(applied(found, &["10.0.0.1:10269@node-a", "10.0.0.2:10269@node-c"]).1, 1);
    }

    #[test]
    fn a_slice_is_replaced_at_the_resource_version_that_was_read() {
        let (mut found, _) = applied(Vec::new(), &["10.0.0.1:10269"]);
        found[0].metadata.resource_version = Some("7".to_owned());
        let steps = plan(&service(), found, &replica_endpoints(&["10.0.0.2:10269"]));
        let [Step::Replace(slice)] = &steps[..] else { panic!("{steps:?}") };
        assert_eq!(slice.resource_version().as_deref(), Some("7"));
    }

    #[test]
    fn a_service_is_named_with_its_namespace() {
        let name = service();
        assert_eq!((name.namespace.as_str(), name.name.as_str()), ("kube-system", "leases"));
        assert_eq!(name.to_string(), "kube-system/leases");
        for wrong in ["", "leases", "/leases", "kube-system/", "a/b/c", "a/B", "-a/b", "a/b-", "a/b\n"] {
            assert!(wrong.parse::<ServiceName>().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn only_changed_endpoints_wake_the_cluster_thread() {
        let (sender, EndpointsReceiver(mut receiver)) = endpoints();
        assert_eq!(sender.set(replica_endpoints(&["10.0.0.1:1"])), 1);
        assert!(receiver.has_changed().expect("a sender"));
        receiver.mark_unchanged();
        assert_eq!(sender.set(replica_endpoints(&["10.0.0.1:1"])), 1);
        assert!(!receiver.has_changed().expect("a sender"));
        assert_eq!(sender.set(Vec::new()), 2);
    }
}
