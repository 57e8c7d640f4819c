//! Callbacks to real sockets: what is sent, what each answer means, and where no connection is ever made.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::pin::Pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::callback::sign::{Secrets, secret_text};

/// A secret in a file of its own.
struct Bed {
    _dir: tempfile::TempDir,
    file: PathBuf,
    secrets: Secrets,
}

fn bed() -> Bed {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("secret");
    let text = secret_text(&std::array::from_fn(|i| u8::try_from(i * 7 % 251).unwrap()));
    let mut opened = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&file).unwrap();
    std::io::Write::write_all(&mut opened, text.as_bytes()).unwrap();
    Bed { _dir: dir, file, secrets: Secrets::parse(&text).unwrap() }
}

impl Bed {
    fn sender(&self, allow: &[&str]) -> Sender {
        Sender::new(self.file.clone(), Allowed::parse(allow).unwrap())
    }
}

fn message(body: &str) -> Message {
    Message { id: "msg_1".to_owned(), at: 1_700_000_000, body: body.as_bytes().to_vec() }
}

/// One request, as it came: its head in small letters, and its body.
type Got = (String, Vec<u8>);

async fn read_request(stream: &mut (impl AsyncRead + Unpin)) -> Got {
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let n = stream.read(&mut piece).await.unwrap();
        bytes.extend_from_slice(&piece[..n]);
        let Some(end) = bytes.windows(4).position(|w| w == b"\r\n\r\n") else { continue };
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
        let length = head.to_ascii_lowercase();
        let length = length.lines().find_map(|l| l.strip_prefix("content-length: ")?.parse::<usize>().ok()).unwrap();
        if bytes.len() >= end + 4 + length {
            return (head, bytes[end + 4..].to_vec());
        }
    }
}

async fn answer_one(mut stream: impl AsyncRead + AsyncWrite + Unpin, answer: String) -> Got {
    let got = read_request(&mut stream).await;
    stream.write_all(answer.as_bytes()).await.unwrap();
    let _ = stream.shutdown().await;
    got
}

/// A receiver that answers one request with these words.
async fn receiver(answer: &str) -> (SocketAddr, tokio::task::JoinHandle<Got>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let answer = answer.to_owned();
    (address, tokio::spawn(async move { answer_one(listener.accept().await.unwrap().0, answer).await }))
}

fn url(text: &str) -> CallbackUrl {
    CallbackUrl::parse(text).unwrap()
}

/// What a receiver's answer comes to.
async fn sent_to(answer: &str) -> Result<u16, Trouble> {
    let (address, _got) = receiver(answer).await;
    bed().sender(&["127.0.0.1"]).send(&url(&format!("http://{address}/hook")), message("{}")).await
}

#[tokio::test]
async fn a_callback_is_one_signed_post() {
    let bed = bed();
    let (address, got) = receiver("HTTP/1.1 204 No Content\r\n\r\n").await;
    let to = url(&format!("http://{address}/hook?a=1"));
    assert_eq!(bed.sender(&["127.0.0.1"]).send(&to, message("{\"state\":\"success\"}")).await, Ok(204));
    let (head, body) = got.await.unwrap();
    assert_eq!(body, b"{\"state\":\"success\"}");
    let (line, fields) = head.split_once("\r\n").unwrap();
    assert_eq!(line, "POST /hook?a=1 HTTP/1.1");
    let fields: HashMap<&str, &str> = fields.lines().filter_map(|field| field.split_once(": ")).collect();
    assert_eq!(fields["host"], address.to_string());
    assert_eq!((fields["content-type"], fields["connection"]), ("application/json", "close"));
    assert_eq!((fields["webhook-id"], fields["webhook-timestamp"]), ("msg_1", "1700000000"));
    assert_eq!(fields["webhook-signature"], bed.secrets.sign("msg_1", 1_700_000_000, &body));
    assert!(fields["user-agent"].starts_with("rea/"));
}

#[tokio::test]
async fn each_answer_is_taken_tried_again_or_given_up() {
    for (status, passing) in [
        ("200 OK", None),
        ("202 Accepted", None),
        ("299 Fine", None),
        ("300 Multiple Choices", Some(false)),
        ("304 Not Modified", Some(false)),
        ("400 Bad Request", Some(false)),
        ("401 Unauthorized", Some(false)),
        ("404 Not Found", Some(false)),
        ("408 Request Timeout", Some(true)),
        ("410 Gone", Some(false)),
        ("425 Too Early", Some(true)),
        ("429 Too Many Requests", Some(true)),
        ("500 Internal Server Error", Some(true)),
        ("502 Bad Gateway", Some(true)),
        ("503 Service Unavailable", Some(true)),
        ("999 What", Some(false)),
    ] {
        let sent = sent_to(&format!("HTTP/1.1 {status}\r\ncontent-length: 6\r\n\r\nreason")).await;
        assert_eq!(sent.as_ref().err().map(|trouble| trouble.passing), passing, "{status}");
        if let Err(trouble) = sent {
            assert!(trouble.message.contains(&status[..3]), "{trouble:?}");
            assert!(trouble.message.contains("reason") || status.starts_with('3'), "{trouble:?}");
        }
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let (inner, inner_got) = receiver("HTTP/1.1 200 OK\r\n\r\n").await;
    let to = format!("HTTP/1.1 302 Found\r\nlocation: http://{inner}/\r\ncontent-length: 0\r\n\r\n");
    let trouble = sent_to(&to).await.unwrap_err();
    assert_eq!((trouble.kind, trouble.passing), ("Redirected", false));
    assert!(trouble.message.contains("not followed"), "{}", trouble.message);
    assert!(!inner_got.is_finished());
}

#[tokio::test]
async fn the_receiver_may_ask_for_time_but_not_for_ever() {
    let after = async |value: &str| {
        let answer = format!("HTTP/1.1 503 Busy\r\nretry-after: {value}\r\ncontent-length: 0\r\n\r\n");
        sent_to(&answer).await.unwrap_err().after.map(|after| after.as_secs())
    };
    assert_eq!(after("7").await, Some(7));
    assert_eq!(after("999999999").await, Some(3600));
    assert_eq!(after("Tue, 31 Dec 2126 23:59:59 GMT").await, Some(3600));
    assert_eq!(after("Sun, 06 Nov 1994 08:49:37 GMT").await, Some(0));
    assert_eq!(after("soon").await, None);
}

#[tokio::test]
async fn of_an_answer_no_more_than_its_beginning_is_kept_and_on_one_line() {
    let long = format!("HTTP/1.1 500 Oh\r\n\r\nfirst\r\nsecond\x1b[31m{}", "x".repeat(1 << 20));
    let trouble = sent_to(&long).await.unwrap_err();
    assert!(trouble.message.contains("first second [31mxxx"), "{}", &trouble.message[..200]);
    assert!(trouble.message.len() < ANSWER_MAX + 200, "{} bytes", trouble.message.len());
}

#[tokio::test]
async fn what_is_no_http_and_who_hangs_up_is_tried_again() {
    for answer in ["", "SSH-2.0-OpenSSH_9.6\r\n", "HTTP/1.1 200"] {
        let trouble = sent_to(answer).await.unwrap_err();
        assert_eq!((trouble.kind, trouble.passing), ("ConnectionError", true), "{answer:?}: {trouble:?}");
    }
    let endless = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "x".repeat(1 << 20));
    assert!(sent_to(&endless).await.unwrap_err().passing);
}

#[tokio::test]
async fn a_closed_port_and_an_unknown_name_are_tried_again() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let bed = bed();
    let sender = bed.sender(&["127.0.0.1"]);
    for to in [format!("http://{free}/"), "http://there-is-no-such-name.invalid/".to_owned()] {
        let trouble = sender.send(&url(&to), message("{}")).await.unwrap_err();
        assert_eq!((trouble.kind, trouble.passing), ("ConnectionError", true), "{to}: {trouble:?}");
    }
}

#[tokio::test]
async fn a_receiver_that_says_nothing_or_never_ends_holds_nothing_for_long() {
    let bed = bed();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        for endless in [false, true] {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                read_request(&mut stream).await;
                if !endless {
                    std::future::pending::<()>().await;
                }
                while stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await.is_ok() {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            });
        }
    });
    for _ in 0..2 {
        let begun = Instant::now();
        let sender = bed.sender(&["127.0.0.1"]).within(Duration::from_secs(1), Duration::from_millis(300));
        let trouble = sender.send(&url(&format!("http://{address}/")), message("{}")).await.unwrap_err();
        assert_eq!((trouble.kind, trouble.passing), ("Timeout", true), "{trouble:?}");
        assert!(begun.elapsed() < Duration::from_secs(5));
    }
}

#[tokio::test]
async fn no_connection_is_made_to_a_private_address_in_any_spelling() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let bed = bed();
    let sender = bed.sender(&["10.0.0.0/8"]);
    for host in [
        "127.0.0.1",
        "localhost",
        "127.1",
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "0",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
    ] {
        let trouble = sender.send(&url(&format!("http://{host}:{port}/")), message("{}")).await.unwrap_err();
        // Some systems don't take the numbers for an address at all.
        assert!(matches!(trouble.kind, "AddressRefused" | "ConnectionError"), "{host}: {trouble:?}");
        assert!(trouble.kind != "AddressRefused" || trouble.message.contains("serve.callback_allow"), "{trouble:?}");
    }
    let came = tokio::time::timeout(Duration::from_millis(200), listener.accept()).await;
    assert!(came.is_err(), "a connection was made");
}

/// A name server that changes its mind with each question.
struct Rebinding {
    answers: Mutex<Vec<Vec<SocketAddr>>>,
    asked: AtomicUsize,
}

impl Resolve for Rebinding {
    fn resolve<'a>(
        &'a self,
        _: &'a str,
        _: u16,
    ) -> Pin<Box<dyn Future<Output = std::io::Result<Vec<SocketAddr>>> + Send + 'a>> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let answer = self.answers.lock().unwrap().remove(0);
        Box::pin(std::future::ready(Ok(answer)))
    }
}

fn rebinding(bed: &Bed, allow: &[&str], answers: Vec<Vec<SocketAddr>>) -> (Sender, Arc<Rebinding>) {
    let resolver = Arc::new(Rebinding { answers: Mutex::new(answers), asked: AtomicUsize::new(0) });
    let sender = Sender::resolving(bed.file.clone(), Allowed::parse(allow).unwrap(), Arc::clone(&resolver) as _);
    (sender.within(Duration::from_millis(300), Duration::from_secs(2)), resolver)
}

/// The name is good when it is first asked about, and this machine's own a moment later.
#[tokio::test]
async fn a_name_that_changes_its_mind_gains_nothing() {
    let bed = bed();
    let inner = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let bad = inner.local_addr().unwrap();
    // TEST-NET: allowed here so that it counts as public, and nothing answers there.
    let good: SocketAddr = ([192, 0, 2, 1], bad.port()).into();
    let (sender, resolver) = rebinding(&bed, &["192.0.2.0/24"], vec![vec![good], vec![bad]]);
    let to = url(&format!("http://rebind.example:{}/", bad.port()));
    assert!(sender.send(&to, message("{}")).await.unwrap_err().passing);
    assert_eq!(resolver.asked.load(Ordering::SeqCst), 1, "one look for one connection");
    let trouble = sender.send(&to, message("{}")).await.unwrap_err();
    assert_eq!((trouble.kind, trouble.passing), ("AddressRefused", false));
    assert!(tokio::time::timeout(Duration::from_millis(100), inner.accept()).await.is_err());
}

#[tokio::test]
async fn of_several_addresses_only_the_allowed_ones_are_connected_to() {
    let bed = bed();
    let inner = TcpListener::bind("127.0.0.2:0").await.unwrap();
    let (good, got) = receiver("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    let (sender, _) = rebinding(&bed, &["127.0.0.1"], vec![vec![inner.local_addr().unwrap(), good]]);
    let to = url(&format!("http://two.example:{}/", good.port()));
    assert_eq!(sender.send(&to, message("{}")).await, Ok(200));
    assert!(got.await.unwrap().0.contains(&format!("host: two.example:{}", good.port())));
    assert!(tokio::time::timeout(Duration::from_millis(100), inner.accept()).await.is_err());
}

#[tokio::test]
async fn a_secret_that_is_changed_counts_from_the_next_callback_and_a_lost_one_is_waited_for() {
    let bed = bed();
    std::fs::remove_file(&bed.file).unwrap();
    let (address, _got) = receiver("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    let (sender, to) = (bed.sender(&["127.0.0.1"]), url(&format!("http://{address}/")));
    let trouble = sender.send(&to, message("{}")).await.unwrap_err();
    assert_eq!((trouble.kind, trouble.passing), ("NoSecret", true));
    let mut options = std::fs::OpenOptions::new();
    let mut opened = options.write(true).create_new(true).mode(0o600).open(&bed.file).unwrap();
    std::io::Write::write_all(&mut opened, secret_text(&std::array::from_fn(|i| i as u8)).as_bytes()).unwrap();
    assert_eq!(sender.send(&to, message("{}")).await, Ok(200));
}

/// A receiver with a certificate for `localhost` that nobody knows, and the authority that would vouch for it.
async fn tls_receiver() -> (SocketAddr, rustls::RootCertStore, tokio::task::JoinHandle<Option<Got>>) {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let got = tokio::spawn(async move {
        let stream = listener.accept().await.unwrap().0;
        let stream = tokio_rustls::TlsAcceptor::from(Arc::new(config)).accept(stream).await.ok()?;
        Some(answer_one(stream, "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".to_owned()).await)
    });
    (address, roots, got)
}

#[tokio::test]
async fn over_tls_the_certificate_must_be_the_hosts_own() {
    let bed = bed();
    let (address, roots, got) = tls_receiver().await;
    let to = url(&format!("https://localhost:{}/hook", address.port()));
    let sender = bed.sender(&["127.0.0.0/8", "::1"]).trusting(roots);
    assert_eq!(sender.send(&to, message("{}")).await, Ok(200));
    assert!(got.await.unwrap().unwrap().0.starts_with("POST /hook "));

    // Known authority, other name.
    let (address, roots, got) = tls_receiver().await;
    let sender = bed.sender(&["127.0.0.0/8"]).trusting(roots);
    let trouble = sender.send(&url(&format!("https://{address}/hook")), message("{}")).await.unwrap_err();
    assert_eq!((trouble.kind, trouble.passing), ("TlsError", true), "{trouble:?}");
    assert_eq!(got.await.unwrap(), None);

    // Unknown authority.
    let (address, _, got) = tls_receiver().await;
    let others = tls_receiver().await.1;
    let sender = bed.sender(&["127.0.0.0/8", "::1"]).trusting(others);
    let to = url(&format!("https://localhost:{}/hook", address.port()));
    assert_eq!(sender.send(&to, message("{}")).await.unwrap_err().kind, "TlsError");
    assert_eq!(got.await.unwrap(), None);
}
