//! Names that never change: jobs, nodes, and the token that fences an attempt.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::chance::Chance;
use crate::time::Timestamp;

/// A job's public name: a UUID, version 7 when made here, so that ids sort by the time they were made.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub [u8; 16]);

impl JobId {
    /// A new version 7 id (RFC 9562 §5.7): 48 bits of milliseconds, then 74 random bits from `chance`.
    #[must_use]
    pub fn new(now: Timestamp, chance: &mut Chance) -> JobId {
        let ms = u64::try_from(now.0 / 1000).unwrap_or(0);
        let mut random = [0u8; 10];
        random[..8].copy_from_slice(&chance.next_u64().to_be_bytes());
        random[8..].copy_from_slice(&chance.next_u64().to_be_bytes()[..2]);
        JobId(*uuid::Builder::from_unix_timestamp_millis(ms, &random).into_uuid().as_bytes())
    }

    /// The id that always comes of the same origin: a version 7 id made at `now` whose other bits are a digest of `from` and
    /// `what`. Who makes it again makes the same job.
    #[must_use]
    pub fn derived(from: &[u8], what: &str, now: Timestamp) -> JobId {
        let digest = Sha256::new().chain_update(from).chain_update([0]).chain_update(what).finalize();
        let seed = |n: usize| digest[n..n + 8].iter().fold(0u64, |seed, byte| seed << 8 | u64::from(*byte));
        JobId::new(now, &mut Chance::new(seed(0) ^ seed(8).rotate_left(17)))
    }

    /// The first and the last id that begin with these hexadecimal digits: at least 4 of them, hyphens wherever they are.
    /// Ids are in the order of their bytes, so these are all that lie between. `None` for what is no such beginning.
    #[must_use]
    pub fn range_of_prefix(text: &str) -> Option<(JobId, JobId)> {
        let digits = text.chars().filter(|c| *c != '-').map(|c| c.to_digit(16)).collect::<Option<Vec<u32>>>()?;
        if !(4..=32).contains(&digits.len()) {
            return None;
        }
        let filled = |with: u32| {
            let mut bytes = [0u8; 16];
            for (at, byte) in bytes.iter_mut().enumerate() {
                let digit = |n: usize| digits.get(n).copied().unwrap_or(with);
                *byte = u8::try_from(digit(2 * at) * 16 + digit(2 * at + 1)).unwrap_or(0);
            }
            JobId(bytes)
        };
        Some((filled(0), filled(15)))
    }

    /// The 32 hexadecimal digits without hyphens: the default `trace_id`.
    #[must_use]
    pub fn simple(&self) -> String {
        Uuid::from_bytes(self.0).simple().to_string()
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Uuid::from_bytes(self.0).hyphenated().fmt(f)
    }
}

impl fmt::Debug for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is not a UUID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAnId;

impl fmt::Display for NotAnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not an id: an id is a UUID, such as 0193793e-7f00-7000-8000-000000000001")
    }
}

impl std::error::Error for NotAnId {}

impl FromStr for JobId {
    type Err = NotAnId;

    /// Takes the hyphenated form and the 32 digits without hyphens, in either case.
    fn from_str(text: &str) -> Result<JobId, NotAnId> {
        if text.len() != 36 && text.len() != 32 {
            return Err(NotAnId);
        }
        Uuid::try_parse(text).map(|u| JobId(*u.as_bytes())).map_err(|_| NotAnId)
    }
}

impl Serialize for JobId {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for JobId {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<JobId, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(d)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

macro_rules! hex_id {
    ($name:ident, $doc:literal) => {
        #[doc = $doc]
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:016x}", self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    };
}

hex_id!(
    NodeId,
    "One running engine: random for each start, so a restart under the same host name or PID is another node."
);
hex_id!(Token, "What a claim hands out for one attempt; every later write about that attempt must name it.");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_sort_by_the_time_they_were_made_and_read_back() {
        let mut chance = Chance::new(7);
        let early = JobId::new(Timestamp(1_000_000), &mut chance);
        let late = JobId::new(Timestamp(2_000_000), &mut chance);
        assert!(early < late);
        assert_eq!(early.to_string().parse(), Ok(early));
        assert_eq!(early.simple().to_uppercase().parse(), Ok(early));
        assert_eq!(Uuid::from_bytes(early.0).get_version_num(), 7);
    }

    #[test]
    fn a_beginning_is_a_range_of_ids() {
        let id: JobId = "0193793e-7f00-7abc-8000-000000000001".parse().unwrap();
        for prefix in ["0193", "0193793E-7", "0193793e7f007", "0193793e-7f00-7abc-8000-000000000001"] {
            let (first, last) = JobId::range_of_prefix(prefix).unwrap();
            assert!(first <= id && id <= last, "{prefix}");
        }
        let (first, last) = JobId::range_of_prefix("0193793e-7f00-7a").unwrap();
        assert_eq!(first.to_string(), "0193793e-7f00-7a00-0000-000000000000");
        assert_eq!(last.to_string(), "0193793e-7f00-7aff-ffff-ffffffffffff");
        for none in ["", "019", "0-1-9", "019g", "é193", &"0".repeat(33)] {
            assert_eq!(JobId::range_of_prefix(none), None, "{none}");
        }
    }

    #[test]
    fn what_is_not_a_uuid_is_refused() {
        for text in [
            "",
            "1",
            "'; DROP TABLE jobs;--",
            "{0193793e-7f00-7000-8000-000000000001}",
            "urn:uuid:0193793e-7f00-7000-8000-000000000001",
        ] {
            assert_eq!(text.parse::<JobId>(), Err(NotAnId), "{text}");
        }
    }
}
