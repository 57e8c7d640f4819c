//! Frames that arrive from a child, whole, out of a buffer that is kept from job to job.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead as _, ReadBuf};
use tokio::net::UnixStream;

use super::frames::{self, FRAME_MAX, FromChild, HEADER, Malformed};
use super::spawn::read_now;

/// Room for one read; what most frames need.
const USUAL: usize = 64 * 1024;

/// Bytes that have arrived and not been taken yet.
pub(super) struct Inbox {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

/// What comes next.
pub(super) type Arrival = Option<Result<FromChild, Malformed>>;

impl Inbox {
    pub(super) fn new() -> Inbox {
        Inbox { buffer: vec![0; USUAL], start: 0, end: 0 }
    }

    /// The next frame; `None` when the other side has closed.
    pub(super) fn poll(&mut self, stream: &mut UnixStream, cx: &mut Context<'_>) -> Poll<Arrival> {
        loop {
            if let Some(frame) = self.take() {
                return Poll::Ready(Some(frame));
            }
            let mut room = ReadBuf::new(&mut self.buffer[self.end..]);
            let read = ready!(Pin::new(&mut *stream).poll_read(cx, &mut room));
            let size = room.filled().len();
            if read.is_err() || size == 0 {
                return Poll::Ready(None);
            }
            self.end += size;
        }
    }

    /// The next frame of those that have already arrived, whatever the runtime knows of it.
    pub(super) fn next_now(&mut self, stream: &UnixStream) -> Arrival {
        loop {
            if let Some(frame) = self.take() {
                return Some(frame);
            }
            match read_now(stream, &mut self.buffer[self.end..]) {
                Some(io::Result::Ok(size)) if size > 0 => self.end += size,
                _ => return None,
            }
        }
    }

    /// A whole frame from the buffer. If there is none, makes room for the rest of it.
    fn take(&mut self) -> Arrival {
        let held = &self.buffer[self.start..self.end];
        let needed = match held.first_chunk::<HEADER>() {
            None => HEADER,
            Some(length) => {
                let length = u32::from_be_bytes(*length) as usize;
                if length > FRAME_MAX {
                    return Some(Err(Malformed(format!("a frame of {length} bytes; the longest is {FRAME_MAX}"))));
                }
                if let Some(body) = held.get(HEADER..HEADER + length) {
                    let frame = frames::parse(body);
                    self.start += HEADER + length;
                    return Some(frame);
                }
                HEADER + length
            }
        };
        self.make_room(needed);
        None
    }

    /// How many bytes its buffer has.
    #[cfg(test)]
    pub(super) fn room(&self) -> usize {
        self.buffer.len()
    }

    fn make_room(&mut self, needed: usize) {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let size = needed.max(USUAL);
        if self.buffer.len() < size {
            self.buffer.resize(size, 0);
        } else if self.buffer.len() > size && self.end == 0 {
            // One big result must not keep its memory for the life of the child.
            self.buffer = vec![0; USUAL];
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn frame(text: &str) -> Vec<u8> {
        [&u32::try_from(text.len()).unwrap().to_be_bytes()[..], text.as_bytes()].concat()
    }

    #[tokio::test]
    async fn frames_arrive_whole_in_any_pieces() {
        let (mut far, near) = std::os::unix::net::UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        let near = UnixStream::from_std(near).unwrap();
        let mut inbox = Inbox::new();
        let big = format!(r#"{{"t":"done","token":"1","ok":true,"result":"{}"}}"#, "x".repeat(100_000));
        let small = r#"{"t":"progress","token":"2","done":1}"#;
        let bytes = [frame(small), frame(&big), frame(small)].concat();
        let mut read = Vec::new();
        for piece in bytes.chunks(30_001) {
            far.write_all(piece).unwrap();
            while let Some(frame) = inbox.next_now(&near) {
                read.push(frame.unwrap());
            }
        }
        assert_eq!(read.len(), 3);
        assert!(matches!(&read[1], FromChild::Done { end: frames::End::Ok(r), .. } if r.len() == 100_002));
        assert_eq!(inbox.buffer.len(), USUAL, "the room for the big one is given back");
        far.write_all(&[0xff; 8]).unwrap();
        assert!(inbox.next_now(&near).unwrap().is_err());
    }
}
