//! Wrong tokens, counted for each address: a client that goes on sending them is told to wait, and the log stays short.
//!
//! A right token always passes, whatever else came from its address: behind a proxy many clients share one, and nobody may lock
//! others out. What stops guessing is the length of tokens; this stops the noise.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// So many wrong tokens of one address are answered within `WINDOW`.
pub const WRONG_MAX: u32 = 10;
/// When they are forgotten.
pub const WINDOW: Duration = Duration::from_secs(60);
/// Most addresses that are told apart; further ones are counted as one.
const ADDRESSES_MAX: usize = 4_096;

/// The wrong tokens of the last while.
#[derive(Debug, Default)]
pub struct Throttle(Mutex<HashMap<IpAddr, Seen>>);

#[derive(Debug)]
struct Seen {
    since: Instant,
    wrong: u32,
}

/// What to do about one more wrong token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Refuse it, and say so in the log: the first of this address.
    First,
    /// Refuse it.
    Again,
    /// Refuse it, tell the client to wait, and say so in the log: the first that is too many.
    TooMany(Duration),
    /// Refuse it and tell the client to wait.
    StillTooMany(Duration),
}

impl Throttle {
    /// Counts a wrong token from `address`.
    pub fn wrong(&self, address: IpAddr, now: Instant) -> Verdict {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut address = network(address);
        if all.len() >= ADDRESSES_MAX && !all.contains_key(&address) {
            all.retain(|_, seen| now.duration_since(seen.since) < WINDOW);
            if all.len() >= ADDRESSES_MAX {
                address = Ipv6Addr::UNSPECIFIED.into();
            }
        }
        let seen = all.entry(address).or_insert(Seen { since: now, wrong: 0 });
        if now.duration_since(seen.since) >= WINDOW {
            *seen = Seen { since: now, wrong: 0 };
        }
        seen.wrong = seen.wrong.saturating_add(1);
        let rest = WINDOW.saturating_sub(now.duration_since(seen.since));
        match seen.wrong {
            1 => Verdict::First,
            n if n <= WRONG_MAX => Verdict::Again,
            n if n == WRONG_MAX + 1 => Verdict::TooMany(rest),
            _ => Verdict::StillTooMany(rest),
        }
    }
}

/// Whoever has one IPv6 address has the 2⁶⁴ of its network.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64).into(),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_told_to_wait_after_ten_and_forgiven_after_a_minute() {
        let throttle = Throttle::default();
        let begun = Instant::now();
        let here: IpAddr = "10.0.0.1".parse().unwrap();
        assert_eq!(throttle.wrong(here, begun), Verdict::First);
        for _ in 2..=WRONG_MAX {
            assert_eq!(throttle.wrong(here, begun), Verdict::Again);
        }
        let later = begun + Duration::from_secs(20);
        assert_eq!(throttle.wrong(here, later), Verdict::TooMany(Duration::from_secs(40)));
        assert_eq!(throttle.wrong(here, later), Verdict::StillTooMany(Duration::from_secs(40)));
        assert_eq!(
            throttle.wrong("::ffff:10.0.0.1".parse().unwrap(), later),
            Verdict::StillTooMany(WINDOW - later.duration_since(begun))
        );
        assert_eq!(throttle.wrong("10.0.0.2".parse().unwrap(), later), Verdict::First, "a bystander");
        assert_eq!(throttle.wrong(here, begun + WINDOW), Verdict::First);
    }

    #[test]
    fn a_flood_of_addresses_takes_a_bounded_room() {
        let throttle = Throttle::default();
        let now = Instant::now();
        for n in 0..10_000u32 {
            throttle.wrong(IpAddr::from(n.to_be_bytes()), now);
        }
        for n in 0..100u128 {
            throttle.wrong(Ipv6Addr::from_bits(0x2001 << 112 | n).into(), now);
        }
        assert!(throttle.0.lock().unwrap().len() <= ADDRESSES_MAX + 1);
        throttle.wrong(IpAddr::from([10, 0, 0, 1]), now + WINDOW);
        assert_eq!(throttle.0.lock().unwrap().len(), 1, "what is over is let go");
    }
}
