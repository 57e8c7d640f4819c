//! What an attempt writes to stdout and stderr, on its way into its log: bounded in all and by line, marked where it was
//! cut, and never in the way of the job. What does not fit is read and dropped, so that the job never waits for us.

use std::fs::File;
use std::io::{self, Write as _};

use ax_model::JobId;
use memchr::memchr;

use super::logs::LogStore;

/// Bounds of one attempt's log, bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// In all.
    pub(super) log: u64,
    /// A line, without its end.
    pub(super) line: usize,
}

/// Takes the output of a worker process.
pub(super) trait Sink {
    /// Takes the next bytes.
    fn write(&mut self, bytes: &[u8]);
}

/// The log of one attempt. The file is made with the first byte; most attempts write none.
pub(super) struct AttemptLog {
    store: LogStore,
    bounds: Bounds,
    job: JobId,
    attempt: u32,
    file: Option<File>,
    written: u64,
    line: usize,
    /// The line is over its bound; the rest of it is dropped.
    cutting: bool,
    /// The log is at its bound or can't be written; everything is dropped.
    full: bool,
}

impl AttemptLog {
    pub(super) fn new(store: LogStore, bounds: Bounds, job: JobId, attempt: u32) -> AttemptLog {
        AttemptLog { store, bounds, job, attempt, file: None, written: 0, line: 0, cutting: false, full: false }
    }

    /// Writes up to the bound of the log.
    fn put(&mut self, bytes: &[u8]) {
        if self.full || bytes.is_empty() {
            return;
        }
        let room = usize::try_from(self.bounds.log - self.written).unwrap_or(usize::MAX);
        let fits = if bytes.len() <= room { bytes.len() } else { before_char(bytes, room) };
        self.written += fits as u64;
        let mut done = self.write_out(&bytes[..fits]);
        if fits < bytes.len() {
            self.full = true;
            let mark = format!("\n… [output cut by rea after {} bytes]\n", self.bounds.log);
            done = done.and_then(|()| self.write_out(mark.as_bytes()));
        }
        if let Err(error) = done {
            // A full disk must not fail the job: it loses its log, and the server says so once.
            self.full = true;
            tracing::warn!(task_id = %self.job, attempt = self.attempt, %error, "cannot write the log of an attempt");
        }
    }

    fn write_out(&mut self, bytes: &[u8]) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(self.store.create(self.job, self.attempt)?),
        };
        file.write_all(bytes)
    }
}

impl Sink for AttemptLog {
    fn write(&mut self, bytes: &[u8]) {
        // `from..at` fits and has not been put yet: mostly that is everything, in one write.
        let (mut from, mut at) = (0, 0);
        while at < bytes.len() && !self.full {
            let end = memchr(b'\n', &bytes[at..]).map_or(bytes.len(), |place| at + place);
            let room = self.bounds.line.saturating_sub(self.line);
            if self.cutting {
                from = end;
            } else if end - at > room {
                let cut = at + before_char(&bytes[at..], room);
                self.put(&bytes[from..cut]);
                self.put(format!("… [line cut by rea after {} bytes]", self.bounds.line).as_bytes());
                self.cutting = true;
                from = end;
            }
            self.line += end - at;
            at = end;
            if at < bytes.len() {
                (self.cutting, self.line) = (false, 0);
                at += 1;
            }
        }
        self.put(&bytes[from.min(bytes.len())..at]);
    }
}

/// The largest cut up to `at` that does not split a UTF-8 character.
fn before_char(bytes: &[u8], at: usize) -> usize {
    (0..4)
        .filter_map(|back| at.checked_sub(back))
        .find(|cut| bytes.get(*cut).is_none_or(|b| b & 0xc0 != 0x80))
        .unwrap_or(at)
}

/// Keeps the last bytes: what a worker process says while it starts is only shown when it fails to.
#[derive(Default)]
pub(super) struct Tail(Vec<u8>);

impl Tail {
    const KEPT: usize = 8 * 1024;

    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.0).trim().to_owned()
    }
}

impl Sink for Tail {
    fn write(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
        let over = self.0.len().saturating_sub(Tail::KEPT);
        self.0.drain(..over);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: JobId = JobId([3; 16]);

    fn logged(bounds: Bounds, pieces: &[&[u8]]) -> String {
        let dir = tempfile::tempdir().unwrap();
        let store = LogStore::of(&dir.path().join("rea.db"));
        let mut log = AttemptLog::new(store.clone(), bounds, JOB, 1);
        pieces.iter().for_each(|piece| log.write(piece));
        store
            .read(JOB, 1, 0, 1 << 20)
            .unwrap()
            .map_or_else(String::new, |p| String::from_utf8_lossy(&p.bytes).into_owned())
    }

    const SMALL: Bounds = Bounds { log: 1000, line: 10 };
    const CUT: &str = "… [line cut by rea after 10 bytes]";

    #[test]
    fn nothing_written_makes_no_file() {
        assert_eq!(logged(SMALL, &[b""]), "");
    }

    #[test]
    fn lines_within_the_bound_pass_unchanged_in_any_pieces() {
        let text = "one\n0123456789\n\ntwo";
        assert_eq!(logged(SMALL, &[text.as_bytes()]), text);
        let pieces: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
        assert_eq!(logged(SMALL, &pieces), text);
    }

    #[test]
    fn a_longer_line_is_cut_once_and_marked() {
        let text = "0123456789abc\nnext\n0123456789X";
        let wanted = format!("0123456789{CUT}\nnext\n0123456789{CUT}");
        assert_eq!(logged(SMALL, &[text.as_bytes()]), wanted);
        let pieces: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
        assert_eq!(logged(SMALL, &pieces), wanted);
        // The end of the line comes with a later piece.
        assert_eq!(logged(SMALL, &[b"0123456789ab", b"cd", b"ef\nok\n"]), format!("0123456789{CUT}\nok\n"));
        assert_eq!(logged(SMALL, &["123456789é\n".as_bytes()]), format!("123456789{CUT}\n"));
    }

    #[test]
    fn the_log_is_cut_at_its_bound_and_marked_once() {
        let bounds = Bounds { log: 6, line: 10 };
        let wanted = "ab\ncd\n\n… [output cut by rea after 6 bytes]\n";
        assert_eq!(logged(bounds, &[b"ab\ncd\n", b"ef\n", b"gh\n"]), wanted);
        assert_eq!(logged(bounds, &[b"ab\ncd\nef\ngh\n"]), wanted);
        assert_eq!(logged(bounds, &[b"ab\ncd\n"]), "ab\ncd\n");
    }

    #[test]
    fn the_tail_keeps_the_end() {
        let mut tail = Tail::default();
        tail.write(&[b'x'; 10_000]);
        tail.write(b" the end\n");
        assert!(tail.text().ends_with("x the end") && tail.text().len() <= Tail::KEPT);
    }
}
