//! W5: what the real server takes while it has nothing to do: memory, processor time, time to start, time to say how it is.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::NOOP_PYTHON;
use super::plan::Bench;
use super::table::{Row, Series, Target, percentile};
use crate::http::Connection;
use crate::python;
use crate::server::{self, Server};

const CALL: usize = 10_000;
const MIB: f64 = 1_048_576.0;
/// How long the idle processor time is watched.
const IDLE: Duration = Duration::from_secs(60);

pub(super) fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let mut rows = Vec::from(starts(bench)?);
    let dir = bench.folder()?;
    let running = bench.server(dir.path(), &[])?;
    let mut control = running.connect();
    put_future(&mut control, 100_000)?;
    let small = resident_mib(&running)?;
    rows.push(
        Row::new("W5", "W5 RSS 100k future", "MiB", Series(vec![small]))
            .target(Target::AtMost(20.0))
            .note("the server process, right after it took the jobs over HTTP; its workers not counted"),
    );
    put_future(&mut control, 900_000)?;
    let large = resident_mib(&running)?;
    rows.push(Row::new("W5", "W5 RSS 1M future", "MiB", Series(vec![large])).target(Target::AtMost(small + 2.0)));
    rows.push(status_times(&mut control)?);
    running.stop(Duration::from_secs(40))?;
    // A fresh process on the same store shows what the rows themselves cost, without what taking them in left behind.
    let again = bench.server(dir.path(), &[])?;
    std::thread::sleep(Duration::from_secs(2));
    rows.push(Row::new("W5", "W5 RSS 1M future, restarted", "MiB", Series(vec![resident_mib(&again)?])));
    let ready_ms = again.ready_after.as_secs_f64() * 1e3;
    rows.push(Row::new("W5", "W5 start to ready, 1M future", "ms", Series(vec![ready_ms])));
    again.stop(Duration::from_secs(40))?;
    Ok(rows)
}

/// Start to ready on an empty store: with the `python3` of the path, and with the program that it comes to.
fn starts(bench: &Bench) -> Result<[Row; 2]> {
    let python = python::itself().context("there is no python3")?;
    let [mut usual, mut bare] = [Series::default(), Series::default()];
    for _ in 0..bench.runs {
        for (times, environment) in [(&mut usual, vec![]), (&mut bare, vec![("REA_PYTHON", python.clone())])] {
            let dir = bench.folder()?;
            let server = bench.server(dir.path(), &environment)?;
            times.0.push(server.ready_after.as_secs_f64() * 1e3);
            server.stop(Duration::from_secs(40))?;
        }
    }
    let note = "empty store, from the start of the process to the first good /readyz, looked at every 2 ms";
    let bare_note = "without what looks for it on the path, such as pyenv's script";
    Ok([
        Row::new("W5", "W5 start to ready", "ms", usual).target(Target::AtMost(100.0)).note(note),
        Row::new("W5", "W5 start to ready, Python itself", "ms", bare).note(bare_note),
    ])
}

fn put_future(control: &mut Connection, n: usize) -> Result<()> {
    let job = format!("{{\"task\":\"{NOOP_PYTHON}\",\"args\":[1],\"delay\":2592000}}");
    let batch = format!("[{}]", vec![job; CALL].join(","));
    for _ in 0..n / CALL {
        let answer = control.post("/jobs", &batch)?;
        ensure!(answer.is_success(), "enqueue: {} {}", answer.status, answer.body);
    }
    Ok(())
}

fn resident_mib(server: &Server) -> Result<f64> {
    let bytes = server::resident_bytes(server.pid()).context("the server's memory is not shown by this system")?;
    #[expect(clippy::cast_precision_loss, reason = "a size for people")]
    Ok(bytes as f64 / MIB)
}

/// Processor seconds in a minute without work, of the server and of all its processes.
pub(super) fn idle(bench: &Bench) -> Result<Vec<Row>> {
    let dir = bench.folder()?;
    let server = bench.server(dir.path(), &[])?;
    put_future(&mut server.connect(), 100_000)?;
    // What follows a start and a bulk load is not idleness yet.
    std::thread::sleep(Duration::from_secs(3));
    let used = |pid: u32| server::cpu_seconds(pid).unwrap_or(0.0);
    let family = server::family(server.pid());
    let before: Vec<f64> = family.iter().map(|pid| used(*pid)).collect();
    std::thread::sleep(IDLE);
    let spent: Vec<f64> = family.iter().zip(before).map(|(pid, before)| used(*pid) - before).collect();
    let own = *spent.first().context("the server is gone")?;
    server.stop(Duration::from_secs(40))?;
    Ok(vec![
        Row::new("W5", "W5 idle CPU, server", "s/60 s", Series(vec![own])).note("beside 100,000 future jobs"),
        Row::new("W5", "W5 idle CPU, with workers", "s/60 s", Series(vec![spent.iter().sum()])),
    ])
}

fn status_times(control: &mut Connection) -> Result<Row> {
    let mut times = Vec::new();
    for _ in 0..100 {
        let begun = Instant::now();
        let answer = control.get("/status")?;
        times.push(begun.elapsed().as_secs_f64() * 1e3);
        ensure!(answer.is_success(), "/status: {}", answer.status);
    }
    let p99 = percentile(&times, 0.99);
    Ok(Row::new("W5", "W5 /status", "ms", Series(times))
        .target(Target::AtMost(10.0))
        .note(format!("beside a million jobs; p99 {p99:.2} ms")))
}
