//! What the program is told: defaults, then `rea.toml`, then `REA_*`, then flags. Read raw, resolved once, plain afterwards.
//!
//! `table.rs` lists every setting: flags, help, the file, `rea config show` and `docs/settings.md` are made of it or
//! compared with it.

mod callback;
mod file;
mod flags;
mod limits;
mod place;
mod plain;
mod resolve;
mod schedules;
mod secret_file;
mod table;
mod tasks;
mod token;
mod value;

pub use callback::{CALLBACK_RECIPE, callback_secrets};
pub use file::FILE_NAME;
pub use flags::{All, Asking, Batch, Doors, Flags, Given, Server, StoreOnly};
pub use plain::{Reach, Serve, redact_by_default, serve};
pub use resolve::{Origin, Resolved};
pub use schedules::Declared;
pub use table::{Key, Setting, is_file};
pub use token::{TOKEN_RECIPE, client_token, read_tokens};
pub use value::{Kind, Value, seconds};

/// What is wrong with the settings, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadSetting {
    /// What is wrong.
    pub problem: String,
    /// What would be right.
    pub hint: String,
}

fn bad<T>(problem: impl Into<String>, hint: impl Into<String>) -> Result<T, BadSetting> {
    Err(BadSetting { problem: problem.into(), hint: hint.into() })
}

#[cfg(test)]
mod tests;
