//! Who holds a valid token. After the start a token is known by its SHA-256 alone: no dump and no print of the server tells it.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use sha2::{Digest, Sha256};
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};

/// What the holder of a token may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Everything.
    Admin,
    /// Reading alone.
    Read,
}

impl Role {
    /// The word in the file.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Admin => "admin",
            Role::Read => "read",
        }
    }

    /// From the word in the file.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Role> {
        [Role::Admin, Role::Read].into_iter().find(|role| role.as_str() == word)
    }
}

/// The SHA-256 of a token.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Hash([u8; 32]);

impl Hash {
    /// Of a token as it is sent.
    #[must_use]
    pub fn of(token: &[u8]) -> Hash {
        Hash(Sha256::digest(token).into())
    }

    /// From 64 hexadecimal digits.
    #[must_use]
    pub fn from_hex(digits: &str) -> Option<Hash> {
        let nibbles: Option<Vec<u8>> =
            digits.chars().map(|c| c.to_digit(16).and_then(|d| u8::try_from(d).ok())).collect();
        let nibbles = nibbles.filter(|n| n.len() == 64)?;
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(nibbles.chunks_exact(2)) {
            *byte = pair[0] << 4 | pair[1];
        }
        Some(Hash(bytes))
    }

    /// As 64 hexadecimal digits.
    #[must_use]
    pub fn to_hex(self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// A token that is valid.
#[derive(Clone, PartialEq, Eq)]
pub struct Known {
    /// Its hash.
    pub hash: Hash,
    /// What people call it.
    pub name: String,
    /// What its holder may do.
    pub role: Role,
}

impl fmt::Debug for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.role.as_str())
    }
}

/// The tokens that are valid now. They can be replaced while the server runs.
#[derive(Debug)]
pub struct Keys(RwLock<Arc<[Known]>>);

impl Keys {
    /// These tokens; never none.
    #[must_use]
    pub fn new(known: Vec<Known>) -> Keys {
        Keys(RwLock::new(known.into()))
    }

    /// One token that may do everything.
    #[must_use]
    pub fn single(token: &str) -> Keys {
        Keys::new(vec![Known { hash: Hash::of(token.as_bytes()), name: "token".to_owned(), role: Role::Admin }])
    }

    /// The valid tokens.
    #[must_use]
    pub fn known(&self) -> Arc<[Known]> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// From now on these are valid.
    pub fn replace(&self, known: Vec<Known>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = known.into();
    }

    /// What the holder of `given` may do; `None` = it is no valid token. Takes a time that depends on the length of `given`
    /// and the number of tokens alone: hashes are compared, all of them, whole.
    #[must_use]
    pub fn role_of(&self, given: &[u8]) -> Option<Role> {
        let hash = Hash::of(given);
        let mut found = 0u8;
        for known in self.known().iter() {
            let same: Choice = known.hash.0.ct_eq(&hash.0);
            found.conditional_assign(&if known.role == Role::Admin { 2 } else { 1 }, same);
        }
        match found {
            2 => Some(Role::Admin),
            1 => Some(Role::Read),
            _ => None,
        }
    }
}

/// A token that a client sends. Never printed.
#[derive(Clone)]
pub struct Token(String);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

impl Token {
    /// A token as it is.
    #[must_use]
    pub fn new(text: String) -> Token {
        Token(text)
    }

    /// For the `Authorization` header.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_token_has_its_role_and_no_print_tells_one() {
        let known = |token: &str, role| Known { hash: Hash::of(token.as_bytes()), name: "n".into(), role };
        let keys = Keys::new(vec![known("first", Role::Admin), known("second", Role::Read)]);
        assert_eq!(keys.role_of(b"first"), Some(Role::Admin));
        assert_eq!(keys.role_of(b"second"), Some(Role::Read));
        for wrong in ["", "firs", "first ", "First", &Hash::of(b"first").to_hex()] {
            assert_eq!(keys.role_of(wrong.as_bytes()), None, "{wrong}");
        }
        let printed = format!("{keys:?} {:?}", Token::new("first".into()));
        assert!(!printed.contains("first") && printed.contains("read"), "{printed}");
        keys.replace(vec![known("third", Role::Admin)]);
        assert_eq!((keys.role_of(b"first"), keys.role_of(b"third")), (None, Some(Role::Admin)));
    }

    #[test]
    fn hashes_are_those_of_sha256sum_and_read_back() {
        let hash = Hash::of(b"abc");
        assert_eq!(hash.to_hex(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert!(Hash::from_hex(&hash.to_hex()).is_some_and(|read| read == hash));
        for bad in ["", "ba78", &"g".repeat(64), &"a".repeat(63), &"a".repeat(66)] {
            assert!(Hash::from_hex(bad).is_none(), "{bad}");
        }
    }
}
