//! From a URL to a connection: the name is looked up here, each address is judged, and what was judged is connected to.
//!
//! Nothing looks the name up a second time, so a name that changes its mind between the check and the connection gains
//! nothing. There is no proxy, no pool and no redirect: one connection for one request.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::address::Allowed;
use super::trouble::Trouble;
use super::url::CallbackUrl;

/// Addresses that are tried for one callback.
const ADDRESSES_MAX: usize = 8;
/// An address that swallows everything must leave time for the next one.
const ADDRESS_TIMEOUT: Duration = Duration::from_secs(2);

/// Looks names up.
pub trait Resolve: Send + Sync {
    /// The addresses of a host.
    fn resolve<'a>(
        &'a self,
        host: &'a str,
        port: u16,
    ) -> Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send + 'a>>;
}

/// The system's own way: hosts file, then DNS.
#[derive(Debug)]
pub struct SystemResolver;

impl Resolve for SystemResolver {
    fn resolve<'a>(
        &'a self,
        host: &'a str,
        port: u16,
    ) -> Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send + 'a>> {
        Box::pin(async move { Ok(tokio::net::lookup_host((host, port)).await?.collect()) })
    }
}

/// A connection, encrypted or not.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Makes connections.
pub(super) struct Connector {
    allowed: Allowed,
    resolver: Arc<dyn Resolve>,
    /// Read at the first callback over TLS: the system's certificates take some milliseconds.
    tls: OnceLock<Result<Arc<ClientConfig>, String>>,
}

impl Connector {
    pub(super) fn new(allowed: Allowed, resolver: Arc<dyn Resolve>) -> Connector {
        Connector { allowed, resolver, tls: OnceLock::new() }
    }

    /// With these certificates of authorities instead of the system's.
    #[cfg(test)]
    pub(super) fn trusting(self, roots: RootCertStore) -> Connector {
        let _ = self.tls.set(Ok(client_config(roots)));
        self
    }

    /// Connects to where `url` points. The caller bounds the time.
    pub(super) async fn connect(&self, url: &CallbackUrl) -> Result<Box<dyn Stream>, Trouble> {
        let tcp = self.connect_tcp(url).await?;
        if !url.is_tls() {
            return Ok(Box::new(tcp));
        }
        let config = self.tls.get_or_init(|| system_roots().map(client_config));
        let config = config.as_ref().map_err(|why| Trouble::passing("NoCertificates", why.clone()))?;
        let name = ServerName::try_from(url.host().to_owned())
            .map_err(|_| Trouble::fatal("BadHost", format!("{} is no name that a certificate can have", url.host())))?;
        let tls = TlsConnector::from(Arc::clone(config)).connect(name, tcp).await;
        let tls = tls.map_err(|error| Trouble::passing("TlsError", format!("{url}: {error}")))?;
        Ok(Box::new(tls))
    }

    async fn connect_tcp(&self, url: &CallbackUrl) -> Result<TcpStream, Trouble> {
        let unreachable = |why: String| Trouble::passing("ConnectionError", format!("{url} can't be reached: {why}"));
        let found = self.resolver.resolve(url.host(), url.port()).await.map_err(|e| unreachable(e.to_string()))?;
        let mut last = None;
        let mut refused = None;
        for address in found.into_iter().take(ADDRESSES_MAX) {
            if let Some(what) = self.allowed.refuses(address.ip()) {
                refused = Some((address.ip(), what));
                continue;
            }
            match tokio::time::timeout(ADDRESS_TIMEOUT, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) => last = Some(error.to_string()),
                Err(_) => last = Some(format!("{address} does not answer")),
            }
        }
        match (last, refused) {
            (Some(error), _) => Err(unreachable(error)),
            (None, Some((address, what))) => Err(Trouble::fatal(
                "AddressRefused",
                format!(
                    "{} is at {address}, {what}: callbacks go to public addresses, and to those in serve.callback_allow",
                    url.host()
                ),
            )),
            (None, None) => Err(unreachable("its name has no address".to_owned())),
        }
    }
}

fn client_config(roots: RootCertStore) -> Arc<ClientConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.expect("ring has what TLS 1.2 and 1.3 need");
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Arc::new(config)
}

/// The certificates of authorities that this machine trusts.
fn system_roots() -> Result<RootCertStore, String> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let why = found.errors.first().map_or("none found".to_owned(), ToString::to_string);
        return Err(format!(
            "this machine has no certificates of authorities ({why}); install ca-certificates, or name a file in SSL_CERT_FILE, \
             and start the server again"
        ));
    }
    Ok(roots)
}
