//! Signs callbacks as Standard Webhooks does: HMAC-SHA-256 over `id.timestamp.body`, under each secret that is valid.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// What stands before a secret, so that people and scanners see what it is.
const PREFIX: &str = "whsec_";
/// Shortest and longest secret, bytes.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 24..=64;
/// Bytes of a secret that is made here.
pub const NEW_SECRET_BYTES: usize = 32;
/// Most secrets at a time: while one is changed for another there are two.
pub const SECRETS_MAX: usize = 5;

/// The secrets that sign, the first one first. Never printed.
#[derive(Clone)]
pub struct Secrets(Vec<Vec<u8>>);

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secrets({} of them)", self.0.len())
    }
}

/// A secret as it is written down.
#[must_use]
pub fn secret_text(secret: &[u8; NEW_SECRET_BYTES]) -> String {
    format!("{PREFIX}{}", STANDARD.encode(secret))
}

impl Secrets {
    /// From the text of a secrets' file: `whsec_…`, one a line. Empty lines and those that begin with `#` don't count.
    ///
    /// # Errors
    /// What is wrong, with the line; the secret is not repeated.
    pub fn parse(text: &str) -> Result<Secrets, String> {
        let mut secrets = Vec::new();
        for (n, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let secret = line.strip_prefix(PREFIX).and_then(|digits| STANDARD.decode(digits).ok());
            let n = n + 1;
            let secret = secret.ok_or_else(|| format!("line {n} is no secret: {PREFIX} and Base64 digits"))?;
            if !SECRET_BYTES.contains(&secret.len()) {
                let (least, most) = (SECRET_BYTES.start(), SECRET_BYTES.end());
                return Err(format!("line {n} has a secret of {} bytes; it must have {least} to {most}", secret.len()));
            }
            if secret.iter().collect::<std::collections::HashSet<_>>().len() < 8 {
                return Err(format!("line {n} has a secret that can be guessed"));
            }
            secrets.push(secret);
        }
        match secrets.len() {
            0 => Err("there is no secret in it".to_owned()),
            n if n > SECRETS_MAX => Err(format!("there are {n} secrets in it, the limit is {SECRETS_MAX}")),
            _ => Ok(Secrets(secrets)),
        }
    }

    /// The value of `webhook-signature`: one signature for each secret, with spaces between them. `at` = seconds since 1970.
    #[must_use]
    pub fn sign(&self, id: &str, at: i64, body: &[u8]) -> String {
        let one = |secret: &Vec<u8>| {
            let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("HMAC takes a key of any length");
            mac.update(format!("{id}.{at}.").as_bytes());
            mac.update(body);
            format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
        };
        self.0.iter().map(one).collect::<Vec<_>>().join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example that the Standard Webhooks libraries are tested with.
    #[test]
    fn the_signature_is_that_of_standard_webhooks() {
        let secrets = Secrets::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n").unwrap();
        let signed = secrets.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#);
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn while_a_secret_is_changed_both_sign_and_no_print_tells_one() {
        let (old, new) = ([7; 1].repeat(16), (0..32).collect::<Vec<u8>>());
        let text = |secret: &[u8]| format!("{PREFIX}{}", STANDARD.encode(secret));
        let first: Vec<u8> = old.iter().enumerate().map(|(i, b)| b + u8::try_from(i).unwrap()).chain(0..16).collect();
        let (one, two) = (text(&first), text(&new));
        let both = Secrets::parse(&format!("# old\n{one}\n\n  {two}  \n")).unwrap();
        let alone = |text: &str| Secrets::parse(text).unwrap().sign("i", 1, b"x");
        assert_eq!(both.sign("i", 1, b"x"), format!("{} {}", alone(&one), alone(&two)));
        assert_eq!(format!("{both:?}"), "Secrets(2 of them)");
    }

    #[test]
    fn a_file_without_a_good_secret_is_refused_and_the_secret_is_not_repeated() {
        let good = secret_text(&std::array::from_fn(|i| u8::try_from(i).unwrap()));
        for (text, told) in [
            (String::new(), "no secret"),
            ("# whsec_x".to_owned(), "no secret"),
            ("hunter2".to_owned(), "line 1 is no secret"),
            (format!("{good}\nwhsec_!!!"), "line 2 is no secret"),
            (format!("{PREFIX}{}", STANDARD.encode([1; 23])), "must have 24 to 64"),
            (format!("{PREFIX}{}", STANDARD.encode([1; 32])), "can be guessed"),
            (format!("{good}\n").repeat(6), "the limit is 5"),
        ] {
            let wrong = Secrets::parse(&text).unwrap_err();
            assert!(wrong.contains(told) && !wrong.contains("hunter2"), "{text}: {wrong}");
        }
    }
}
