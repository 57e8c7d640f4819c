//! The lines of a batch, from a file or a pipe: numbered as an editor numbers them, bounded in length, and handed over in
//! pieces by a thread of their own, so that a slow pipe holds up nothing.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};

use sha2::{Digest, Sha256};
use tokio::sync::mpsc;

/// Longest line: what a job of the largest arguments needs, with room.
const LINE_MAX: u64 = 4 << 20;
/// A piece has at most so many lines, or bytes.
const PIECE_LINES: usize = 1000;
const PIECE_BYTES: usize = 1 << 20;
/// So many pieces wait to be taken.
const PIECES: usize = 4;

/// One line that is not blank.
#[derive(Debug)]
pub(super) struct Line {
    /// From 1; blank lines are counted too.
    pub(super) number: u64,
    /// Without its end; `None` = longer than a line may be.
    pub(super) text: Option<Vec<u8>>,
}

/// Reads lines and works out the digest of all that was read.
pub(super) struct Lines<R> {
    reader: R,
    number: u64,
    digest: Sha256,
}

impl<R: BufRead> Lines<R> {
    pub(super) fn new(reader: R) -> Lines<R> {
        Lines { reader, number: 0, digest: Sha256::new() }
    }

    /// The next line that is not blank.
    pub(super) fn next(&mut self) -> io::Result<Option<Line>> {
        loop {
            let mut text = Vec::new();
            let read = (&mut self.reader).take(LINE_MAX + 1).read_until(b'\n', &mut text)?;
            if read == 0 {
                return Ok(None);
            }
            self.number += 1;
            self.digest.update(&text);
            let number = self.number;
            if text.len() as u64 > LINE_MAX && !text.ends_with(b"\n") {
                self.skip_line()?;
                return Ok(Some(Line { number, text: None }));
            }
            // Some editors begin a file with a byte order mark.
            let whole = text.strip_prefix(b"\xEF\xBB\xBF").filter(|_| number == 1).unwrap_or(&text).trim_ascii();
            if !whole.is_empty() {
                let text = if whole.len() == text.len() { text } else { whole.to_vec() };
                return Ok(Some(Line { number, text: Some(text) }));
            }
        }
    }

    fn skip_line(&mut self) -> io::Result<()> {
        loop {
            let part = self.reader.fill_buf()?;
            let (used, over) = match memchr::memchr(b'\n', part) {
                Some(at) => (at + 1, true),
                None => (part.len(), part.is_empty()),
            };
            self.digest.update(&part[..used]);
            self.reader.consume(used);
            if over {
                return Ok(());
            }
        }
    }

    /// SHA-256 of what was read.
    pub(super) fn digest(self) -> [u8; 32] {
        self.digest.finalize().into()
    }
}

/// Some lines, or what ended them.
#[derive(Debug)]
pub(super) enum Piece {
    Lines(Vec<Line>),
    /// All were read; the digest of all of them.
    End([u8; 32]),
    Failed(io::Error),
}

/// Reads `file`, or standard input, on a thread of its own. It may be left alone: the process ends without it.
pub(super) fn spawn(file: Option<File>) -> io::Result<mpsc::Receiver<Piece>> {
    let (sender, pieces) = mpsc::channel(PIECES);
    std::thread::Builder::new().name("batch-input".to_owned()).spawn(move || {
        let last = match file {
            Some(file) => feed(BufReader::with_capacity(PIECE_BYTES, file), &sender),
            None => feed(BufReader::new(io::stdin()), &sender),
        };
        // The other side is gone when the run has ended for another reason.
        let _ = sender.blocking_send(last);
    })?;
    Ok(pieces)
}

fn feed<R: Read>(reader: BufReader<R>, sender: &mpsc::Sender<Piece>) -> Piece {
    let mut lines = Lines::new(reader);
    let (mut piece, mut bytes) = (Vec::new(), 0);
    loop {
        match lines.next() {
            Ok(Some(line)) => {
                bytes += line.text.as_ref().map_or(0, Vec::len);
                piece.push(line);
            }
            Ok(None) => {
                let _ = sender.blocking_send(Piece::Lines(piece));
                return Piece::End(lines.digest());
            }
            Err(error) => return Piece::Failed(error),
        }
        // When the rest of the buffer holds no whole line, the next read may take as long as the pipe likes.
        let may_wait = memchr::memchr(b'\n', lines.reader.buffer()).is_none();
        if may_wait || piece.len() >= PIECE_LINES || bytes >= PIECE_BYTES {
            bytes = 0;
            if sender.blocking_send(Piece::Lines(std::mem::take(&mut piece))).is_err() {
                return Piece::Lines(Vec::new());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &[u8]) -> Vec<(u64, Option<String>)> {
        let mut lines = Lines::new(BufReader::with_capacity(16, text));
        let mut found = vec![];
        while let Some(line) = lines.next().unwrap() {
            found.push((line.number, line.text.map(|t| String::from_utf8(t).unwrap())));
        }
        found
    }

    #[test]
    fn lines_are_numbered_as_an_editor_does_and_blank_ones_left_out() {
        let text = |t: &str| Some(t.to_owned());
        assert_eq!(all(b"\xEF\xBB\xBFa\n\n  \r\n b \r\nc"), [(1, text("a")), (4, text("b")), (5, text("c"))]);
        assert_eq!(all(b""), []);
        assert_eq!(all(b"\n"), []);
    }

    #[test]
    fn a_line_that_is_too_long_is_told_and_the_next_one_is_read() {
        let long = [vec![b'x'; LINE_MAX as usize + 10], b"\nb\n".to_vec()].concat();
        assert_eq!(all(&long), [(1, None), (2, Some("b".to_owned()))]);
    }

    #[test]
    fn the_digest_is_of_every_byte() {
        let digest = |text: &[u8]| {
            let mut lines = Lines::new(BufReader::with_capacity(16, text));
            while lines.next().unwrap().is_some() {}
            lines.digest()
        };
        assert_eq!(digest(b"a\nb\n"), <[u8; 32]>::from(Sha256::digest(b"a\nb\n")));
        assert_ne!(digest(b"a\nb\n"), digest(b"a\nb"));
        let long = vec![b'x'; LINE_MAX as usize + 10];
        assert_eq!(digest(&long), <[u8; 32]>::from(Sha256::digest(&long)));
    }
}
