//! The tokens that clients must send: read from their file or the environment, and refused when they can be guessed.
//!
//! A line of the file is `TOKEN [NAME [ROLE]]`; `sha256:…` may stand for a token. Empty lines and those that begin with `#` don't count.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use super::secret_file::{self, FILE_MAX};
use super::{BadSetting, bad};
use crate::http::tokens::{Hash, Known, Role, Token};

/// Shortest token.
const TOKEN_MIN_CHARS: usize = 32;
/// Most tokens at a time.
const TOKENS_MAX: usize = 100;
/// Longest name of a token.
const NAME_MAX: usize = 64;
/// What stands before a token that is given by its hash.
const HASHED: &str = "sha256:";
/// How to make one.
pub const TOKEN_RECIPE: &str = "make one: rea token new --file rea.token; then: --token-file rea.token";

/// The tokens that clients may send: from the file, else the one from the environment. An empty one is an error, never "off".
///
/// # Errors
/// It can't be read, others can read its file, or one can be guessed.
pub fn read_tokens(file: Option<&Path>, environment: Option<String>) -> Result<Option<Vec<Known>>, BadSetting> {
    match (file, environment) {
        (Some(file), _) => {
            parse(&secret_file::read(file, "the token file", TOKEN_RECIPE)?, &file.display().to_string()).map(Some)
        }
        (None, Some(text)) => {
            let token = text.trim();
            check(token, "the token in REA_TOKEN")?;
            let hash = Hash::of(token.as_bytes());
            Ok(Some(vec![Known { hash, name: "REA_TOKEN".to_owned(), role: Role::Admin }]))
        }
        (None, None) => Ok(None),
    }
}

/// The token that a client sends: the first in the file that is not hashed. Whether it is good is the server's business.
///
/// # Errors
/// The file can't be read, or all in it are hashed.
pub fn client_token(file: &Path) -> Result<Token, BadSetting> {
    let cannot = |e: std::io::Error| BadSetting {
        problem: format!("can't read the token file {}: {e}", file.display()),
        hint: TOKEN_RECIPE.to_owned(),
    };
    let mut text = String::new();
    File::open(file).and_then(|opened| opened.take(FILE_MAX).read_to_string(&mut text)).map_err(cannot)?;
    let token = lines(&text).find_map(|(_, line)| line.split_whitespace().next().filter(|t| !t.starts_with(HASHED)));
    match token {
        Some(token) => Ok(Token::new(token.to_owned())),
        None => bad(
            format!("the token file {} holds no token that can be sent", file.display()),
            "hashes are for servers: give a file that holds the token itself, or set REA_TOKEN",
        ),
    }
}

/// Numbered lines that say something.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.lines().enumerate().map(|(n, line)| (n + 1, line.trim()));
    lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
}

fn parse(text: &str, file: &str) -> Result<Vec<Known>, BadSetting> {
    let mut known: Vec<Known> = Vec::new();
    for (n, line) in lines(text) {
        let origin = format!("the token in {file}:{n}");
        let mut words = line.split_whitespace();
        let token = words.next().unwrap_or_default();
        let hash = match token.strip_prefix(HASHED) {
            Some(digits) => match Hash::from_hex(digits) {
                Some(hash) => hash,
                None => return bad(format!("{origin} is no hash: sha256: and 64 hexadecimal digits"), TOKEN_RECIPE),
            },
            None => {
                check(token, &origin)?;
                Hash::of(token.as_bytes())
            }
        };
        let name = words.next().map_or_else(|| format!("line-{n}"), str::to_owned);
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.@".contains(c);
        if name.len() > NAME_MAX || !name.chars().all(plain) {
            let hint = "a line is: TOKEN [NAME [admin|read]]";
            return bad(format!("{origin} has a name that is not of 1 to {NAME_MAX} letters, digits and -_.@"), hint);
        }
        let role = match words.next() {
            None => Role::Admin,
            Some(word) => match Role::from_word(word) {
                Some(role) => role,
                None => {
                    return bad(
                        format!("{origin} has a role that is neither admin nor read"),
                        "a line is: TOKEN [NAME [admin|read]]",
                    );
                }
            },
        };
        if words.next().is_some() {
            return bad(format!("{origin} has more words than three"), "a line is: TOKEN [NAME [admin|read]]");
        }
        if known.iter().any(|earlier| earlier.hash == hash || earlier.name == name) {
            return bad(format!("{origin}, or its name, stands there twice"), "remove one of the two lines");
        }
        known.push(Known { hash, name, role });
    }
    match known.len() {
        0 => bad(format!("the token in {file} is empty; an empty token does not mean \"no token\""), TOKEN_RECIPE),
        n if n > TOKENS_MAX => bad(format!("{file} has {n} tokens, the limit is {TOKENS_MAX}"), "remove old ones"),
        _ => Ok(known),
    }
}

/// Refuses a token that can be guessed. The message does not repeat it.
fn check(token: &str, origin: &str) -> Result<(), BadSetting> {
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
    Ok(())
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
