//! `rea token`: makes tokens, so that nobody has to think of one.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum, ValueHint};
use serde_json::json;

use super::show::{self, line, note};
use super::{Exit, Failure, secret_file};
use crate::http::tokens::{Hash, Role};

const EXAMPLES: &str = "Examples:
  rea token new --file rea.token          makes the file or adds to it; a running server sees it
  rea token new grafana --role read       prints the line TOKEN NAME ROLE

To rotate: add a new token, give it to the clients, then delete the old line. See docs/security.md.";

/// The flags of `rea token`.
#[derive(Args)]
pub(super) struct Tokens {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Make a token that nobody can guess
    New(New),
}

#[derive(Args)]
#[command(after_help = EXAMPLES)]
struct New {
    /// What people call it
    #[arg(default_value = "main")]
    name: String,
    /// What its holder may do: everything, or only read
    #[arg(long, value_enum, default_value_t = May::Admin)]
    role: May,
    /// Add it to this file, which only its owner can read, instead of printing it
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum May {
    Admin,
    Read,
}

impl Tokens {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let Verb::New(new) = self.verb;
        new.run()
    }
}

impl New {
    fn run(self) -> Result<Exit, Failure> {
        if self.name.is_empty()
            || self.name.len() > 64
            || !self.name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.@".contains(c))
        {
            return Err(Failure::new(Exit::Usage, "the name must be of 1 to 64 letters, digits and -_.@"));
        }
        let token: String = secret_file::random_bytes()?.iter().map(|byte| format!("{byte:02x}")).collect();
        let hashed = format!("sha256:{}", Hash::of(token.as_bytes()).to_hex());
        let role = match self.role {
            May::Admin => Role::Admin,
            May::Read => Role::Read,
        };
        let whole = format!("{token} {} {}", self.name, role.as_str());
        if let Some(file) = &self.file {
            add(file, &whole)?;
        }
        if self.json {
            let told = self.file.is_none().then_some(&token);
            show::json(
                &json!({ "name": self.name, "role": role.as_str(), "token": told, "hash": hashed, "file": self.file }),
            )?;
            return Ok(Exit::Ok);
        }
        match &self.file {
            Some(file) => {
                let file = file.display();
                line(format!("{file} holds the token \"{}\" ({}) now", self.name, role.as_str()))?;
                note(&format!("server:  rea serve tasks.py --token-file {file}"));
                note(&format!(
                    "clients: REA_TOKEN_FILE={file}, or --token-file {file}; in HTTP: Authorization: Bearer TOKEN"
                ));
            }
            None => {
                line(&whole)?;
                note(
                    "A line of the server's token file; clients send its first word. This line does for the server, too:",
                );
                note(&format!("{hashed} {} {}", self.name, role.as_str()));
            }
        }
        Ok(Exit::Ok)
    }
}

/// Appends a line. A file that others can read is refused, because the server would refuse it.
fn add(file: &Path, whole: &str) -> Result<(), Failure> {
    let text = secret_file::text(file)?;
    let before = if text.is_empty() { None } else { crate::settings::read_tokens(Some(file), None)? };
    let name = whole.split(' ').nth(1).unwrap_or_default();
    if before.iter().flatten().any(|known| known.name == name) {
        return Err(Failure::new(Exit::Usage, format!("{} has a token named {name} already", file.display()))
            .hint("give the new one another name: rea token new NAME --file …"));
    }
    secret_file::append(file, &text, whole)
}
