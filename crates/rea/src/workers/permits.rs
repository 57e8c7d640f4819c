//! The right to begin a job. A `run` frame may lie ready in a worker process's socket; the process begins it only after it
//! has read its permit, and what it has not read yet can be taken back: the kernel gives each permit to one reader.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use ax_model::Token;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::line::DEPTH;

/// A permit is the token of its attempt, big-endian. Sent and read as a whole, always.
const BYTES: usize = size_of::<u64>();

/// More permits than are ever given and not read.
const MOST: usize = 4 * (DEPTH + 1);

/// The server's side: the end that gives, and a copy of the end that the worker process reads.
pub(super) struct Permits {
    give: UnixStream,
    back: OwnedFd,
}

impl Permits {
    /// With the end for the worker process.
    pub(super) fn new() -> io::Result<(Permits, OwnedFd)> {
        let (give, theirs) = UnixStream::pair()?;
        let back = OwnedFd::from(theirs.try_clone()?);
        Ok((Permits { give, back }, theirs.into()))
    }

    /// Lets the worker process begin the attempt once it comes to it. `false`: it can't be told, and will not begin it.
    pub(super) fn give(&self, token: Token) -> bool {
        loop {
            match send(&self.give, &token.0.to_be_bytes(), SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                Err(Errno::INTR) => {}
                sent => return sent == Ok(BYTES),
            }
        }
    }

    /// Takes back the permits of attempts that have not begun, oldest first. They will not begin.
    ///
    /// All in one read, which the kernel lets no other reader into: were they read one by one, the process could read a
    /// younger one meanwhile, skip the frames before it, and never come to an older one that is given again.
    pub(super) fn take_back(&self) -> Vec<Token> {
        let mut tokens = Vec::new();
        let mut permits = [0; MOST * BYTES];
        loop {
            let read = match recv(&self.back, &mut permits, RecvFlags::DONTWAIT) {
                Ok((read, _)) => read,
                Err(Errno::INTR) => continue,
                // Nothing is there.
                Err(_) => return tokens,
            };
            tokens
                .extend(permits[..read].as_chunks::<BYTES>().0.iter().map(|permit| Token(u64::from_be_bytes(*permit))));
            if read < permits.len() {
                return tokens;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn a_permit_is_read_or_taken_back_but_never_both() {
        let (permits, theirs) = Permits::new().unwrap();
        let mut theirs = UnixStream::from(theirs);
        for number in 1..=3 {
            assert!(permits.give(Token(number)));
        }
        let mut read = [0; BYTES];
        theirs.read_exact(&mut read).unwrap();
        assert_eq!(u64::from_be_bytes(read), 1);
        assert_eq!(permits.take_back(), [Token(2), Token(3)]);
        assert!(permits.give(Token(3)));
        theirs.read_exact(&mut read).unwrap();
        assert_eq!(u64::from_be_bytes(read), 3);
        assert_eq!(permits.take_back(), []);
        drop(permits);
        assert_eq!(theirs.read(&mut read).unwrap(), 0, "its end is the end of the file");
    }

    /// A permit that comes back must not have been overtaken: the process skips frames up to that of the permit it reads, and
    /// would wait for the frame of an older one for ever.
    #[test]
    fn permits_are_read_in_their_order_while_others_are_taken_back_and_given_again() {
        const PERMITS: u64 = 20_000;
        let (permits, theirs) = Permits::new().unwrap();
        let mut theirs = UnixStream::from(theirs);
        let reader = std::thread::spawn(move || {
            let mut read = [0; BYTES];
            let mut seen = Vec::new();
            while seen.last() != Some(&PERMITS) {
                theirs.read_exact(&mut read).unwrap();
                seen.push(u64::from_be_bytes(read));
            }
            seen
        });
        for number in 1..=PERMITS {
            loop {
                let back = permits.take_back();
                back.iter().for_each(|token| assert!(permits.give(*token)));
                if back.len() < DEPTH {
                    break;
                }
                std::thread::yield_now();
            }
            assert!(permits.give(Token(number)));
        }
        let seen = reader.join().unwrap();
        assert!(seen.iter().copied().eq(1..=PERMITS), "some came out of turn");
    }
}
