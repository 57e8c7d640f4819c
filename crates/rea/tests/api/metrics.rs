//! The page for Prometheus.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::bed::Bed;

/// The value of one series.
fn value(page: &str, series: &str) -> f64 {
    let line = page.lines().find_map(|l| l.strip_prefix(series)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {series} in {page}")).parse().unwrap()
}

#[tokio::test]
async fn jobs_times_and_the_process_are_told() {
    let bed = Bed::new().await;
    for _ in 0..3 {
        let id = bed.enqueue(json!({ "task": "echo", "queue": "x'onmouseover='\"alert(1)\\" })).await;
        bed.reach(&id, "success").await;
    }
    let dead = bed.enqueue(json!({ "task": "broken" })).await;
    bed.reach(&dead, "dead").await;
    bed.enqueue(json!({ "task": "echo", "delay": 3600 })).await;
    bed.post("/queues/default/pause", "{}").await;
    bed.enqueue(json!({ "task": "echo" })).await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    let (status, kind, page) = bed.text("/metrics").await;
    assert_eq!((status, kind.as_str()), (200, "text/plain; version=0.0.4; charset=utf-8"));
    for (series, expected) in [
        ("rea_jobs{queue=\"default\",state=\"pending\"}", 2.0),
        ("rea_jobs{queue=\"default\",state=\"dead\"}", 1.0),
        ("rea_jobs{queue=\"x'onmouseover='\\\"alert(1)\\\\\",state=\"success\"}", 3.0),
        ("rea_jobs_finished_total{queue=\"default\",task=\"broken\",outcome=\"dead\"}", 1.0),
        ("rea_queue_paused{queue=\"default\"}", 1.0),
        ("rea_steps_total{action=\"enqueue\"}", 6.0),
        ("rea_steps_total{action=\"finish\"}", 3.0),
        ("rea_steps_total{action=\"fail\"}", 1.0),
        ("rea_job_wait_seconds_count", 4.0),
        ("rea_attempt_run_seconds_count", 4.0),
        ("rea_job_turnaround_seconds_bucket{le=\"+Inf\"}", 4.0),
        ("rea_workers", 4.0),
        ("rea_workers_busy", 0.0),
        ("rea_workers_idle", 4.0),
        ("rea_local_queue_jobs", 0.0),
        ("rea_ready", 1.0),
        ("rea_log_lines_dropped_total", 0.0),
    ] {
        assert!((value(&page, series) - expected).abs() < 1e-9, "{series}: {page}");
    }
    assert!(value(&page, "rea_queue_oldest_ready_age_seconds{queue=\"default\"}") > 0.01);
    // C080: how large the log is that waits to be written back.
    assert!(value(&page, "rea_store_wal_bytes") > 4_096.0 && value(&page, "process_resident_memory_bytes") > 1e6);
    bed.end().await;
}

/// C107: plain text, and as Prometheus wants it: each sample after the head of its family, each series once, each family
/// with base units and, if it counts, with `_total`.
#[tokio::test]
async fn the_page_keeps_the_rules_of_the_format() {
    let bed = Bed::new().await;
    let id = bed.enqueue(json!({ "task": "echo" })).await;
    bed.reach(&id, "success").await;
    let (_, _, page) = bed.text("/metrics").await;
    let (mut family, mut kind) = (String::new(), String::new());
    let (mut families, mut seen) = (HashSet::new(), HashSet::new());
    for line in page.lines() {
        if let Some(head) = line.strip_prefix("# HELP ") {
            let (name, help) = head.split_once(' ').unwrap();
            assert!(families.insert(name.to_owned()) && !help.is_empty(), "{name} twice");
            family = name.to_owned();
        } else if let Some(head) = line.strip_prefix("# TYPE ") {
            let (name, of) = head.split_once(' ').unwrap();
            assert_eq!(name, family);
            kind = of.to_owned();
            assert_eq!(kind == "counter", name.ends_with("_total"), "{name}");
            assert!(!name.ends_with("_ms") && !name.contains("_us_") && !name.ends_with("_minutes"), "{name}");
        } else {
            let (series, number) = line.rsplit_once(' ').unwrap();
            let name = series.split('{').next().unwrap();
            let ours = if kind == "histogram" { name.starts_with(&family) } else { name == family };
            assert!(ours && number.parse::<f64>().is_ok_and(f64::is_finite), "{line}");
            assert!(seen.insert(series.to_owned()), "{series} twice");
        }
    }
    assert_eq!(bed.get("/metrics?x=1").await.1["code"], "unknown_field");
    bed.end().await;
}

/// A scrape asks kept counts, whatever the number of jobs: 20,000 jobs in 200 queues.
#[tokio::test]
async fn a_scrape_of_many_jobs_and_queues_is_quick_and_bounded() {
    let bed = Bed::new().await;
    for batch in 0..10 {
        let job =
            |n: usize| json!({ "task": "echo", "delay": 3600, "queue": format!("q{}", (batch * 2_000 + n) % 200) });
        let jobs: Vec<Value> = (0..2_000).map(job).collect();
        bed.post("/jobs", Value::from(jobs).to_string()).await;
    }
    let mut best = Duration::MAX;
    let mut page = String::new();
    for _ in 0..5 {
        let begun = Instant::now();
        page = bed.text("/metrics").await.2;
        best = best.min(begun.elapsed());
    }
    assert!((value(&page, "rea_jobs{queue=\"other\",state=\"pending\"}") - 10_000.0).abs() < 1e-9);
    assert!(page.len() < 200_000, "{} bytes", page.len());
    // 10 ms is the promise; this is a debug build on a busy machine.
    assert!(best < Duration::from_millis(100), "{best:?}");
    bed.end().await;
}
