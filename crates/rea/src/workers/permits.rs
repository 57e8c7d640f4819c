//! The right to begin a job. A `run` frame may lie ready in a worker process's socket; the process begins it only after it
//! has read its permit, and what it has not read yet can be taken back: the kernel gives each permit to one reader.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use ax_model::Token;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

/// A permit is the token of its attempt, big-endian. Sent and read as a whole, always.
const BYTES: usize = size_of::<u64>();

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
    pub(super) fn take_back(&self) -> Vec<Token> {
        let mut tokens = Vec::new();
        let mut permit = [0; BYTES];
        loop {
            match recv(&self.back, &mut permit, RecvFlags::DONTWAIT) {
                Ok((BYTES, _)) => tokens.push(Token(u64::from_be_bytes(permit))),
                Err(Errno::INTR) => {}
                // Nothing is there.
                _ => return tokens,
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
}
