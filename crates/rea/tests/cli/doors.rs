//! The first and the last door: `rea init`, `rea completions`, `rea man`.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::bed::Bed;

/// What `rea init` prints between its headings.
fn commands(out: &str) -> Vec<&str> {
    let next = out.split_once("next, in one terminal:\n").unwrap_or_else(|| panic!("{out}")).1;
    next.lines().filter_map(|line| line.strip_prefix("  ")).collect()
}

#[test]
fn what_init_prints_works_as_it_is_printed() {
    let bed = Bed::new();
    let made = bed.rea(&["init", "my jobs"]);
    assert_eq!((made.code, made.err.as_str()), (0, ""), "{}", made.err);
    let dir = bed.dir.path().join("my jobs");
    let [serve, greet, unsteady] = commands(&made.out)[..] else { panic!("{}", made.out) };
    let shell = |line: &str| {
        let mut command = Command::new("sh");
        command
            .arg("-c")
            .arg(format!("{line} 2>&1"))
            .current_dir(bed.dir.path())
            .env("REA_PORT", "0")
            .stdin(Stdio::null());
        command
    };
    let mut server = Command::new("sh");
    // `exec`, so that the signal at the end meets the server and not the shell around it.
    let line = serve.replace("&& ", "&& exec ");
    server.arg("-c").arg(line).current_dir(bed.dir.path()).env("REA_PORT", "0").stderr(Stdio::null());
    let server = Ended(server.spawn().unwrap());
    let begun = Instant::now();
    while !bed.rea(&["status", "--db", "my jobs/rea.db", "--json"]).out.contains("\"not_ready\":null") {
        assert!(begun.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(50));
    }
    let said = |line: &str| String::from_utf8(shell(line).output().unwrap().stdout).unwrap();
    assert_eq!(said(greet), "\"Hello, Ada!\"\n");
    let out = said(unsteady);
    assert!(out.contains("attempt 1 failed") && out.ends_with("\"the second attempt did it\"\n"), "{out}");
    drop(server);
    let ignored = std::fs::read_to_string(dir.join(".gitignore")).unwrap();
    assert!(ignored.contains("rea.db*"), "{ignored}");
    // Every setting that stands in a comment is one.
    let file = std::fs::read_to_string(dir.join("rea.toml")).unwrap();
    let live: Vec<&str> =
        file.lines().map(|l| if l.contains(" = ") { l.trim_start_matches("# ") } else { l }).collect();
    std::fs::write(dir.join("rea.toml"), live.join("\n")).unwrap();
    let shown = bed.rea(&["config", "show", "--changed", "--json", "--config", "my jobs/rea.toml"]);
    assert!(shown.json()["settings"].as_object().unwrap().len() >= 9, "{} {}", shown.out, shown.err);
}

/// SIGTERM when dropped, and waited for: its workers end with it.
struct Ended(std::process::Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.0.wait();
    }
}

#[test]
fn init_writes_over_nothing() {
    let bed = Bed::new();
    let before = std::fs::read_to_string(bed.dir.path().join("tasks.py")).unwrap();
    let said = bed.rea(&["init"]);
    assert_eq!(said.code, 2);
    assert!(said.err.contains("this directory has tasks.py already; nothing was written"), "{}", said.err);
    assert!(!bed.dir.path().join("rea.toml").exists());
    assert_eq!(std::fs::read_to_string(bed.dir.path().join("tasks.py")).unwrap(), before);
    assert_eq!(
        bed.rea(&["init", "a", "--json"]).json()["made"],
        serde_json::json!(["tasks.py", "rea.toml", ".gitignore"])
    );
    let again = bed.rea(&["init", "a"]);
    assert!(again.code == 2 && again.err.contains("a has tasks.py and rea.toml already"), "{}", again.err);
}

#[test]
fn completions_and_manual_pages_know_every_command() {
    let bed = Bed::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = bed.rea(&["completions", shell]);
        assert_eq!(script.code, 0, "{}", script.err);
        for word in ["enqueue", "mark-success", "config", "max-connections"] {
            assert!(script.out.contains(word), "{shell}: {word}");
        }
        assert!(!script.out.contains("__warden"), "{shell}");
    }
    // From a file: it is longer than an argument may be.
    let script = bed.dir.path().join("rea.bash");
    std::fs::write(&script, bed.rea(&["completions", "bash"]).out).unwrap();
    let syntax = Command::new("bash").arg("-n").arg(&script).output();
    assert!(syntax.is_ok_and(|said| said.status.success()), "bash does not read it");
    let page = bed.rea(&["man"]);
    assert!(page.out.contains(".TH rea 1") && page.out.contains("Exit codes"), "{}", page.out);
    let pages = bed.rea(&["man", "--out", "man1"]);
    assert_eq!(pages.code, 0, "{}", pages.err);
    for name in ["rea.1", "rea-enqueue.1", "rea-queue-limit.1", "rea-config-show.1"] {
        assert!(pages.out.contains(&format!("man1/{name}\n")), "{name}: {}", pages.out);
        let text = std::fs::read_to_string(bed.dir.path().join("man1").join(name)).unwrap();
        assert!(text.contains(".SH SYNOPSIS"), "{name}: {text}");
    }
}
