//! `rea schedule next`: when a cron rule fires. Asks nobody; a rule can be tried before anything runs by it.

use ax::model::Timestamp;
use ax::model::cron::{Fire, Rule};
use clap::Args;
use serde_json::{Value, json};

use crate::cli::show::{self, Screen};
use crate::cli::{Exit, Failure};
use crate::http;
use crate::wire::time;

const EXAMPLES: &str = "Examples:
  rea schedule next '0 2 * * *' --tz Asia/Shanghai
  rea schedule next '*/15 9-17 * * MON-FRI' --tz Europe/Berlin -n 20
  rea schedule next '30 1 * * *' --tz America/New_York --from 2026-10-31T00:00:00Z
  rea schedule next @monthly --json

Five fields: minute hour day month weekday; six: seconds before them. Names (JAN, MON), lists, ranges and steps; L, W and #;
@hourly @daily @weekly @monthly @yearly. Weekday 0 and 7 are Sunday. Day and weekday both given: either.

When clocks change: a rule whose minute or hour begins with * is a rhythm and runs by elapsed time, 25 times on a long day for an
hourly one. Every other rule names times of day: one that is left out fires right after the gap, one that comes twice the first
time.";

/// The flags of `rea schedule next`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Next {
    /// The cron rule, in quotes
    #[arg(value_name = "RULE")]
    rule: String,
    /// Words that a rule without quotes was taken apart into
    #[arg(hide = true)]
    more: Vec<String>,
    /// The time zone whose clocks it goes by, an IANA name
    #[arg(long, value_name = "ZONE", default_value = "UTC")]
    tz: String,
    /// Fires after this instant [default: now]
    #[arg(long, value_name = "INSTANT", value_parser = time::parse)]
    from: Option<Timestamp>,
    /// How many
    #[arg(short = 'n', long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    count: u32,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Next {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        if !self.more.is_empty() {
            let told = format!("the rule is {:?}, and then there is {:?}", self.rule, self.more[0]);
            return Err(Failure::new(Exit::Usage, told)
                .hint("the rule goes in quotes, or the shell takes it apart: rea schedule next '0 2 * * *'"));
        }
        let rule = Rule::new(&self.rule, &self.tz).map_err(|e| Failure::new(Exit::Usage, e.problem).hint(e.hint))?;
        let after = self.from.unwrap_or_else(http::now);
        let fires = rule.fires(after, self.count as usize);
        if self.json {
            print_json(&self.rule, &rule, fires.collect())?
        } else {
            print(&rule, fires.collect())?
        }
        Ok(Exit::Ok)
    }
}

fn print(rule: &Rule, fires: Vec<Fire>) -> Result<(), Failure> {
    let kind = if rule.is_fixed() { "times of day" } else { "a rhythm: when clocks change it goes on by elapsed time" };
    show::note(&format!("{} · {} · {kind}", rule.reading(), rule.zone_name()));
    let screen = Screen::stdout();
    let row = |fire: Fire| {
        let at = Value::from(time::text(fire.at));
        let note = fire.note.map_or("", |note| note.text());
        // The zone stands above.
        let local = fire.local.split('[').next().unwrap_or_default().replacen('T', " ", 1);
        vec![screen.relative(&at), local, show::exact(at.as_str().unwrap_or_default()), note.to_owned()]
    };
    screen.table(&["WHEN", "CLOCKS SHOW", "UTC", "NOTE"], fires.into_iter().map(row).collect())
}

fn print_json(text: &str, rule: &Rule, fires: Vec<Fire>) -> Result<(), Failure> {
    let fire = |fire: Fire| {
        let note = fire.note.map(|note| note.text());
        json!({ "at": time::text(fire.at), "local": fire.local, "note": note })
    };
    show::json(&json!({
        "rule": text,
        "timezone": rule.zone_name(),
        "kind": if rule.is_fixed() { "fixed" } else { "elapsed" },
        "reading": rule.reading(),
        "fires": fires.into_iter().map(fire).collect::<Vec<_>>(),
    }))
}
