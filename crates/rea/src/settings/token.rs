//! The token that clients must send: read from its file or the environment, and refused when it can be guessed.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::{BadSetting, bad};
use crate::http::guard::Token;

/// Shortest token.
const TOKEN_MIN_CHARS: usize = 32;
/// How to make one.
pub const TOKEN_RECIPE: &str =
    "make one: openssl rand -hex 32 > rea.token && chmod 600 rea.token; then: --token-file rea.token";

/// The token that clients must send: from the file, else from the environment. An empty one is an error, never "off".
///
/// # Errors
/// It can't be read, others can read its file, or it can be guessed.
pub fn read_token(file: Option<&Path>, environment: Option<String>) -> Result<Option<Token>, BadSetting> {
    let (text, origin) = match (file, environment) {
        (Some(file), _) => (read_secret_file(file)?, format!("the token in {}", file.display())),
        (None, Some(text)) => (text, "the token in REA_TOKEN".to_owned()),
        (None, None) => return Ok(None),
    };
    let token = text.trim();
    if token.is_empty() {
        return bad(format!("{origin} is empty; an empty token does not mean \"no token\""), TOKEN_RECIPE);
    }
    let chars = token.chars().count();
    if chars < TOKEN_MIN_CHARS {
        return bad(format!("{origin} has {chars} characters; it must have at least {TOKEN_MIN_CHARS}"), TOKEN_RECIPE);
    }
    if !token.bytes().all(|b| b.is_ascii_graphic()) {
        return bad(format!("{origin} must be of printable ASCII characters without spaces"), TOKEN_RECIPE);
    }
    if is_guessable(token) {
        return bad(format!("{origin} can be guessed"), TOKEN_RECIPE);
    }
    Ok(Some(Token::new(token.to_owned())))
}

/// One character or a short piece over and over, or a well-known word padded.
fn is_guessable(token: &str) -> bool {
    const KNOWN: &[&str] =
        &["changeme", "change-me", "change_me", "default", "password", "secret", "token", "example", "insecure"];
    let lower = token.to_ascii_lowercase();
    let bytes = lower.as_bytes();
    let repeats = (1..=8).any(|n| bytes.iter().zip(bytes.iter().skip(n)).all(|(a, b)| a == b));
    let rest = KNOWN.iter().fold(lower.clone(), |text, word| text.replace(word, ""));
    let distinct = bytes.iter().collect::<std::collections::HashSet<_>>().len();
    repeats || distinct < 8 || rest.len() < TOKEN_MIN_CHARS / 2
}

fn read_secret_file(file: &Path) -> Result<String, BadSetting> {
    let cannot = |e: std::io::Error| BadSetting {
        problem: format!("can't read the token file {}: {e}", file.display()),
        hint: TOKEN_RECIPE.to_owned(),
    };
    let mode = std::fs::metadata(file).map_err(cannot)?.mode();
    if mode & 0o077 != 0 {
        let problem = format!("others may read or write the token file {} (mode {:03o})", file.display(), mode & 0o777);
        return bad(problem, format!("chmod 600 {}", file.display()));
    }
    std::fs::read_to_string(file).map_err(cannot)
}
