//! What jobs write to stdout and stderr: to the right attempt, bounded, and never taken for the protocol.

mod workers_support;

use std::fs;
use std::time::{Duration, Instant};

use ax::Outcome;
use workers_support::*;

#[tokio::test]
async fn c121_c122_output_is_log_and_never_protocol() {
    let bed = Bed::new(1).await;
    let job = bed.job("pollute", "[]");
    let id = job.attempt.id;
    assert_eq!(bed.run_job(job).await, Outcome::Done("\"right\"".into()));
    let log = bed.log(id);
    for part in ["no newline", "from C", "\"fake\"", "to stderr", "from a grandchild", "and its stderr"] {
        assert!(log.contains(part), "{part} is not in {log:?}");
    }
    // The job closed its stdout; the next one has its own.
    let next = bed.job("say", "[\"still here\"]");
    let id = next.attempt.id;
    bed.run_job(next).await;
    assert_eq!(bed.log(id), "still here\n");
    bed.close().await;
}

#[tokio::test]
async fn each_attempt_gets_exactly_its_own_output() {
    let bed = Bed::new(2).await;
    let run = |from: usize| {
        let bed = &bed;
        async move {
            for number in from..from + 150 {
                let job = bed.job("say", &format!("[\"line {number}\"]"));
                let id = job.attempt.id;
                bed.run_job(job).await;
                assert_eq!(bed.log(id), format!("line {number}\n"));
            }
        }
    };
    tokio::join!(run(0), run(1000));
    let silent = bed.job("nothing", "[]");
    let id = silent.attempt.id;
    bed.run_job(silent).await;
    assert_eq!(bed.pool.logs().attempts(id).unwrap(), []);
    bed.close().await;
}

#[tokio::test]
async fn what_a_stopped_job_wrote_is_kept() {
    let bed = Bed::new(1).await;
    let (stopper, stop) = ax::Stop::pair();
    let job = bed.job("write_much", "[1000000]");
    let id = job.attempt.id;
    let pool = bed.pool.clone();
    let running = tokio::spawn(async move { ax::Runner::run(&*pool, attempt(job), stop).await });
    eventually("it writes", || !bed.log(id).is_empty()).await;
    stopper.stop(ax::StopReason::Timeout);
    assert_eq!(running.await.unwrap(), Outcome::Stopped);
    assert!(bed.log(id).starts_with("xxxx"));
    bed.close().await;
}

#[tokio::test]
async fn a_flood_is_cut_and_marked_and_costs_no_memory() {
    let bed = Bed::with(1, |o| o.log_bytes = 1 << 20).await;
    let before = resident_kib();
    let begun = Instant::now();
    let job = bed.job("write_much", "[500]");
    let id = job.attempt.id;
    assert_eq!(bed.run_job(job).await, Outcome::Done("null".into()));
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    let log = bed.log(id);
    let mark = "\n… [output cut by rea after 1048576 bytes]\n";
    assert!(log.ends_with(mark) && log.len() == (1 << 20) + mark.len(), "{}", log.len());
    assert!(resident_kib() < before + 16 * 1024, "from {before} KiB to {} KiB", resident_kib());
    let job = bed.job("write_much", "[2, false]");
    let id = job.attempt.id;
    bed.run_job(job).await;
    assert_eq!(bed.log(id), format!("{}… [line cut by rea after 65536 bytes]", "x".repeat(65536)));
    bed.close().await;
}

fn resident_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
