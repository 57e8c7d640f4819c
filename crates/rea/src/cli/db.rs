//! `rea db`: looks after the store's file. Opens it itself: no server may run meanwhile.

use std::time::Duration;

use clap::{Args, Subcommand};

use super::road::{cannot_open, open_store};
use super::{Exit, Failure, show};
use crate::settings::{Flags, Reach, StoreOnly};

/// How long another short command may hold the store.
const LOCK_WAIT: Duration = Duration::from_secs(2);

/// The verbs of `rea db`.
#[derive(Args)]
pub(super) struct Db {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Make the store, or bring an older one up to this version
    Migrate {
        #[command(flatten)]
        flags: Flags<StoreOnly>,
    },
    /// Compare everything that the store keeps twice; exit code 1 when something does not agree
    Check {
        #[command(flatten)]
        flags: Flags<StoreOnly>,
    },
}

impl Db {
    pub(super) async fn run(self) -> Result<Exit, Failure> {
        let (Verb::Migrate { flags } | Verb::Check { flags }) = &self.verb;
        let reach = Reach::new(&flags.given)?;
        let db = &reach.db;
        match self.verb {
            // Opening does it.
            Verb::Migrate { .. } => {
                let engine = open_store(&reach.engine, LOCK_WAIT).await.map_err(|e| cannot_open(db, e))?;
                engine.close().await;
                show::line(format!("{} is up to date", db.display()))?;
                Ok(Exit::Ok)
            }
            Verb::Check { .. } => {
                if !db.exists() {
                    return Err(Failure::new(Exit::Unreachable, format!("there is no store at {}", db.display())));
                }
                let engine = open_store(&reach.engine, LOCK_WAIT).await.map_err(|e| cannot_open(db, e))?;
                let found = engine.client().check().await;
                engine.close().await;
                let faults = found.map_err(|e| Failure::new(Exit::Unreachable, e.to_string()))?;
                for fault in &faults {
                    show::line(show::word(&fault.as_str().into()))?;
                }
                if faults.is_empty() {
                    show::line("sound")?;
                    return Ok(Exit::Ok);
                }
                Ok(Exit::Failed)
            }
        }
    }
}
