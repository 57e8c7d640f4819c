//! Values in `args` and `kwargs` whose name says that they are secret are not shown to anybody; the function alone gets them.

use std::borrow::Cow;

use ax::model::json_text::{space_end, string_end};
use serde_json::value::RawValue;

/// What stands for a value that is not shown.
const HIDDEN: &[u8] = b"\"[redacted]\"";

/// Which names are secret. A rule is one or a few words; a name falls under it when it has these words, in this order and side
/// by side, however they are joined: `api_key` covers `apiKey`, `X-Api-Key` and `old_api_key_2`, but not `apikeys`.
#[derive(Clone, Debug)]
pub struct Redact(Vec<Vec<String>>);

impl Redact {
    /// With these rules; without any, nothing is hidden.
    #[must_use]
    pub fn new<S: AsRef<str>>(rules: &[S]) -> Redact {
        Redact(rules.iter().map(|rule| words(rule.as_ref())).filter(|words| !words.is_empty()).collect())
    }

    fn covers(&self, name: &str) -> bool {
        let name = words(name);
        self.0.iter().any(|rule| name.windows(rule.len()).any(|part| part == rule))
    }

    /// JSON text as it may be shown: unchanged but for the values under secret names, at any depth. Text that is not JSON
    /// gives `None`.
    #[must_use]
    pub fn shown<'a>(&self, json: &'a str) -> Option<Cow<'a, RawValue>> {
        let raw: &RawValue = serde_json::from_str(json).ok()?;
        match self.hidden(raw.get()) {
            None => Some(Cow::Borrowed(raw)),
            Some(text) => RawValue::from_string(text).ok().map(Cow::Owned),
        }
    }

    /// The text with something hidden; `None` if nothing has to be. One pass over text that is known to be JSON, where a string
    /// before a colon is a name and nothing else is.
    fn hidden(&self, json: &str) -> Option<String> {
        if self.0.is_empty() {
            return None;
        }
        let bytes = json.as_bytes();
        let (mut out, mut copied, mut at) = (Vec::new(), 0, 0);
        while at < bytes.len() {
            if bytes[at] != b'"' {
                at += 1;
                continue;
            }
            let (start, end) = (at, string_end(bytes, at));
            let after = space_end(bytes, end);
            at = end;
            if bytes.get(after) != Some(&b':') || !self.covers(&name(&json[start..end])) {
                continue;
            }
            let value = space_end(bytes, after + 1);
            at = value_end(bytes, value);
            // Nothing is hidden that is nothing.
            if matches!(&bytes[value..at], b"null" | b"true" | b"false" | b"\"\"") {
                continue;
            }
            out.extend_from_slice(&bytes[copied..value]);
            out.extend_from_slice(HIDDEN);
            copied = at;
        }
        if copied == 0 {
            return None;
        }
        out.extend_from_slice(&bytes[copied..]);
        String::from_utf8(out).ok()
    }
}

/// The end of the value that begins at `at`.
fn value_end(bytes: &[u8], at: usize) -> usize {
    let (mut end, mut depth) = (at, 0usize);
    while end < bytes.len() {
        match bytes[end] {
            b'"' => end = string_end(bytes, end),
            b'{' | b'[' => {
                depth += 1;
                end += 1;
            }
            b'}' | b']' if depth > 0 => {
                depth -= 1;
                end += 1;
            }
            b'}' | b']' | b',' if depth == 0 => break,
            _ => end += 1,
        }
        if depth == 0 && matches!(bytes[end - 1], b'"' | b'}' | b']') {
            break;
        }
    }
    // A number may have space behind it.
    end - bytes[at..end].iter().rev().take_while(|byte| byte.is_ascii_whitespace()).count()
}

/// The text of a name, without its escapes.
fn name(quoted: &str) -> Cow<'_, str> {
    match quoted.contains('\\') {
        true => serde_json::from_str(quoted).unwrap_or_default(),
        false => Cow::Borrowed(quoted.trim_matches('"')),
    }
}

/// The words of a name, in small letters: cut at what is neither letter nor digit, between letters and digits, before a capital
/// after a small letter, and before the last of several capitals if a small letter follows (`DB|Password`).
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before = ' ';
    let mut chars = name.chars().peekable();
    while let Some(c) = chars.next() {
        let begins = before.is_lowercase() || (before.is_uppercase() && chars.peek().is_some_and(|c| c.is_lowercase()));
        let cut = !c.is_alphanumeric() || c.is_numeric() != before.is_numeric() || (c.is_uppercase() && begins);
        if cut && words.last().is_some_and(|word| !word.is_empty()) {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| c.is_alphanumeric()) {
            word.extend(c.to_lowercase());
        }
        before = c;
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(json: &str) -> String {
        let rules = ["password", "secret", "token", "api_key", "apikey", "authorization"];
        Redact::new(&rules).shown(json).map_or_else(|| "no JSON".to_owned(), |raw| raw.get().to_owned())
    }

    #[test]
    fn c128_values_under_secret_names_are_hidden_at_any_depth_and_nothing_else_changes() {
        for (json, wanted) in [
            (r#"{"password": "x"}"#, r#"{"password": "[redacted]"}"#),
            (r#"{"a":1 , "password":12 , "b":2.50}"#, r#"{"a":1 , "password":"[redacted]" , "b":2.50}"#),
            (r#"[{"user":{"Password":["a","b"],"n":1}}]"#, r#"[{"user":{"Password":"[redacted]","n":1}}]"#),
            (r#"{"api_key":{"k":"}\""},"z":1}"#, r#"{"api_key":"[redacted]","z":1}"#),
            (
                r#"{"apiKey":"x","X-Api-Key":"x","old_api_key_2":"x"}"#,
                r#"{"apiKey":"[redacted]","X-Api-Key":"[redacted]","old_api_key_2":"[redacted]"}"#,
            ),
            (r#"{"p\u0061ssword":"x"}"#, r#"{"p\u0061ssword":"[redacted]"}"#),
            (r#"{"DB_PASSWORD":"x","accessToken":"x"}"#, r#"{"DB_PASSWORD":"[redacted]","accessToken":"[redacted]"}"#),
            (
                r#"{"DBPassword":"x","password1":"x","oauth2Token":"x","s3SecretKey":"x","APIKey":"x"}"#,
                r#"{"DBPassword":"[redacted]","password1":"[redacted]","oauth2Token":"[redacted]","s3SecretKey":"[redacted]","APIKey":"[redacted]"}"#,
            ),
            // Nothing to hide.
            (
                r#"{"passenger":1,"tokenizer2":1,"Tokens":1,"compassWord":1,"APIKeys":1}"#,
                r#"{"passenger":1,"tokenizer2":1,"Tokens":1,"compassWord":1,"APIKeys":1}"#,
            ),
            (r#"["password", "token:x"]"#, r#"["password", "token:x"]"#),
            (r#"{"max_tokens":5,"passwords":1,"tokenize":true}"#, r#"{"max_tokens":5,"passwords":1,"tokenize":true}"#),
            (
                r#"{"password":null,"token":false,"authorization":""}"#,
                r#"{"password":null,"token":false,"authorization":""}"#,
            ),
            (
                r#"{"k":"\"password\": \"x\"","big":12345678901234567890123}"#,
                r#"{"k":"\"password\": \"x\"","big":12345678901234567890123}"#,
            ),
            ("[]", "[]"),
            ("{", "no JSON"),
        ] {
            assert_eq!(shown(json), wanted);
        }
        assert_eq!(Redact::new::<&str>(&[]).shown(r#"{"password":1}"#).unwrap().get(), r#"{"password":1}"#);
    }
}
