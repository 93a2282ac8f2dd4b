//! Communication with the cluster that this server serves. The server follows (lists and watches) the authentication
//! settings of kube-apiserver's aggregator, and the namespaces. It publishes the endpoints of its replicas as
//! EndpointSlices. During a takeover without access to etcd, it follows the built-in Leases (the Leases that
//! kube-apiserver itself stores).
//!
//! A separate thread, the cluster thread, sends all requests to kube-apiserver. The event loop only takes the results
//! from a queue (`updates`). So a slow or unreachable kube-apiserver does not delay renewals.

mod built_in;
mod endpoints;
mod follow;
mod followed;
mod lease;
mod namespaces;

pub use built_in::{BuiltInChange, BuiltInChanges, BuiltInRequests, built_in};
pub use endpoints::{EndpointsReceiver, EndpointsSender, ReplicaEndpoint, ServiceName, endpoints};
pub use follow::told;
pub use followed::Followed;
pub(crate) use lease::impl_lease_resource;
pub use namespaces::{NamespaceChange, NamespacePhase, Namespaces};

use crate::tls::config_map::{CONFIG_MAP, CONFIG_MAP_NAMESPACE, ClusterAuthentication};
use crate::updates::UpdateSender;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use built_in::follow_built_in;
use compact_str::CompactString;
use endpoints::keep_endpoints;
use follow::{READ_MAX, Seen, follow};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::core::PartialObjectMeta;
use kube::{Api, Client, Config};
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use tokio::runtime::{self, Runtime};

/// A client of the cluster's kube-apiserver, before its first request.
pub struct Cluster {
    runtime: Runtime,
    client: Client,
    /// URL of kube-apiserver, for the log.
    server: String,
    /// Client certificate of the kubeconfig, in PEM.
    client_cert_pem: Option<Vec<u8>>,
}

/// The Service whose EndpointSlices this server maintains.
#[derive(Debug)]
pub struct PublishedEndpoints {
    /// The time at which this replica last found the slices correct, or corrected them.
    pub followed: Followed,
    /// The Service.
    pub service: ServiceName,
    /// The channel on which the event loop sends the endpoints of the replicas.
    pub endpoints: EndpointsReceiver,
    /// Queue to the event loop. The cluster thread sends the generation of the endpoints ([`EndpointsSender::set`])
    /// that the slices now contain.
    pub published: UpdateSender<u64>,
}

/// The reason why the configuration of the cluster access is unusable.
#[derive(Debug)]
pub struct ClusterError {
    kubeconfig: Option<PathBuf>,
    cause: String,
}

impl fmt::Display for ClusterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kubeconfig {
            Some(path) => write!(f, "--kubeconfig {}: {}", path.display(), self.cause),
            None => write!(f, "this is no pod of a cluster, and no --kubeconfig is named: {}", self.cause),
        }
    }
}

impl std::error::Error for ClusterError {}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").finish_non_exhaustive()
    }
}

impl Cluster {
    /// Configures access to kube-apiserver by a kubeconfig, or by the service account of this pod. Sends no request to
    /// kube-apiserver.
    ///
    /// # Errors
    /// The configuration is invalid or missing.
    pub fn configured(kubeconfig: Option<&Path>) -> Result<Self, ClusterError> {
        let error = |cause: &dyn fmt::Display| ClusterError {
            kubeconfig: kubeconfig.map(Path::to_owned),
            cause: cause.to_string(),
        };
        let runtime = runtime::Builder::new_current_thread().enable_all().build().map_err(|e| error(&e))?;
        let mut config = match kubeconfig {
            None => Config::incluster().map_err(|e| error(&e))?,
            Some(path) => runtime.block_on(read_config(path)).map_err(|cause| error(&cause))?,
        };
        let server = config.cluster_url.to_string();
        let client_cert_pem = client_cert_pem(&config.auth_info);
        config.read_timeout = Some(READ_MAX);
        config.reset_reader_on_write = true;
        // By default, the client silently sleeps for minutes after some refusals. `follow` has its own pauses instead.
        config.default_retry = false;
        let client = {
            let _entered = runtime.enter();
            Client::try_from(config).map_err(|e| error(&e))?
        };
        Ok(Self { runtime, client, server, client_cert_pem })
    }

    /// Returns the client certificate of the kubeconfig in PEM; `None` if the client has none, such as with a token.
    #[must_use]
    pub fn client_cert_pem(&self) -> Option<&[u8]> {
        self.client_cert_pem.as_deref()
    }

    /// Starts a thread that follows the cluster's authentication settings and namespaces, and maintains the
    /// EndpointSlices of a Service. When the event loop asks for it, the thread also follows the built-in Leases. Each
    /// of these tasks ends when the receiver of its results is dropped.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn follow(
        self,
        authentication: Option<(Followed, mpsc::Sender<ClusterAuthentication>)>,
        namespaces: Option<(Followed, UpdateSender<NamespaceChange>)>,
        endpoints: Option<PublishedEndpoints>,
        built_in: Option<BuiltInRequests>,
    ) -> io::Result<()> {
        let Self { runtime, client, server, .. } = self;
        let run = move || {
            let _span = tracing::error_span!("cluster", server).entered();
            let authentication = async {
                if let Some((followed, sender)) = authentication {
                    follow_authentication(client.clone(), &followed, sender).await;
                }
            };
            let namespaces = async {
                if let Some((followed, sender)) = namespaces {
                    follow_namespaces(client.clone(), &followed, sender).await;
                }
            };
            let endpoints = async {
                if let Some(PublishedEndpoints { followed, service, endpoints, published }) = endpoints {
                    keep_endpoints(client.clone(), &service, &followed, endpoints, published).await;
                }
            };
            let built_in = async {
                if let Some(requests) = built_in {
                    follow_built_in(client.clone(), requests).await;
                }
            };
            runtime.block_on(futures_util::future::join4(authentication, namespaces, endpoints, built_in));
        };
        thread::Builder::new().name("cluster".to_owned()).spawn(run).map(drop)
    }
}

/// Returns the client certificate of a kubeconfig's user in PEM. Like the crate `kube`, prefers the certificate in the
/// kubeconfig to a named file.
fn client_cert_pem(user: &AuthInfo) -> Option<Vec<u8>> {
    match &user.client_certificate_data {
        Some(data) => STANDARD.decode(data).ok(),
        None => fs::read(user.client_certificate.as_ref()?).ok(),
    }
}

/// Reads a kubeconfig file.
///
/// # Errors
/// A description of the error in the file.
pub async fn read_config(kubeconfig: &Path) -> Result<Config, String> {
    let file = Kubeconfig::read_from(kubeconfig).map_err(|error| unquoted(&error))?;
    let options = KubeConfigOptions::default();
    Config::from_custom_kubeconfig(file, &options).await.map_err(|error| error.to_string())
}

/// Describes a kubeconfig error without a quotation from the file. The parser's message would quote lines and values of
/// the file, which may be keys and tokens.
fn unquoted(error: &KubeconfigError) -> String {
    let KubeconfigError::Parse(error) = error else { return error.to_string() };
    match error.location() {
        Some(at) => format!("not a kubeconfig in YAML: line {}, column {}", at.line(), at.column()),
        None => "not a kubeconfig in YAML".to_owned(),
    }
}

async fn follow_authentication(client: Client, followed: &Followed, sender: mpsc::Sender<ClusterAuthentication>) {
    let api: Api<ConfigMap> = Api::namespaced(client, CONFIG_MAP_NAMESPACE);
    let fields = format!("metadata.name={CONFIG_MAP}");
    follow(api, Some(&fields), followed, |seen| {
        let config_map = match seen {
            Seen::All(all) => all.into_iter().next(),
            Seen::Present(config_map) => Some(config_map),
            Seen::Gone(_) => None,
        };
        // If the ConfigMap is missing, kube-apiserver creates it again. Until then, the last settings remain in effect.
        let Some(config_map) = config_map else {
            tracing::warn!(namespace = CONFIG_MAP_NAMESPACE, name = CONFIG_MAP, "the ConfigMap is not there");
            return true;
        };
        sender.send(ClusterAuthentication::new(config_map.data.unwrap_or_default())).is_ok()
    })
    .await;
}

async fn follow_namespaces(client: Client, followed: &Followed, sender: UpdateSender<NamespaceChange>) {
    let api: Api<PartialObjectMeta<Namespace>> = Api::all(client);
    follow(api, None, followed, |seen| {
        let change = match seen {
            Seen::All(all) => NamespaceChange::All(all.into_iter().map(named).collect()),
            Seen::Present(namespace) => {
                let (name, phase) = named(namespace);
                NamespaceChange::Present(name, phase)
            }
            Seen::Gone(namespace) => NamespaceChange::Gone(named(namespace).0),
        };
        sender.send(change)
    })
    .await;
}

/// Returns the name and the phase of a namespace. kube-apiserver sets the phase `Terminating` and the deletion
/// timestamp in one step (`pkg/registry/core/namespace/storage`). So the metadata alone determines the phase.
fn named(namespace: PartialObjectMeta<Namespace>) -> (CompactString, NamespacePhase) {
    let metadata = namespace.metadata;
    let phase = match metadata.deletion_timestamp {
        None => NamespacePhase::Active,
        Some(_) => NamespacePhase::Terminating,
    };
    (metadata.name.unwrap_or_default().into(), phase)
}

#[cfg(test)]
mod tests {
    use super::follow::PAUSE_MIN;
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::time::{Duration, Instant};

    const LISTED: &str = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n\
                          {\"kind\":\"ConfigMapList\",\"apiVersion\":\"v1\",\
                          \"metadata\":{\"resourceVersion\":\"1\"},\"items\":[]}";

    /// Starts a fake kube-apiserver. It closes each connection after one request, which it answers with `answer`.
    fn fake_cluster(mut answer: impl FnMut(&str) -> &'static str + Send + 'static) -> Cluster {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        thread::spawn(move || {
            for socket in listener.incoming() {
                let (mut socket, mut request) = (socket.expect("a connection"), [0; 4096]);
                let read = socket.read(&mut request).expect("a request");
                assert_ne!(read, 0);
                let answer = answer(&String::from_utf8_lossy(&request[..read]));
                socket.write_all(answer.as_bytes()).expect("written");
            }
        });
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("kubeconfig");
        let kubeconfig = format!(
            "{{clusters: [{{name: c, cluster: {{server: 'http://{address}'}}}}], users: [{{name: u, user: {{}}}}], \
             contexts: [{{name: c, context: {{cluster: c, user: u}}}}], current-context: c}}"
        );
        fs::write(&path, kubeconfig).expect("written");
        let cluster = Cluster::configured(Some(&path)).expect("a cluster");
        assert_eq!(cluster.server, format!("http://{address}/"));
        cluster
    }

    /// Follows all ConfigMaps until `lists` lists have succeeded. Returns the value that records the last response.
    fn follow_lists(cluster: Cluster, lists: usize) -> Followed {
        let Cluster { runtime, client, .. } = cluster;
        let (followed, mut seen) = (Followed::namespaces(), 0);
        let following = follow(Api::<ConfigMap>::all(client), None, &followed, |_| {
            seen += 1;
            seen < lists
        });
        runtime.block_on(async { tokio::time::timeout(Duration::from_secs(20), following).await }).expect("in time");
        followed
    }

    /// Goal: the client soon repeats a request that kube-apiserver refuses, even if the `Retry-After` in the refusal is
    /// long.
    #[test]
    fn a_refused_request_is_repeated_after_a_pause() {
        const REFUSED: &str = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 3600\r\nContent-Length: 0\r\n\r\n";
        let mut answers = [REFUSED, REFUSED].into_iter();
        let followed = follow_lists(fake_cluster(move |_| answers.next().unwrap_or(LISTED)), 1);
        assert_ne!(followed.last_heard(), 0);
    }

    #[test]
    fn pauses_grow_while_lists_succeed_and_watches_are_refused() {
        const REFUSED: &str = "HTTP/1.1 403 Forbidden\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
        let cluster = fake_cluster(|request| if request.contains("watch=true") { REFUSED } else { LISTED });
        let begun = Instant::now();
        follow_lists(cluster, 4);
        // Three pauses separate the four lists. A pause is random, and may be a quarter shorter than intended.
        assert!(begun.elapsed() >= PAUSE_MIN * (1 + 2 + 4) * 3 / 4, "{:?}", begun.elapsed());
    }

    #[test]
    fn the_client_certificate_is_in_the_kubeconfig_or_in_a_file() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("client.crt");
        fs::write(&file, "a file").expect("written");
        let client_certificate = Some(file.display().to_string());
        let mut user = AuthInfo { client_certificate, ..AuthInfo::default() };
        assert_eq!(client_cert_pem(&user), Some(b"a file".to_vec()));
        user.client_certificate_data = Some("aW5saW5l".to_owned());
        assert_eq!(client_cert_pem(&user), Some(b"inline".to_vec()));
        assert_eq!(client_cert_pem(&AuthInfo::default()), None);
    }

    #[test]
    fn kubeconfig_errors_do_not_quote_the_file() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("kubeconfig");
        for text in [
            "users:\n- name: u\n  user: {token: s3cret\n",
            "users:\n- name: u\n  user:\n    token: s3cret\n   s3cret: [\n",
            "s3cret",
            "users: s3cret",
            "users:\n- name: u\n  user: s3cret",
            "current-context: [s3cret]",
            "current-context: a\ncurrent-context: s3cret",
            "users: &s3cret\n- *s4cret",
            "users: !!s3cret []",
            "\ts3cret",
        ] {
            fs::write(&path, text).expect("written");
            let told = Cluster::configured(Some(&path)).expect_err(text).to_string();
            assert!(!told.contains("cret"), "{told}");
            assert!(told.starts_with(&format!("--kubeconfig {}: ", path.display())), "{told}");
            let is_placed = ["line ", "current context"].iter().any(|part| told.contains(part));
            assert!(is_placed, "{text}: {told}");
        }
    }
}
