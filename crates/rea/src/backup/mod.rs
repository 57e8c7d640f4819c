//! A backup is one tar file: `rea.db`, a copy of the store at one moment; `logs/…`, the output of attempts; and, last,
//! `manifest.json` with sums and counts. A file that broke off has no manifest. `write` makes it, `read` checks and unpacks.

pub mod read;
pub mod write;

use std::fmt::Write as _;
use std::io::{self, Read, Write};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Names of the parts.
const STORE: &str = "rea.db";
const LOGS: &str = "logs/";
const MANIFEST: &str = "manifest.json";
/// The form of the file.
const FORMAT: u32 = 1;

/// What the last part says of the others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The form of the file: 1.
    pub format: u32,
    /// The program that made it.
    pub version: String,
    /// When: RFC 3339.
    pub made_at: String,
    /// The store's schema.
    pub schema: i64,
    /// Jobs in it.
    pub jobs: u64,
    /// Of `rea.db`.
    pub store_bytes: u64,
    /// Of `rea.db`, hexadecimal.
    pub store_sha256: String,
    /// How many logs.
    pub logs: u64,
    /// Of all logs.
    pub logs_bytes: u64,
    /// Of all logs, each with its name before it, in the order of the file.
    pub logs_sha256: String,
}

/// Copies and sums.
struct Summing<'a, T> {
    inner: T,
    sum: &'a mut Sha256,
    bytes: &'a mut u64,
}

impl<T: Read> Read for Summing<'_, T> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(into)?;
        self.sum.update(&into[..n]);
        *self.bytes += n as u64;
        Ok(n)
    }
}

impl<T: Write> Write for Summing<'_, T> {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        let n = self.inner.write(from)?;
        self.sum.update(&from[..n]);
        *self.bytes += n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

fn hex(sum: Sha256) -> String {
    sum.finalize().iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
