//! Reads the parts of a kubeconfig that the load generator needs: the server of the current context, the certificate
//! authorities of this server, and the client certificate of the user.

use base64::Engine as _;
use kube::config::{AuthInfo, Cluster, Kubeconfig, KubeconfigError};
use secrecy::ExposeSecret;
use std::path::Path;

/// The address of a server and the credentials for it, from a kubeconfig or from flags. Byte fields are PEM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Access {
    /// URL of the server: `https://host:port`.
    pub(crate) server: String,
    /// Name in the server's certificate, if that name differs from the host in the URL.
    pub(crate) tls_server_name: Option<String>,
    /// Certificate authorities that may have issued the server's certificate.
    pub(crate) ca: Option<Vec<u8>>,
    /// Client certificate and its key.
    pub(crate) client: Option<(Vec<u8>, Vec<u8>)>,
}

/// Reads a kubeconfig. Errors are sentences for the user. They never quote a file that is no kubeconfig: it may be a
/// key or another secret. From a kubeconfig they quote only the names of its entries and files.
pub(crate) fn read(path: &Path) -> Result<Access, String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
    let folder = path.parent().unwrap_or_else(|| Path::new("."));
    parse(&text, folder).map_err(|e| format!("{}: {e}", path.display()))
}

/// Parses the text of a kubeconfig. Names of other files in it are relative to `folder`.
fn parse(text: &str, folder: &Path) -> Result<Access, String> {
    let config = Kubeconfig::from_yaml(text).map_err(|error| no_kubeconfig(&error))?;
    let none = |what: &str, name: &str| format!("has no {what} {name:?}");
    let current = config.current_context.unwrap_or_default();
    let context = config.contexts.into_iter().find(|named| named.name == current).and_then(|named| named.context);
    let context = context.ok_or_else(|| none("context", &current))?;
    let cluster = config.clusters.into_iter().find(|named| named.name == context.cluster);
    let cluster = cluster.and_then(|named| named.cluster).ok_or_else(|| none("cluster", &context.cluster))?;
    let user = context.user.unwrap_or_default();
    let user = match config.auth_infos.into_iter().find(|named| named.name == user) {
        Some(named) => named.auth_info.unwrap_or_default(),
        None => return Err(none("user", &user)),
    };
    if let Some(entry) = unused(&user, &cluster) {
        return Err(format!("has {entry:?}, which is not supported: only client certificates are"));
    }
    let key = user.client_key_data.as_ref().map(ExposeSecret::expose_secret);
    let key = bytes(folder, key, user.client_key.as_deref())?;
    let cert = bytes(folder, user.client_certificate_data.as_deref(), user.client_certificate.as_deref())?;
    let client = match (cert, key) {
        (Some(cert), Some(key)) => Some((cert, key)),
        (None, None) => None,
        _ => return Err("has a client certificate without its key, or the other way round".to_owned()),
    };
    Ok(Access {
        ca: bytes(folder, cluster.certificate_authority_data.as_deref(), cluster.certificate_authority.as_deref())?,
        server: cluster.server.ok_or("has a cluster without a server")?,
        tls_server_name: cluster.tls_server_name,
        client,
    })
}

/// Describes an error of the parser, without the file's content.
fn no_kubeconfig(error: &KubeconfigError) -> String {
    match error {
        KubeconfigError::Parse(error) => error.location(),
        _ => None,
    }
    .map_or_else(
        || "is no kubeconfig".to_owned(),
        |at| format!("is no kubeconfig: error in line {}, column {}", at.line(), at.column()),
    )
}

/// Returns the name of an unsupported setting in the kubeconfig. If the generator ignored the setting, the server could
/// refuse every request. Or the requests could be sent as another user, or not through the proxy.
fn unused(user: &AuthInfo, cluster: &Cluster) -> Option<&'static str> {
    let entries = [
        ("token", user.token.is_some()),
        ("tokenFile", user.token_file.is_some()),
        ("username", user.username.is_some()),
        ("exec", user.exec.is_some()),
        ("auth-provider", user.auth_provider.is_some()),
        ("as", user.impersonate.is_some()),
        ("proxy-url", cluster.proxy_url.is_some()),
    ];
    entries.into_iter().find_map(|(name, is_there)| is_there.then_some(name))
}

/// Returns the content of a PEM field. Inline data takes precedence over a file, as in client-go.
fn bytes(folder: &Path, data: Option<&str>, file: Option<&str>) -> Result<Option<Vec<u8>>, String> {
    if let Some(data) = data.filter(|d| !d.is_empty()) {
        let decoded = base64::engine::general_purpose::STANDARD.decode(data.trim());
        return decoded.map(Some).map_err(|_| "has data that is no base64".to_owned());
    }
    let Some(file) = file.filter(|f| !f.is_empty()) else { return Ok(None) };
    let path = folder.join(file);
    std::fs::read(&path).map(Some).map_err(|e| format!("names {}, which cannot be read: {e}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "apiVersion: v1
kind: Config
preferences: {}
current-context: b
clusters:
- name: other
  cluster: {server: https://192.0.2.1}
- cluster:
    certificate-authority-data: Q0E=
    server: https://127.0.0.1:8443
  name: local
contexts:
- context:
    cluster: local
    user: admin
    namespace: x
  name: b
users:
- name: admin
  user:
    client-certificate: admin.crt
    client-key-data: S0VZ
";

    #[test]
    fn the_current_context_selects_server_and_credentials() {
        let folder = tempfile::tempdir().expect("folder");
        std::fs::write(folder.path().join("admin.crt"), "CERT").expect("file");
        std::fs::write(folder.path().join("config"), TEXT).expect("file");
        let access = read(&folder.path().join("config")).expect("valid");
        let client = Some((b"CERT".to_vec(), b"KEY".to_vec()));
        let server = "https://127.0.0.1:8443".to_owned();
        assert_eq!(access, Access { server, tls_server_name: None, ca: Some(b"CA".to_vec()), client });
    }

    #[test]
    fn kubeconfig_errors_do_not_reveal_the_content() {
        for text in [
            "root:x:0:0:secret:/root:/bin/sh\nsecret:x:1:1::/:/bin/false\n",
            "-----BEGIN PRIVATE KEY-----\nsecret\n-----END PRIVATE KEY-----\n",
            "current-context: [secret]",
            "secret",
            "a: *secret",
            &TEXT.replace("S0VZ", "secret!"),
            &TEXT.replace("users:\n", "users: secret\nx:\n"),
            &TEXT.replace("user:\n", "user: secret\n    x:\n"),
        ] {
            let words =
                parse(&text.replace("client-certificate: admin.crt", "client-certificate-data: S0VZ"), Path::new("."));
            let words = words.expect_err(text);
            assert!(!words.contains("secret") && !words.contains('\n'), "{words}");
        }
    }

    #[test]
    fn unsupported_entries_are_named() {
        for (from, to, entry) in [
            ("client-certificate: admin.crt", "token: x", "token"),
            ("client-certificate: admin.crt", "tokenFile: x", "tokenFile"),
            ("client-certificate: admin.crt", "exec: {command: x}", "exec"),
            ("client-certificate: admin.crt", "as: x", "as"),
            ("    server: https://127", "    proxy-url: http://x\n    server: https://127", "proxy-url"),
        ] {
            let words = parse(&TEXT.replace(from, to), Path::new(".")).expect_err(entry);
            assert!(words.starts_with(&format!("has {entry:?}, which is not supported")), "{words}");
        }
    }

    #[test]
    fn missing_entries_are_named() {
        let here = Path::new(".");
        let error = |text: &str| parse(text, here).expect_err("must fail");
        assert!(error(TEXT).contains("admin.crt"));
        assert_eq!(error(&TEXT.replace("current-context: b", "current-context: c")), "has no context \"c\"");
        assert_eq!(error(&TEXT.replace("name: local", "name: x")), "has no cluster \"local\"");
        assert_eq!(error(&TEXT.replace("current-context: b", "")), "has no context \"\"");
        assert_eq!(error("- 1"), "is no kubeconfig: error in line 1, column 1");
        assert!(
            error(
                &TEXT
                    .replace("    client-key-data: S0VZ\n", "")
                    .replace("client-certificate: admin.crt", "client-certificate-data: S0VZ")
            )
            .contains("without its key")
        );
    }
}
