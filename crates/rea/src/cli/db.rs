//! `rea db`: looks after the store's file. All but `prune` open it themselves: no server may run meanwhile.

use clap::{Args, Subcommand};
use serde_json::json;

use super::prune;
use super::road::{LOCK_WAIT, cannot_open, open_store};
use super::{Exit, Failure, show};
use crate::settings::{Flags, Reach, StoreOnly};

/// The verbs of `rea db`.
#[derive(Args)]
pub(super) struct Db {
    #[command(subcommand)]
    verb: Verb,
}

/// Which store, and how to print.
#[derive(Args)]
struct Store {
    #[command(flatten)]
    flags: Flags<StoreOnly>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Subcommand)]
enum Verb {
    /// Make the store, or bring an older one up to this version
    Migrate {
        #[command(flatten)]
        store: Store,
    },
    /// Delete jobs that have ended, and what they have printed
    Prune(prune::Prune),
    /// Compare everything that the store keeps twice; exit code 1 when something does not agree
    Check {
        #[command(flatten)]
        store: Store,
    },
}

impl Db {
    pub(super) async fn run(self) -> Result<Exit, Failure> {
        match self.verb {
            Verb::Migrate { store } => migrate(&store).await,
            Verb::Prune(verb) => verb.run().await,
            Verb::Check { store } => check(&store).await,
        }
    }
}

/// Opening does it.
async fn migrate(store: &Store) -> Result<Exit, Failure> {
    let reach = Reach::new(&store.flags.given)?;
    let db = &reach.db;
    let engine = open_store(&reach.engine, LOCK_WAIT).await.map_err(|e| cannot_open(db, e))?;
    engine.close().await;
    match store.json {
        true => show::json(&json!({ "db": db.to_string_lossy(), "up_to_date": true }))?,
        false => show::line(format!("{} is up to date", db.display()))?,
    }
    Ok(Exit::Ok)
}

async fn check(store: &Store) -> Result<Exit, Failure> {
    let reach = Reach::new(&store.flags.given)?;
    let db = &reach.db;
    if !db.exists() {
        return Err(Failure::new(Exit::Unreachable, format!("there is no store at {}", db.display())));
    }
    let engine = open_store(&reach.engine, LOCK_WAIT).await.map_err(|e| cannot_open(db, e))?;
    let found = engine.client().check().await;
    engine.close().await;
    let faults = found.map_err(|e| Failure::new(Exit::Unreachable, e.to_string()))?;
    let sound = faults.is_empty();
    if store.json {
        show::json(&json!({ "db": db.to_string_lossy(), "sound": sound, "faults": faults }))?;
    } else {
        faults.iter().try_for_each(|fault| show::line(show::word(&fault.as_str().into())))?;
        if sound {
            show::line("sound")?;
        }
    }
    Ok(if sound { Exit::Ok } else { Exit::Failed })
}
