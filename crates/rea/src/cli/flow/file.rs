//! A flow in a file, TOML or JSON, as the body of a request.

use std::io::Read;
use std::path::Path;

use super::super::{Exit, Failure};
use crate::http::guard::BATCH_BODY_MAX;
use crate::wire::toml;

/// Reads the file, or standard input for `-`. What the file is called tells its form; else what it begins with.
///
/// # Errors
/// It can't be read, or is no TOML.
pub(in crate::cli) fn read(path: &Path) -> Result<String, Failure> {
    let shown = if path.as_os_str() == "-" { "standard input".to_owned() } else { path.display().to_string() };
    let unreadable = |e: std::io::Error| {
        Failure::new(Exit::Usage, format!("can't read {shown}: {e}"))
            .hint("name a file with a flow, .toml or .json, or - for standard input")
    };
    let mut bytes = Vec::new();
    let most = BATCH_BODY_MAX as u64 + 1;
    match path.as_os_str() == "-" {
        true => std::io::stdin().lock().take(most).read_to_end(&mut bytes).map_err(unreadable)?,
        false => {
            std::fs::File::open(path).map_err(unreadable)?.take(most).read_to_end(&mut bytes).map_err(unreadable)?
        }
    };
    if bytes.len() > BATCH_BODY_MAX {
        return Err(Failure::new(Exit::Usage, format!("{shown} is over {} MiB", BATCH_BODY_MAX >> 20))
            .hint("store large data elsewhere and pass its name"));
    }
    let text = String::from_utf8(bytes).map_err(|_| Failure::new(Exit::Usage, format!("{shown} is not UTF-8")))?;
    let is_json = match path.extension().and_then(|ending| ending.to_str()) {
        Some("json") => true,
        Some("toml") => false,
        _ => text.trim_start().starts_with('{'),
    };
    if is_json {
        return Ok(text);
    }
    toml::to_json(&text).map_err(|bad| {
        Failure::new(Exit::Usage, format!("{shown}, line {}: {}", bad.line, bad.problem))
            .hint("a flow in TOML: name = \"nightly\", then [nodes.fetch] with task = \"m:fetch\"")
    })
}
