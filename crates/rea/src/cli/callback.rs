//! `rea callback`: makes the secrets that sign callbacks.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueHint};
use serde_json::json;

use super::show::{self, line, note};
use super::{Exit, Failure, secret_file};
use crate::callback::sign::{SECRETS_MAX, Secrets, secret_text};

const EXAMPLES: &str = "Examples:
  rea callback secret --file rea.callback     makes the file or adds to it; a running server sees it
  rea callback secret                         prints a secret

Then, in rea.toml: callback_secret_file = \"rea.callback\" under [serve]; and: rea enqueue TASK --callback URL.
While a file holds two secrets, callbacks are signed with both: add one, give it to the receiver, delete the old line.";

/// The flags of `rea callback`.
#[derive(Args)]
pub(super) struct Callback {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Make a secret that signs callbacks
    Secret(Secret),
}

#[derive(Args)]
#[command(after_help = EXAMPLES)]
struct Secret {
    /// Add it to this file, which only its owner can read, instead of printing it
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Callback {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let Verb::Secret(secret) = self.verb;
        secret.run()
    }
}

impl Secret {
    fn run(self) -> Result<Exit, Failure> {
        let secret = secret_text(&secret_file::random_bytes()?);
        if let Some(file) = &self.file {
            add(file, &secret)?;
        }
        if self.json {
            let told = self.file.is_none().then_some(&secret);
            return show::json(&json!({ "secret": told, "file": self.file })).map(|()| Exit::Ok);
        }
        match &self.file {
            Some(file) => {
                let file = file.display();
                line(format!("{file} holds a new secret now"))?;
                note(&format!("server:   serve.callback_secret_file = \"{file}\" in rea.toml"));
                note(
                    "receiver: give it the whole line, whsec_ included; docs/callbacks.md has the few lines that check a signature",
                );
            }
            None => line(&secret)?,
        }
        Ok(Exit::Ok)
    }
}

/// Appends a secret. A file that the server would refuse is refused here.
fn add(file: &Path, secret: &str) -> Result<(), Failure> {
    let text = secret_file::text(file)?;
    if !text.is_empty() {
        crate::settings::callback_secrets(file)?;
        let whole = format!("{}\n{secret}", text.trim_end());
        Secrets::parse(&whole).map_err(|_| {
            Failure::new(Exit::Usage, format!("{} has {SECRETS_MAX} secrets already", file.display()))
                .hint("delete the lines of old ones")
        })?;
    }
    secret_file::append(file, &text, secret)
}
