//! A small blocking HTTP/1.1 client on one kept-alive connection: for control and for the load of a crash run. Own code,
//! because a general client would cost more than the server it measures.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: String,
}

impl Answer {
    /// The body as JSON; null when it is none.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_default()
    }

    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

/// One connection to one server, opened when needed.
pub(crate) struct Connection {
    /// `host:port`
    address: String,
    patience: Duration,
    stream: Option<BufReader<TcpStream>>,
}

impl Connection {
    /// To the server at `url` (`http://host:port`); an answer may take as long as `patience`.
    pub(crate) fn new(url: &str, patience: Duration) -> Connection {
        let address = url.trim_start_matches("http://").trim_end_matches('/').to_owned();
        Connection { address, patience, stream: None }
    }

    pub(crate) fn get(&mut self, path: &str) -> io::Result<Answer> {
        self.exchange("GET", path, "")
    }

    pub(crate) fn post(&mut self, path: &str, body: &str) -> io::Result<Answer> {
        self.exchange("POST", path, body)
    }

    /// One request, one answer. Never repeated here: whether it was carried out is unknown after an error.
    fn exchange(&mut self, method: &str, path: &str, body: &str) -> io::Result<Answer> {
        let request = request(method, path, &self.address, body);
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => self.connect()?,
        };
        stream.get_mut().write_all(request.as_bytes())?;
        let answer = read_answer(&mut stream)?;
        self.stream = Some(stream);
        Ok(answer)
    }

    fn connect(&self) -> io::Result<BufReader<TcpStream>> {
        let stream = TcpStream::connect(&self.address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(self.patience))?;
        stream.set_write_timeout(Some(self.patience))?;
        Ok(BufReader::new(stream))
    }
}

/// The text of a request.
pub(crate) fn request(method: &str, path: &str, address: &str, body: &str) -> String {
    let length = body.len();
    match method {
        "GET" => format!("GET {path} HTTP/1.1\r\nhost: {address}\r\n\r\n"),
        _ => format!(
            "{method} {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        ),
    }
}

fn read_answer(stream: &mut BufReader<TcpStream>) -> io::Result<Answer> {
    let broken = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    let mut line = String::new();
    let mut next = |line: &mut String| -> io::Result<()> {
        line.clear();
        match stream.read_line(line)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    };
    next(&mut line)?;
    let status = line.split(' ').nth(1).and_then(|s| s.parse().ok()).ok_or_else(|| broken("no status line"))?;
    let mut length = 0;
    loop {
        next(&mut line)?;
        if line.trim_end().is_empty() {
            break;
        }
        let (name, value) = line.split_once(':').ok_or_else(|| broken("no header line"))?;
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().map_err(|_| broken("content-length is no number"))?;
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            return Err(broken("a chunked answer"));
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    Ok(Answer { status, body: String::from_utf8(body).map_err(|_| broken("the body is not UTF-8"))? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn answers_are_read_one_after_another_on_one_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut seen = [0; 4096];
            for body in ["{\"a\":1}", ""] {
                assert!(stream.read(&mut seen).unwrap() > 0);
                let head = format!("HTTP/1.1 201 Created\r\nContent-Length: {}\r\n\r\n{body}", body.len());
                stream.write_all(head.as_bytes()).unwrap();
            }
        });
        let mut connection = Connection::new(&url, Duration::from_secs(5));
        let first = connection.post("/enqueue", "{}").unwrap();
        assert_eq!((first.status, first.json()["a"].as_i64()), (201, Some(1)));
        assert!(connection.get("/status").unwrap().is_success());
        server.join().unwrap();
        assert!(connection.get("/status").is_err());
    }
}
