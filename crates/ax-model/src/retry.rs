//! When a failed job is tried again.

use crate::job::Policy;
use crate::limits::MAX_SPAN_MS;

/// Delay in milliseconds before the next attempt after the `failures`-th failure (from 1):
/// `min(base × 2^(failures − 1), cap)` plus 0 to 10 % of that, the share drawn from `chance` (uniform over `u64`).
///
/// Never shorter than said, never over 1.1 × cap, at any number of failures: all arithmetic saturates.
#[must_use]
pub fn delay_ms(policy: &Policy, failures: u32, chance: u64) -> u64 {
    let delay = plain_delay_ms(policy, failures);
    let jitter = u128::from(delay / 10) * u128::from(chance) / u128::from(u64::MAX);
    delay.saturating_add(u64::try_from(jitter).unwrap_or(0))
}

/// The same without jitter.
#[must_use]
pub fn plain_delay_ms(policy: &Policy, failures: u32) -> u64 {
    let doublings = failures.saturating_sub(1);
    let factor = if doublings >= 63 { u64::MAX } else { 1 << doublings };
    policy.retry_base_ms.saturating_mul(factor).min(policy.retry_cap_ms)
}

/// The delay a failing function asked for itself, bounded by the longest span of the product.
#[must_use]
pub fn asked_delay_ms(after_ms: u64) -> u64 {
    after_ms.min(MAX_SPAN_MS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(retry_base_ms: u64, retry_cap_ms: u64) -> Policy {
        Policy { retry_base_ms, retry_cap_ms, ..Policy::default() }
    }

    #[test]
    fn the_defaults_give_10_20_40_80_120_120_seconds() {
        let seconds: Vec<u64> = (1..=6).map(|n| plain_delay_ms(&Policy::default(), n) / 1000).collect();
        assert_eq!(seconds, [10, 20, 40, 80, 120, 120]);
    }

    /// C095: 2^64 wraps to 0, or jitter goes negative.
    #[test]
    fn c095_the_delay_stays_between_the_plain_one_and_a_tenth_above_the_cap_at_any_count() {
        for (base, cap) in [(1, 120_000), (10_000, 120_000), (3_600_000, MAX_SPAN_MS), (u64::MAX, u64::MAX), (0, 0)] {
            let policy = policy(base, cap);
            let mut before = 0;
            for failures in [0, 1, 2, 31, 32, 33, 63, 64, 65, 1_000, 1 << 31, u32::MAX] {
                let plain = plain_delay_ms(&policy, failures);
                assert!(plain >= before, "never falls: base {base} cap {cap} failures {failures}");
                before = plain;
                for chance in [0, 1, u64::MAX / 2, u64::MAX] {
                    let delay = delay_ms(&policy, failures, chance);
                    assert!(
                        delay >= plain && delay <= cap.saturating_add(cap / 10),
                        "base {base} cap {cap} n {failures}"
                    );
                }
            }
        }
    }

    #[test]
    fn jitter_spreads_over_the_whole_tenth() {
        let p = Policy::default();
        assert_eq!(delay_ms(&p, 1, 0), 10_000);
        assert_eq!(delay_ms(&p, 1, u64::MAX), 11_000);
        assert!((10_490..=10_510).contains(&delay_ms(&p, 1, u64::MAX / 2)));
    }
}
