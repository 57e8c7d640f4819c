//! Over a real socket: many requests on one connection, slow and idle peers, and the end of the server.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rea::http::listen::{self, Rules};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use crate::bed::{Bed, code, later};

const ASK: &[u8] = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";

async fn answer(stream: &mut TcpStream) -> String {
    let mut bytes = [0; 4096];
    let n =
        tokio::time::timeout(Duration::from_secs(5), stream.read(&mut bytes)).await.expect("an answer").unwrap_or(0);
    String::from_utf8_lossy(&bytes[..n]).into_owned()
}

fn rules(connections: usize) -> Rules {
    Rules { connections, ..Rules::default() }
}

/// The API on a socket, until dropped.
struct Door {
    address: SocketAddr,
    ending: CancellationToken,
}

impl Door {
    async fn open(bed: &Bed, rules: Rules) -> Door {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, ending) = (listener.local_addr().unwrap(), CancellationToken::new());
        tokio::spawn(listen::serve(listener, bed.api.clone(), rules, ending.clone()));
        Door { address, ending }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// A connection that has sent this.
    async fn says(&self, text: &str) -> TcpStream {
        let mut stream = self.connect().await;
        stream.write_all(text.as_bytes()).await.unwrap();
        stream
    }

    /// The answer to one request over a connection of its own.
    async fn ask(&self, method: &str, path: &str, body: &str) -> String {
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\n\r\n{body}"
        );
        rest(&mut self.says(&head).await).await
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.ending.cancel();
    }
}

/// Everything until the server closes.
async fn rest(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    // A reset counts as closed.
    let _ = tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut bytes)).await.expect("it closes");
    String::from_utf8_lossy(&bytes).into_owned()
}

/// As many descriptors as this machine lets a test have.
fn raise_descriptors() -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// I16: peers that hold connections and do nothing with them disturb neither a look at the server nor jobs; peers whose
/// bodies trickle are let go.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i16_thousands_of_idle_peers_and_slow_bodies_disturb_nobody() {
    // Each connection has two ends here.
    let peers = usize::try_from((raise_descriptors() / 2).saturating_sub(400)).unwrap().min(2_000);
    assert!(peers >= 200, "this machine lets a test have too few descriptors");
    let bed = Bed::new().await;
    let door = Door::open(&bed, rules(256)).await;
    let head =
        "POST /enqueue HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 4000\r\n\r\n{";
    let mut slow = Vec::new();
    for _ in 0..50 {
        slow.push(door.says(head).await);
    }
    let mut idle = Vec::new();
    for n in 0..peers {
        // Some say nothing, some half a head.
        idle.push(door.says(if n % 2 == 0 { "" } else { "GET /status HTTP/1.1\r\nHo" }).await);
    }
    for _ in 0..20 {
        let begun = Instant::now();
        assert!(door.ask("GET", "/status", "").await.starts_with("HTTP/1.1 200"));
        let made = door.ask("POST", "/enqueue", r#"{"task":"echo","args":[7]}"#).await;
        assert!(made.starts_with("HTTP/1.1 201"), "{made}");
        let id = made.split("\"task_id\":\"").nth(1).unwrap().split('"').next().unwrap();
        let ended = door.ask("GET", &format!("/jobs/{id}?wait=10"), "").await;
        assert!(ended.contains("\"state\":\"success\""), "{ended}");
        assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    }
    for mut stream in slow {
        assert!(rest(&mut stream).await.contains("\"slow_body\""));
    }
    drop(idle);
    bed.end().await;
}

/// Slow heads and connections without a request end in time; so does who does not take its answer.
#[tokio::test]
async fn f60_who_sends_or_takes_too_slowly_is_let_go() {
    let bed = Bed::new().await;
    let quick = Duration::from_millis(300);
    let door = Door::open(&bed, Rules { head_timeout: quick, write_timeout: quick, ..Rules::default() }).await;
    let mut half = door.says("GET /status HTTP/1.1\r\nHo").await;
    rest(&mut half).await;
    let mut kept = door.says("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    assert_eq!(rest(&mut kept).await.matches("HTTP/1.1 ").count(), 1, "then it was idle");
    let id = bed.enqueue(serde_json::json!({"task": "echo", "args": ["x".repeat(1_000_000)]})).await;
    bed.reach(&id, "success").await;
    let many = 20;
    let ask = format!("GET /jobs/{id} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let mut deaf = door.says(&ask.repeat(many)).await;
    tokio::time::sleep(quick * 5).await;
    let answers = rest(&mut deaf).await.matches("HTTP/1.1 200").count();
    assert!((1..many).contains(&answers), "{answers} answers");
    bed.end().await;
}

/// When every connection is at work, the next peer is told so; waits leave connections to others.
#[tokio::test]
async fn i16_a_full_house_says_so() {
    let bed = Bed::new().await;
    let id = bed.enqueue(later("echo")).await;
    let door = Door::open(&bed, rules(4)).await;
    let wait = format!("GET /jobs/{id}?wait=20 HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let mut waiting = Vec::new();
    for _ in 0..4 {
        waiting.push(door.says(&wait).await);
    }
    let mut refused = String::new();
    for _ in 0..100 {
        refused = door.ask("GET", "/status", "").await;
        if refused.starts_with("HTTP/1.1 503") {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(refused.contains("retry-after: 1") && refused.contains("\"too_many_connections\""), "{refused}");
    drop(waiting);
    let bed2 = Bed::new().await;
    bed2.shared.set_held(1);
    let id = bed2.enqueue(later("echo")).await;
    let (path, shared) = (format!("/jobs/{id}?wait=20"), bed2.api.clone());
    let first = tokio::spawn(async move {
        let request = axum::http::Request::get(path).header("host", "localhost");
        shared.answer(request.body(axum::body::Body::empty()).unwrap()).await
    });
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(code(&bed2.get(&format!("/jobs/{id}?wait=5")).await), (503, "too_many_waits"));
    assert_eq!(bed2.text("/events").await.0, 503);
    assert_eq!(bed2.get(&format!("/jobs/{id}")).await.0, 200, "who does not wait is answered");
    first.abort();
    let _ = first.await;
    assert_eq!(bed2.get(&format!("/jobs/{id}?wait=0")).await.0, 200);
    bed.end().await;
    bed2.end().await;
}

/// I16: what requests hold in memory is bounded in all, and given back.
#[tokio::test]
async fn i16_the_bodies_of_all_requests_are_bounded_together() {
    let bed = Bed::new().await;
    let door = Door::open(&bed, Rules { body_bytes: 1_000, ..Rules::default() }).await;
    let job = |bytes: usize| format!("{{\"task\":\"echo\",\"args\":[\"{}\"]}}", "x".repeat(bytes));
    for _ in 0..3 {
        assert!(door.ask("POST", "/enqueue", &job(900)).await.starts_with("HTTP/1.1 201"));
    }
    let refused = door.ask("POST", "/enqueue", &job(1_100)).await;
    assert!(refused.starts_with("HTTP/1.1 503") && refused.contains("\"bodies_full\""), "{refused}");
    assert!(refused.contains("retry-after: 1"), "{refused}");
    assert!(door.ask("POST", "/enqueue", &job(900)).await.starts_with("HTTP/1.1 201"));
    bed.end().await;
}

/// Waits hold no bodies: however many there are, and however large their questions were, jobs come in.
#[tokio::test]
async fn i16_waits_leave_the_room_for_bodies_to_others() {
    let bed = Bed::new().await;
    let id = bed.enqueue(later("echo")).await;
    let door = Door::open(&bed, Rules { body_bytes: 1_000, ..Rules::default() }).await;
    let question = format!("{{\"task_ids\":[\"{id}\"],\"wait\":20{:700}}}", "");
    let head = "POST /jobs/wait HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
    let ask = format!("{head}Content-Length: {}\r\n\r\n{question}", question.len());
    let mut waiting = Vec::new();
    for _ in 0..5 {
        let mut stream = door.says(&ask).await;
        let early = tokio::time::timeout(Duration::from_millis(100), stream.read_u8()).await;
        assert!(early.is_err(), "it waits: {early:?}");
        waiting.push(stream);
    }
    let job = format!("{{\"task\":\"echo\",\"args\":[\"{}\"]}}", "x".repeat(900));
    let made = door.ask("POST", "/enqueue", &job).await;
    assert!(made.starts_with("HTTP/1.1 201"), "{made}");
    drop(waiting);
    bed.end().await;
}

/// A full house lets go who is idle, and nobody whose answer is still on its way.
#[tokio::test]
async fn i16_an_answer_that_is_read_slowly_is_not_cut_off_for_others() {
    let bed = Bed::new().await;
    let mut ids = Vec::new();
    for _ in 0..8 {
        ids.push(bed.enqueue(serde_json::json!({"task": "echo", "args": ["x".repeat(1_000_000)]})).await);
    }
    for id in &ids {
        bed.reach(id, "success").await;
    }
    let door = Door::open(&bed, rules(1)).await;
    let question = serde_json::json!({ "task_ids": ids }).to_string();
    let head = "POST /jobs/wait HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
    let mut slow = door.says(&format!("{head}Content-Length: {}\r\n\r\n{question}", question.len())).await;
    let mut bytes = vec![0; 1024];
    slow.read_exact(&mut bytes).await.unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    for _ in 0..3 {
        let refused = door.ask("GET", "/healthz", "").await;
        assert!(refused.contains("\"too_many_connections\""), "{refused}");
    }
    let head = String::from_utf8_lossy(&bytes).into_owned();
    let (head, begun) = head.split_once("\r\n\r\n").unwrap();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    let mut left = vec![0; length.parse::<usize>().unwrap() - begun.len()];
    slow.read_exact(&mut left).await.expect("the whole answer");
    assert!(left.len() > 6_000_000 && left.ends_with(b"}"), "{}", left.len());
    // Now it is idle.
    let mut given = String::new();
    for _ in 0..100 {
        given = door.ask("GET", "/healthz", "").await;
        if given.starts_with("HTTP/1.1 200") {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(given.starts_with("HTTP/1.1 200"), "{given}");
    bed.end().await;
}

/// What a client has asked for is done to its end also when the client does not wait for the answer, whenever it goes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_whose_client_goes_away_stops_the_job() {
    let bed = Bed::new().await;
    let door = Door::open(&bed, Rules::default()).await;
    for round in 0..12 {
        let mut ids = Vec::new();
        for _ in 0..4 {
            ids.push(bed.enqueue(serde_json::json!({"task": "heed", "timeout": null})).await);
        }
        for (n, id) in ids.iter().enumerate() {
            bed.reach(id, "running").await;
            let head =
                format!("POST /jobs/{id}/cancel HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n");
            let stream = door.says(&format!("{head}Content-Length: 2\r\n\r\n{{}}")).await;
            tokio::time::sleep(Duration::from_micros((round * 4 + n as u64) * 40)).await;
            drop(stream);
        }
        for id in &ids {
            bed.reach(id, "cancelled").await;
        }
    }
    bed.end().await;
}

/// A body whose client goes away in the middle is nothing to act on: what has come may look whole.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_a_body_stores_nothing() {
    let bed = Bed::new().await;
    let door = Door::open(&bed, Rules::default()).await;
    let line = "{\"task\":\"echo\"}\n";
    let head = "POST /jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\n";
    for _ in 0..20 {
        drop(door.says(&format!("{head}Content-Length: {}\r\n\r\n{line}", line.len() * 2)).await);
        let chunk = format!("{head}Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{line}\r\n", line.len());
        drop(door.says(&chunk).await);
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(bed.get("/jobs").await.1["total"], 0);
    bed.end().await;
}

/// Heads have their bounds too.
#[tokio::test]
async fn f61_heads_over_their_bounds_are_refused() {
    let bed = Bed::new().await;
    let door = Door::open(&bed, Rules::default()).await;
    let fields: String = (0..100).map(|n| format!("X-{n}: 1\r\n")).collect();
    let long = "x".repeat(200 << 10);
    for (what, text, status) in [
        ("fields", format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n"), "431"),
        ("a field", format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: {long}\r\n\r\n"), "431"),
        ("a line", format!("GET /{long} HTTP/1.1\r\nHost: localhost\r\n\r\n"), "4"),
    ] {
        let answer = rest(&mut door.says(&text).await).await;
        assert!(answer.is_empty() || answer.starts_with(&format!("HTTP/1.1 {status}")), "{what}: {answer}");
    }
    assert!(door.ask("GET", "/healthz", "").await.starts_with("HTTP/1.1 200"));
    bed.end().await;
}

/// F60: a slow head holds its own connection only, and in a full house it makes room.
#[tokio::test]
async fn f60_slow_peers_hold_nobody_up_and_the_end_comes_in_bound() {
    let bed = Bed::new().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let ending = CancellationToken::new();
    let serving = tokio::spawn(listen::serve(listener, bed.api.clone(), rules(4), ending.clone()));
    let mut slow = Vec::new();
    for _ in 0..3 {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHo").await.unwrap();
        slow.push(stream);
    }
    let mut good = TcpStream::connect(address).await.unwrap();
    for _ in 0..3 {
        good.write_all(ASK).await.unwrap();
        assert!(answer(&mut good).await.starts_with("HTTP/1.1 200 OK"));
    }
    // The fifth gets the place of the slowest.
    let mut fifth = TcpStream::connect(address).await.unwrap();
    fifth.write_all(ASK).await.unwrap();
    assert!(answer(&mut fifth).await.starts_with("HTTP/1.1 200 OK"));
    assert_eq!(answer(&mut slow[0]).await, "");
    // F61: an announced length over the limit is refused before the body is sent.
    fifth
        .write_all(b"POST /enqueue HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 99999999999\r\n\r\n")
        .await
        .unwrap();
    assert!(answer(&mut fifth).await.starts_with("HTTP/1.1 413"));
    let begun = Instant::now();
    ending.cancel();
    serving.await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    assert!(TcpStream::connect(address).await.is_err());
    bed.end().await;
}
