//! HTTP clients for the servers that take part in a hand-over, the move of the Leases from or to kube-apiserver's own
//! storage. These servers are the kube-apiservers, and the replicas of this server.

use super::checks::parse_date;
use super::lease::Lease;
use super::{API_SERVICE, SwitchError, failed};
use crate::cli::{PROGRAM, SwitchArgs};
use crate::cluster::{read_config, told};
use crate::handover::NAMESPACE;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::jiff::Timestamp;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::api::ListParams;
use kube::client::Body;
use kube::{Api, Client, Config, Resource};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use std::cell::Cell;
use std::time::Duration;
use tokio::time::timeout;
use tonic::codegen::http::Request;

/// Name of the program that serves the API of the cluster.
const APISERVER: &str = "kube-apiserver";
/// Maximum time until a connection is established.
const CONNECT_MAX: Duration = Duration::from_secs(2);
/// Time after which a request without progress fails. There is no progress if the server sends no byte for this time
/// after the client's last byte, or if the client can send no byte for this time.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// Maximum time until a replica answers a read. After this time, the command asks the next replica.
const READ_MAX: Duration = Duration::from_secs(1);
/// Path of a replica's health check that fails without access to the store. A server with `--storage memory` has no
/// such check.
const STORE_CHECK: &str = "/readyz/journal";
/// HTTP status code for a failing health check.
const UNAVAILABLE: u16 = 503;
/// Selector of the EndpointSlices of the Service `kubernetes`. These slices contain the addresses of all
/// kube-apiservers.
const KUBERNETES_SLICES: &str = "kubernetes.io/service-name=kubernetes";

/// The URL of a server, and an HTTP client for that server.
pub(super) struct Server {
    /// Name of the program in error messages.
    program: &'static str,
    url: String,
    client: Client,
    /// Whether a request to the server got no answer.
    was_silent: Cell<bool>,
}

/// The kube-apiserver at the address in the kubeconfig.
pub(super) struct Cluster {
    config: Config,
    server: Server,
}

impl Cluster {
    /// Creates a client for the kube-apiserver in the kubeconfig that `--kubeconfig` names.
    ///
    /// # Errors
    /// If the kubeconfig is invalid.
    pub(super) async fn new(args: &SwitchArgs) -> Result<Self, SwitchError> {
        let config = read_config(&args.kubeconfig).await;
        let config = config.map_err(|why| failed(&format!("--kubeconfig {}", args.kubeconfig.display()), why))?;
        let server = Server::new(APISERVER, &config.cluster_url.to_string(), config.clone())?;
        Ok(Self { config, server })
    }

    /// Returns the kube-apiserver at the address in the kubeconfig.
    pub(super) fn server(&self) -> &Server {
        &self.server
    }

    /// Reads the APIService for Leases (`v1.coordination.k8s.io`).
    ///
    /// # Errors
    /// If kube-apiserver does not return the APIService.
    pub(super) async fn api_service(&self) -> Result<APIService, SwitchError> {
        self.server.api_service().await
    }
}

/// Clients for all servers that take part in a switch.
pub(super) struct Clients {
    /// kube-apiserver at the address in the kubeconfig.
    cluster: Server,
    apiservers: Vec<Server>,
    replicas: Vec<Server>,
    /// Index of the replica that answered last. The commands ask this replica first.
    answered: Cell<usize>,
}

impl Server {
    fn new(program: &'static str, url: &str, mut config: Config) -> Result<Self, SwitchError> {
        config.connect_timeout = Some(CONNECT_MAX);
        (config.read_timeout, config.write_timeout) = (Some(ANSWER_MAX), Some(ANSWER_MAX));
        // Without this, the read timeout would also count the time before a request, in which the connection is idle.
        config.reset_reader_on_write = true;
        // Without retries, the caller sees an error response at once.
        config.default_retry = false;
        let client = Client::try_from(config).map_err(|error| failed(url, told(&error)))?;
        Ok(Self { program, url: url.to_owned(), client, was_silent: Cell::new(false) })
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Whether a request of this command to the server got no answer.
    pub(super) fn was_silent(&self) -> bool {
        self.was_silent.get()
    }

    /// Returns the API of Leases in the namespace of the hand-over.
    pub(super) fn leases(&self) -> Api<Lease> {
        self.leases_in(NAMESPACE)
    }

    /// Returns the API of the Leases in all namespaces.
    pub(super) fn all_leases(&self) -> Api<Lease> {
        Api::all(self.client.clone())
    }

    /// Returns the API of the Leases in a namespace.
    pub(super) fn leases_in(&self, namespace: &str) -> Api<Lease> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// Returns the API of ConfigMaps in the namespace of the hand-over.
    pub(super) fn config_maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    /// Returns the API of the objects of a cluster-wide kind.
    pub(super) fn objects<K: Resource<DynamicType = ()>>(&self) -> Api<K> {
        Api::all(self.client.clone())
    }

    /// Returns the API of APIServices.
    pub(super) fn api_services(&self) -> Api<APIService> {
        Api::all(self.client.clone())
    }

    /// Reads the APIService for Leases.
    async fn api_service(&self) -> Result<APIService, SwitchError> {
        self.api_services().get(API_SERVICE).await.map_err(|error| self.failed(&error))
    }

    /// Checks that the server is ready.
    ///
    /// # Errors
    /// If the server does not respond, or one of its checks fails.
    pub(super) async fn check_ready(&self) -> Result<(), SwitchError> {
        self.get("/readyz").await.map(drop)
    }

    /// Checks that the server has access to its store. A server that does not respond passes, since it counts as dead.
    /// A server with `--storage memory` has no store, and passes too.
    ///
    /// # Errors
    /// If the server responds that it has no access to its store.
    pub(super) async fn check_store(&self) -> Result<(), SwitchError> {
        match timeout(READ_MAX, self.text(STORE_CHECK)).await {
            Ok(Err(error)) if matches!(&error, kube::Error::Api(status) if status.code == UNAVAILABLE) => {
                Err(self.failed(&error))
            }
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Returns the body of the response to a GET of a path.
    ///
    /// # Errors
    /// If the server does not respond, or responds with an error.
    pub(super) async fn get(&self, path: &str) -> Result<String, SwitchError> {
        self.text(path).await.map_err(|error| self.failed(&error))
    }

    async fn text(&self, path: &str) -> kube::Result<String> {
        let request = Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError)?;
        self.client.request_text(request).await
    }

    /// Returns the server's time, from the field `Date` of a response.
    ///
    /// # Errors
    /// If the server does not respond, or the response has no date.
    pub(super) async fn date(&self) -> Result<Timestamp, SwitchError> {
        let request = Request::get("/version").body(Body::empty()).map_err(|error| failed(&self.url, error))?;
        let response = self.client.send(request).await.map_err(|error| self.failed(&error))?;
        let date = response.headers().get("date").and_then(|date| date.to_str().ok());
        parse_date(date.unwrap_or_default()).map_err(|error| failed(&self.url, error))
    }

    /// Awaits the answer to a read, for [`READ_MAX`] at most.
    ///
    /// # Errors
    /// If the server does not respond in time, or responds with an error.
    pub(super) async fn read<T>(&self, read: impl Future<Output = kube::Result<T>>) -> Result<T, SwitchError> {
        let answer = timeout(READ_MAX, read).await.map_err(|_| self.silent())?;
        answer.map_err(|error| self.failed(&error))
    }

    /// Returns the error for a server that does not respond, and remembers its silence.
    pub(super) fn silent(&self) -> SwitchError {
        self.was_silent.set(true);
        failed(&self.url, format_args!("{} does not answer", self.program))
    }

    /// Returns the error of a request to the server. If the server did not answer, remembers its silence.
    pub(super) fn failed(&self, error: &kube::Error) -> SwitchError {
        if !matches!(error, kube::Error::Api(_)) {
            self.was_silent.set(true);
        }
        let why = told(error);
        match error {
            // There is no connection, or the connection has broken.
            kube::Error::Service(_) | kube::Error::HyperError(_) => {
                failed(&self.url, format_args!("no answer from {}: {why}", self.program))
            }
            _ => failed(&self.url, why),
        }
    }
}

impl Clients {
    /// Creates clients for all servers. The clients verify the certificates of the replicas by the `caBundle` and the
    /// Service name in the APIService `service`. Without `service` there are no clients for replicas.
    ///
    /// # Errors
    /// If an argument is invalid, or the cluster does not respond.
    pub(super) async fn new(
        cluster: Cluster,
        args: &SwitchArgs,
        service: Option<&APIService>,
    ) -> Result<Self, SwitchError> {
        let Cluster { config, server: cluster } = cluster;
        let replicas = match service {
            Some(service) => {
                let replica = |url: &String| Server::new(PROGRAM, url, of_replica(&config, url, service)?);
                let clients = args.endpoints.iter().map(replica);
                clients.collect::<Result<_, _>>()?
            }
            None => Vec::new(),
        };
        let urls = match args.kube_apiservers.is_empty() {
            true => urls_of_apiservers(&cluster).await?,
            false => args.kube_apiservers.clone(),
        };
        let apiservers = urls.iter().map(|url| {
            let mut config = config.clone();
            config.cluster_url = uri(url)?;
            Server::new(APISERVER, url, config)
        });
        let apiservers = apiservers.collect::<Result<_, _>>()?;
        Ok(Self { cluster, apiservers, replicas, answered: Cell::new(0) })
    }

    /// Creates clients for one kube-apiserver and one replica without TLS.
    #[cfg(test)]
    pub(super) fn without_tls(apiserver: &str, replica: &str) -> Self {
        let server = |url: &str| {
            let mut config = Config::new(uri(url).expect("a URL"));
            config.root_cert = Some(Vec::new());
            Server::new(APISERVER, url, config).expect("a client")
        };
        let apiservers = vec![server(apiserver)];
        Self { cluster: server(apiserver), apiservers, replicas: vec![server(replica)], answered: Cell::new(0) }
    }

    /// Returns every kube-apiserver.
    pub(super) fn apiservers(&self) -> &[Server] {
        &self.apiservers
    }

    /// Returns every replica.
    pub(super) fn replicas(&self) -> &[Server] {
        &self.replicas
    }

    /// Asks the replicas one after the other, until one answers. Begins with the replica that answered last. So the
    /// command does not ask a hung replica again while another replica answers.
    ///
    /// # Errors
    /// If no replica answers. The error is that of the last replica.
    pub(super) async fn first_answer<T>(
        &self,
        mut ask: impl AsyncFnMut(&Server) -> Result<T, SwitchError>,
    ) -> Result<T, SwitchError> {
        let mut answer = Err(SwitchError("no replica is named".to_owned()));
        let (count, start) = (self.replicas.len(), self.answered.get());
        for index in (0..count).map(|offset| (start + offset) % count) {
            answer = ask(&self.replicas[index]).await;
            if answer.is_ok() {
                self.answered.set(index);
                break;
            }
        }
        answer
    }

    /// Returns the kube-apiserver at the address in the kubeconfig.
    pub(super) fn cluster(&self) -> &Server {
        &self.cluster
    }

    /// Reads the APIService for Leases.
    ///
    /// # Errors
    /// If kube-apiserver does not return the APIService.
    pub(super) async fn api_service(&self) -> Result<APIService, SwitchError> {
        self.cluster.api_service().await
    }

    /// Returns the API of the cluster's APIServices.
    pub(super) fn api_services(&self) -> Api<APIService> {
        self.cluster.api_services()
    }
}

/// Parses a URL. The return type is generic, so that callers need not name the types of the crate `kube`.
fn uri<T: std::str::FromStr>(url: &str) -> Result<T, SwitchError> {
    url.parse().map_err(|_| failed(url, "not a URL"))
}

/// Returns the client configuration for a replica. The client authenticates as the user in the kubeconfig.
fn of_replica(config: &Config, url: &str, service: &APIService) -> Result<Config, SwitchError> {
    let spec = service.spec.as_ref();
    let (Some(name), Some(bundle)) =
        (spec.and_then(|spec| spec.service.as_ref()), spec.and_then(|s| s.ca_bundle.as_ref()))
    else {
        return Err(SwitchError("the APIService names no Service and caBundle, so replicas cannot be verified".into()));
    };
    let authorities = CertificateDer::pem_slice_iter(&bundle.0).map(|cert| cert.map(|cert| cert.to_vec()));
    let authorities = authorities.collect::<Result<Vec<_>, _>>().map_err(|error| failed("caBundle", error))?;
    let (service, namespace) =
        (name.name.as_deref().unwrap_or_default(), name.namespace.as_deref().unwrap_or_default());
    let mut replica = Config::new(uri(url)?);
    replica.root_cert = Some(authorities);
    replica.tls_server_name = Some(format!("{service}.{namespace}.svc"));
    replica.auth_info = config.auth_info.clone();
    Ok(replica)
}

/// Returns the URLs of all kube-apiservers, from the EndpointSlices of the Service `kubernetes`.
async fn urls_of_apiservers(cluster: &Server) -> Result<Vec<String>, SwitchError> {
    let slices: Api<EndpointSlice> = Api::namespaced(cluster.client.clone(), "default");
    let found = slices.list(&ListParams::default().labels(KUBERNETES_SLICES)).await;
    let mut urls = Vec::new();
    for slice in found.map_err(|error| cluster.failed(&error))? {
        let port = slice.ports.unwrap_or_default().first().and_then(|port| port.port).unwrap_or(443);
        let addresses = slice.endpoints.into_iter().flatten().flat_map(|endpoint| endpoint.addresses);
        urls.extend(addresses.map(|address| match address.contains(':') {
            true => format!("https://[{address}]:{port}"),
            false => format!("https://{address}:{port}"),
        }));
    }
    if urls.is_empty() {
        return Err(SwitchError("the Service kubernetes has no addresses: name each --kube-apiserver".to_owned()));
    }
    Ok(urls)
}
