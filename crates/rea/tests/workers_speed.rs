//! How fast jobs go through the pool. Prints figures where `REA_SPEED` asks for them (the number of jobs), on a release
//! build: `REA_SPEED=100000 cargo test --release -p rea --test workers_speed -- --nocapture`. Else it only makes sure that
//! many jobs get through on all slots at once.

mod workers_support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use ax::{Outcome, Runner as _, Stop};
use workers_support::*;

const SLOTS: usize = 4;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_go_through_all_slots_at_once() {
    let wanted = std::env::var("REA_SPEED").ok().and_then(|n| n.parse().ok());
    let jobs: usize = wanted.unwrap_or(2_000);
    let bed = Bed::with(SLOTS, |o| o.recycle_jobs = u32::MAX).await;
    bed.all_idle().await;
    for (task, args) in [("nothing", "[]"), ("echo", r#"[1001,"some text",{"lang":"en"}]"#), ("say", r#"["a line"]"#)] {
        let left = Arc::new(AtomicUsize::new(jobs));
        let (begun, cpu) = (Instant::now(), cpu_ms());
        let lanes: Vec<_> = (0..SLOTS)
            .map(|_| {
                let (pool, left) = (bed.pool.clone(), left.clone());
                tokio::spawn(async move {
                    while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok() {
                        let (_stopper, stop) = Stop::pair();
                        let outcome = pool.run(attempt(job(task, args)), stop).await;
                        assert!(matches!(outcome, Outcome::Done(_)), "{outcome:?}");
                    }
                })
            })
            .collect();
        for lane in lanes {
            lane.await.unwrap();
        }
        if wanted.is_some() {
            let took = begun.elapsed();
            let each = |ms: u64| ms as f64 * 1000.0 / jobs as f64;
            let (server, children) = (each(cpu_ms().0 - cpu.0), each(cpu_ms().1 - cpu.1));
            let rate = jobs as f64 / took.as_secs_f64();
            println!(
                "{task}: {rate:.0} jobs a second; processor time of each: {server:.1} µs here, {children:.1} µs in Python"
            );
        }
    }
    bed.close().await;
}

/// Processor time used so far by this process and by all Python processes of this user, milliseconds.
fn cpu_ms() -> (u64, u64) {
    let of = |pid: &str| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let (name, rest) = stat.rsplit_once(") ").unwrap_or_default();
        let ticks: u64 = rest.split(' ').skip(11).take(2).filter_map(|n| n.parse::<u64>().ok()).sum();
        (name.contains("(python"), ticks * 10)
    };
    let all = std::fs::read_dir("/proc").unwrap().filter_map(|e| e.ok()?.file_name().into_string().ok());
    let children = all.map(|pid| of(&pid)).filter(|(python, _)| *python).map(|(_, ms)| ms).sum();
    (of("self").1, children)
}
