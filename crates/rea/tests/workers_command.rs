//! Tasks that are programs: what they are told, what their end means, and that nothing of them is left.

mod workers_support;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ax::model::word::Word;
use ax::{Attempt, Outcome, Runner as _, Stop, StopReason};
use ax_model::TaskSpec;
use rea::workers::{Command, Pool, PoolOptions, RETRY_EXIT_CODE};
use workers_support::*;

fn shell(name: &str, script: &str, words: &[&str]) -> Command {
    // A script has braces of its own.
    let script = script.replace('{', "{{").replace('}', "}}");
    let argv = ["sh", "-c", &script, "sh"].into_iter().chain(words.iter().copied());
    Command {
        task: TaskSpec { name: format!("tasks:{name}"), ..TaskSpec::default() },
        argv: argv.map(|word| Word::parse(word).unwrap()).collect(),
        dir: ".".into(),
        env: vec![("OWN".into(), "a value".into())],
        retry_exit_codes: vec![RETRY_EXIT_CODE],
    }
}

/// A pool of commands alone, unless `change` loads code too.
async fn bed(commands: Vec<Command>, change: impl FnOnce(&mut PoolOptions)) -> Bed {
    let dir = tempfile::tempdir().unwrap();
    let mut options = PoolOptions { load: Vec::new(), commands, ..options(dir.path(), 2) };
    change(&mut options);
    Bed { pool: Pool::start(options).await.unwrap(), dir }
}

#[tokio::test]
async fn a_command_is_told_its_job_and_hands_a_result_back() {
    let told =
        r#"cat > "$1/stdin"; env > "$1/env"; pwd; echo 'to stderr' >&2; printf '{"n": %s}' "$2" > "$REA_RESULT""#;
    let dir = tempfile::tempdir().unwrap();
    let mut command = shell("told", told, &["{dir}", "{0}"]);
    command.dir = dir.path().to_owned();
    let bed = bed(vec![command], |o| o.url = Some("http://127.0.0.1:9".into())).await;
    let mut job = job("told", "[42]");
    job.kwargs = format!("{{\"dir\":{}}}", json(dir.path()));
    let (id, kwargs) = (job.attempt.id, job.kwargs.clone());
    assert_eq!(bed.run_job(job).await, Outcome::Done("{\"n\": 42}".into()));
    let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
    let stdin: serde_json::Value = serde_json::from_str(&read("stdin")).unwrap();
    assert_eq!(
        (&stdin["args"][0], stdin["task"].as_str(), stdin["attempt"].as_u64()),
        (&42.into(), Some("tasks:told"), Some(1))
    );
    let env = read("env");
    let has = |line: &str| env.lines().any(|l| l == line);
    assert!(has("REA_ARGS=[42]") && has(&format!("REA_KWARGS={kwargs}")) && has("OWN=a value"), "{env}");
    assert!(has(&format!("REA_TASK_ID={id}")) && has("REA_ATTEMPT=1") && has("REA_URL=http://127.0.0.1:9"), "{env}");
    assert!(env.contains("\nREA_FENCE=") && env.contains("\nREA_KEY=") && !env.contains("REA_LOAD"), "{env}");
    let here = dir.path().canonicalize().unwrap();
    assert_eq!(bed.log(id), format!("{}\nto stderr\n", here.display()));
    bed.close().await;
}

#[tokio::test]
async fn exit_codes_and_signals_mean_what_they_should() {
    let bed = bed(
        vec![
            shell("exit", "echo first; echo the reason; exit $1", &["{0}"]),
            shell("die", "kill -SEGV $$", &[]),
            shell("result", "printf '%s' \"$1\" > $REA_RESULT", &["{0}"]),
            shell("needs", "true", &["{name}"]),
        ],
        |o| o.result_max = 100,
    )
    .await;
    assert_eq!(bed.run("exit", "[0]").await, Outcome::Done("null".into()));
    let Outcome::Fatal(error) = bed.run("exit", "[3]").await else { panic!() };
    assert_eq!((error.kind.as_str(), error.message.as_str()), ("exit code 3", "the reason"));
    assert_eq!(error.traceback.as_deref(), Some("first\nthe reason"));
    let Outcome::Error(error, None) = bed.run("exit", "[75]").await else { panic!() };
    assert_eq!((error.cause.as_str(), error.kind.as_str()), ("error", "exit code 75"));
    assert_eq!(crashed(bed.run("die", "[]").await).kind, "signal 11 (SIGSEGV)");
    assert_eq!(bed.run("result", r#"[" [1] "]"#).await, Outcome::Done("[1]".into()));
    for (text, kind) in [("not json", "ResultNotJson"), (&"1".repeat(101), "ResultTooLarge")] {
        let Outcome::Fatal(error) = bed.run("result", &format!("[{text:?}]")).await else { panic!() };
        assert_eq!(error.kind, kind);
    }
    let Outcome::Fatal(error) = bed.run("needs", "[]").await else { panic!() };
    assert!(error.kind == "ArgumentMissing" && error.message.contains("{name}"), "{error:?}");
    bed.close().await;
}

#[tokio::test]
async fn a_stopped_command_ends_with_all_below_it() {
    let tree = "trap '' TERM; (setsid sh -c 'echo $$ >> \"$1\"; exec sleep 600' sh \"$1\" &) ; sh -c 'trap \"\" TERM; echo $$ >> \"$1\"; sleep 600; sleep 600' sh \"$1\"";
    let bed = bed(vec![shell("tree", tree, &["{0}"])], |_| {}).await;
    let file = bed.file("pids");
    let (stopper, running) = bed.start("tree", &format!("[{}]", json(&file)));
    eventually("both run", || pids(&file).len() == 2).await;
    let asked = Instant::now();
    stopper.stop(StopReason::Timeout);
    assert_eq!(ended(running).await, Outcome::Stopped);
    assert!(asked.elapsed() < GRACE + Duration::from_secs(2), "{:?}", asked.elapsed());
    assert!(!pids(&file).into_iter().any(is_alive));
    bed.close().await;
}

#[tokio::test]
async fn a_command_that_writes_without_end_can_be_stopped() {
    let mut command = shell("yes", "", &[]);
    command.argv = vec![Word::parse("yes").unwrap()];
    let bed = bed(vec![command], |_| {}).await;
    let (outcome, took) = bed.stop_after(Duration::from_millis(300), "yes", "[]").await;
    assert_eq!(outcome, Outcome::Stopped);
    assert!(took < GRACE + Duration::from_secs(2), "{took:?}");
    bed.close().await;
}

#[tokio::test]
async fn what_a_command_leaves_behind_ends_with_it() {
    let leave = "(setsid sh -c 'echo $$ > \"$1\"; exec sleep 600' sh \"$1\" >/dev/null 2>&1 &); while [ ! -s \"$1\" ]; do sleep 0.01; done";
    let bed = bed(vec![shell("leave", leave, &["{0}"])], |_| {}).await;
    let file = bed.file("pid");
    assert_eq!(bed.run("leave", &format!("[{}]", json(&file))).await, Outcome::Done("null".into()));
    assert!(!is_alive(pids(&file)[0]));
    bed.close().await;
}

#[tokio::test]
async fn commands_and_functions_share_the_slots() {
    let wait = "echo $$ >> \"$1\"; while [ ! -e \"$1.go\" ]; do sleep 0.02; done";
    let bed = bed(vec![shell("wait", wait, &["{0}"])], |o| o.load = vec![rea::workers::Load::File(tasks())]).await;
    bed.all_idle().await;
    let file = bed.file("running");
    let args = format!("[{}]", json(&file));
    let both: Vec<_> = (0..2).map(|_| bed.start("wait", &args)).collect();
    eventually("two run", || pids(&file).len() == 2).await;
    let (_stopper, third) = bed.start("echo", "[3]");
    tokio::time::sleep(Duration::from_millis(150)).await;
    assert!(!third.is_finished(), "three ran in two slots");
    std::fs::write(bed.file("running.go"), "").unwrap();
    for (_stopper, running) in both {
        assert_eq!(ended(running).await, Outcome::Done("null".into()));
    }
    assert_eq!(ended(third).await, Outcome::Done("[3]".into()));
    bed.close().await;
}

#[tokio::test]
async fn more_memory_than_the_limit_ends_a_command_and_a_function() {
    let python = "python3 -c 'import time; x = b\"x\" * (300 << 20); time.sleep(60)'";
    let mut command = shell("hungry", python, &[]);
    command.task.memory_bytes = Some(100 << 20);
    let mut modest = shell("modest", "echo ok", &[]);
    modest.task.memory_bytes = Some(100 << 20);
    let bed = bed(vec![command, modest], |o| o.load = vec![rea::workers::Load::File(tasks())]).await;
    for (task, args) in [("hungry", "[]"), ("limited_memory", "[300]")] {
        let begun = Instant::now();
        let error = crashed(bed.run(task, args).await);
        assert_eq!((error.kind.as_str(), error.cause.as_str()), ("oom", "crashed"), "{task}");
        assert!(error.message.contains("limit of 100 MiB") && begun.elapsed() < Duration::from_secs(10), "{error:?}");
    }
    assert_eq!(bed.run("modest", "[]").await, Outcome::Done("null".into()));
    assert_eq!(bed.run("limited_memory", "[1]").await, Outcome::Done("null".into()));
    bed.close().await;
}

#[tokio::test]
async fn arguments_of_any_size_and_output_of_any_kind_get_through() {
    let bed = bed(vec![shell("size", "wc -c; head -c 300000 /dev/zero; printf '\\n\\377 é'", &[])], |_| {}).await;
    let text = "x".repeat(900_000);
    let job = job("size", &format!("[{text:?}]"));
    let id = job.attempt.id;
    assert_eq!(bed.run_job(job).await, Outcome::Done("null".into()));
    let log = bed.log(id);
    assert!(log.split_whitespace().next().unwrap().parse::<usize>().unwrap() > 900_000, "{}", &log[..40]);
    assert!(log.ends_with('é'), "the end is missing");
    bed.close().await;
}

#[tokio::test]
async fn a_program_that_has_gone_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tool");
    std::fs::write(&file, "#!/bin/sh\n").unwrap();
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let mut command = shell("tool", "", &[]);
    command.argv = vec![Word::parse(file.to_str().unwrap()).unwrap()];
    let bed = bed(vec![command], |_| {}).await;
    assert_eq!(bed.run("tool", "[]").await, Outcome::Done("null".into()));
    std::fs::remove_file(&file).unwrap();
    let Outcome::Fatal(error) = bed.run("tool", "[]").await else { panic!() };
    assert!(error.message.contains("tool") && error.message.contains("No such file"), "{error:?}");
    bed.close().await;
}

/// A command that is started counts as started, whatever becomes of it.
#[tokio::test]
async fn a_command_is_said_to_have_started_before_it_runs() {
    let bed = bed(vec![shell("touch", "test -e \"$1\"", &["{0}"])], |_| {}).await;
    let file = bed.file("said");
    let (path, job) = (file.clone(), job("touch", &format!("[{}]", json(&file))));
    let started = Box::new(move || std::fs::write::<&Path, _>(&path, "").unwrap());
    let (_stopper, stop) = Stop::pair();
    let pool: &Arc<Pool> = &bed.pool;
    assert_eq!(pool.run(Attempt { started, ..attempt(job) }, stop).await, Outcome::Done("null".into()));
    bed.close().await;
}
