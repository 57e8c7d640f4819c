//! Schedules, their ticks and what lies ahead of them, for people.

use serde_json::Value;

use crate::cli::Failure;
use crate::cli::show::{self, Screen, duration_ms, exact, line, word};

/// A line a schedule.
pub(super) fn list(schedules: &[Value]) -> Result<(), Failure> {
    let screen = Screen::stdout();
    let rows = schedules.iter().map(|s| {
        vec![
            word(&s["name"]),
            rule(s),
            started(s),
            word(&s["state"]),
            screen.relative(&s["next_at"]),
            last(&screen, &s["last_tick"]),
        ]
    });
    screen.table(&["NAME", "RULE", "TASK", "STATE", "NEXT", "LAST"], rows.collect())
}

fn rule(schedule: &Value) -> String {
    match (schedule["cron"].as_str(), schedule["timezone"].as_str()) {
        (Some(_), Some("UTC")) => word(&schedule["cron"]),
        (Some(_), _) => format!("{} {}", word(&schedule["cron"]), word(&schedule["timezone"])),
        (None, _) => format!("every {}", interval(schedule["every"].as_f64().unwrap_or_default())),
    }
}

/// A length of time as a person would write it: in the largest unit of which it is a whole number.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "an interval has a bound, and is not negative"
)]
fn interval(seconds: f64) -> String {
    const UNITS: [(u64, &str); 4] = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s")];
    let ms = (seconds * 1_000.0).round() as u64;
    match UNITS.into_iter().find(|(unit, _)| ms.is_multiple_of(*unit)) {
        Some((unit, name)) => format!("{} {name}", ms / unit),
        None => format!("{seconds} s"),
    }
}

fn last(screen: &Screen, tick: &Value) -> String {
    if tick.is_null() {
        return "-".to_owned();
    }
    format!("{} {}", ended(tick), screen.relative(&tick["last"]))
}

/// How a tick ended: the state of its job or flow, or why it has none.
fn ended(tick: &Value) -> String {
    match (tick["state"].as_str(), tick["reason"].as_str()) {
        (Some(_), _) => word(&tick["state"]),
        (None, Some(_)) => format!("{} ({})", word(&tick["outcome"]), word(&tick["reason"])),
        (None, None) => word(&tick["outcome"]),
    }
}

/// Everything about one.
pub(super) fn one(schedule: &Value) -> Result<(), Failure> {
    let screen = Screen::stdout();
    line(format!("{}  {}", word(&schedule["name"]), word(&schedule["state"])))?;
    line(format!("rule       {} ({})", rule(schedule), word(&schedule["reading"])))?;
    match schedule["flow"].is_null() {
        true => line(format!("job        {}", word(&schedule["job"])))?,
        false => line(format!("flow       {}: {}", word(&schedule["flow"]["name"]), nodes(schedule)))?,
    }
    line(format!("late       {}", word(&schedule["catch_up"])))?;
    line(format!("overlap    {}", word(&schedule["overlap"])))?;
    line(format!("next       {}", screen.moment(&schedule["next_at"])))?;
    for (title, field) in
        [("paused", "paused_since"), ("reason", "pause_reason"), ("trouble", "trouble"), ("declared", "declared_by")]
    {
        if !schedule[field].is_null() {
            let value = if field == "paused_since" { screen.moment(&schedule[field]) } else { word(&schedule[field]) };
            line(format!("{title:<10} {value}"))?;
        }
    }
    if schedule["offered"] == false {
        line("note       no worker offers its task now")?;
    }
    let ticks = schedule["ticks"].as_array().map(Vec::as_slice).unwrap_or_default();
    if ticks.is_empty() {
        return Ok(());
    }
    line("")?;
    ticks_table(&screen, ticks)
}

/// What became of ticks.
pub(crate) fn ticks_table(screen: &Screen, ticks: &[Value]) -> Result<(), Failure> {
    let rows = ticks.iter().map(|tick| {
        let least = if tick["count_is_least"] == true { "+" } else { "" };
        vec![
            screen.relative(&tick["tick"]),
            exact(tick["tick"].as_str().unwrap_or_default()),
            format!("{}{least}", tick["count"]),
            ended(tick),
            match (&tick["flow_id"], &tick["task_id"]) {
                (Value::Null, Value::Null) => word(&tick["detail"]),
                (Value::Null, job) => word(job),
                (flow, _) => format!("flow {}", word(flow)),
            },
        ]
    });
    screen.table(&["TICK", "UTC", "N", "STATE", "JOB"], rows.collect())
}

/// What lies ahead.
pub(super) fn plan(plan: &Value) -> Result<(), Failure> {
    let screen = Screen::stdout();
    let zone = plan["timezone"].as_str().map_or(String::new(), |_| format!(" \u{b7} {}", word(&plan["timezone"])));
    show::note(&format!("{}{zone}", word(&plan["reading"])));
    if plan["state"] != "active" {
        show::note(&format!("note: it is {}; this is what it would do", word(&plan["state"])));
    }
    let fires = |fires: &Value| -> Vec<Vec<String>> {
        let row = |fire: &Value| {
            let local = word(&fire["local"]);
            let note = fire["note"].as_str().map_or(String::new(), str::to_owned);
            vec![
                screen.relative(&fire["at"]),
                local.split('[').next().unwrap_or_default().replacen('T', " ", 1),
                exact(fire["at"].as_str().unwrap_or_default()),
                note,
            ]
        };
        fires.as_array().into_iter().flatten().map(row).collect()
    };
    screen.table(&["WHEN", "CLOCKS SHOW", "UTC", "NOTE"], fires(&plan["fires"]))?;
    for odd in plan["clock_changes"].as_array().into_iter().flatten() {
        line("")?;
        line(format!("clocks change {}: {}", screen.relative(&odd["at"]), word(&odd["clocks"])))?;
        if let Some(note) = odd["note"].as_str() {
            line(format!("  {note}"))?;
        }
        for row in fires(&odd["fires"]) {
            line(format!("  {}  {}", row[1], row[3]))?;
        }
    }
    forecast(&plan["forecast"])
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "for people")]
fn forecast(forecast: &Value) -> Result<(), Failure> {
    if forecast.is_null() {
        return Ok(());
    }
    let span = |field: &str| duration_ms((forecast[field].as_f64().unwrap_or_default() * 1000.0) as u64);
    line("")?;
    line(format!(
        "a run takes {} (mean of {}); the shortest gap is {}",
        span("mean_run"),
        forecast["runs"],
        span("shortest_gap")
    ))?;
    let fate = match forecast["overlap"].as_str() {
        Some("skip") => "are skipped",
        Some("queue") => "wait for it",
        Some("cancel_old") => "cancel the run before",
        _ => "run beside it",
    };
    match forecast["overlaps"].as_u64() {
        Some(0) | None => line(format!("none of the next {} ticks will meet the run before", forecast["ticks"])),
        Some(n) => line(format!(
            "{n} of the next {} ticks come before the run before has ended: they {fate}",
            forecast["ticks"]
        )),
    }
}

/// What it starts, in a word.
fn started(schedule: &Value) -> String {
    match schedule["flow"]["name"].as_str() {
        Some(_) => format!("flow {}", word(&schedule["flow"]["name"])),
        None => word(&schedule["job"]["task"]),
    }
}

fn nodes(schedule: &Value) -> String {
    let names = schedule["flow"]["nodes"].as_array().map(Vec::as_slice).unwrap_or_default();
    names.iter().map(word).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_in_the_unit_that_people_would_take() {
        for (seconds, text) in [
            (43_200.0, "12 h"),
            (86_400.0, "1 d"),
            (5_400.0, "90 min"),
            (30.0, "30 s"),
            (1.5, "1.5 s"),
            (90_061.0, "90061 s"),
        ] {
            assert_eq!(interval(seconds), text);
        }
    }
}
