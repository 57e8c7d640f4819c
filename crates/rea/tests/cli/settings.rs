//! `rea.toml` and `rea config`, as a person meets them.

use crate::bed::Bed;

impl Bed {
    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.dir.path().join(name), text).unwrap();
    }
}

#[tokio::test]
async fn the_file_in_the_working_directory_holds_for_every_command() {
    let bed = Bed::with_store().await;
    std::fs::rename(bed.dir.path().join("rea.db"), bed.dir.path().join("other.db")).unwrap();
    bed.write(
        "rea.toml",
        "db = \"other.db\"\n[jobs]\npriority = 2\ntimeout = \"none\"\nqueue = \"slow\"\n[limits]\nargs = \"1KiB\"\n",
    );
    let id = bed.rea(&["enqueue", "echo", "--delay", "1h"]).word().to_owned();
    let job = bed.rea(&["job", &id, "--json"]).json();
    assert_eq!((&job["priority"], &job["queue"]), (&2.into(), &"slow".into()), "{job}");
    assert!(job["timeout"].is_null() && job["max_attempts"] == 3, "{job}");
    let refused = bed.rea(&["enqueue", "echo", &"x".repeat(1100)]);
    assert!(refused.code == 4 && refused.err.contains("the limit is 1024"), "{}", refused.err);
    assert_eq!(bed.rea(&["db", "check"]).word(), "sound");
    // A flag goes before the file; a named file before the found one.
    assert_eq!(bed.rea(&["jobs", "--db", "rea.db"]).code, 5);
    bed.write("two.toml", "db = \"nowhere.db\"\n");
    let said = bed.rea(&["jobs", "--config", "two.toml"]);
    assert!(said.code == 5 && said.err.contains("no store at nowhere.db"), "{}", said.err);
    // A store that is named nearer than the server is meant.
    bed.write("rea.toml", "url = \"127.0.0.1:9\"\n");
    assert_eq!(bed.rea(&["jobs", "--db", "other.db"]).code, 0);
    assert!(bed.rea(&["jobs"]).err.contains("can't reach the server at http://127.0.0.1:9"));
}

#[test]
fn a_server_runs_by_the_file_and_says_where_it_is_wrong() {
    let bed = Bed::new();
    bed.write("rea.toml", "[serve]\ncode = [\"tasks.py\"]\n\n[jobs]\nmax_attempts = 1\nretry_base = 0\n");
    let server = bed.serve(&[]);
    let server_line = server.before.lines().last().unwrap_or_default().to_owned();
    let waited = bed.rea(&["enqueue", "tasks:add", "1", "2", "--wait=20"]);
    assert_eq!(waited.word(), "3");
    // A task's own word goes before the file's.
    let id = bed.rea(&["enqueue", "tasks:later", "--delay", "1h"]).word().to_owned();
    assert_eq!(bed.rea(&["job", &id, "--json"]).json()["max_attempts"], 2);
    let id = bed.rea(&["enqueue", "tasks:broken", "--delay", "1h"]).word().to_owned();
    assert_eq!(bed.rea(&["job", &id, "--json"]).json()["max_attempts"], 1);
    assert_eq!(server.stop().0, 0);
    assert!(server_line.contains("\"settings\":\"rea.toml\""), "{server_line}");
    bed.write("rea.toml", "[serve]\ncode = [\"task.py\"]\n");
    let said = bed.rea(&["serve", "--port", "0"]);
    assert!(said.code == 2 && said.err.contains("rea.toml:2: there is no file task.py"), "{}", said.err);
    bed.write("rea.toml", "[serve]\nworker = 3\n");
    for words in [vec!["serve", "--port", "0"], vec!["jobs"], vec!["db", "check"], vec!["config", "show"]] {
        let said = bed.rea(&words);
        let told = "error: rea.toml:2: there is no setting serve.worker\nhint: did you mean workers in [serve]?\n";
        assert_eq!((said.code, said.err.as_str(), said.out.as_str()), (2, told, ""), "{words:?}");
    }
    let said = bed.rea(&["jobs", "--config", "nowhere.toml"]);
    assert!(said.code == 2 && said.err.contains("can't read the settings in nowhere.toml"), "{}", said.err);
}

/// A flow that no tick could make stops the start, and a reload; a task that nobody offers is only warned of.
#[test]
fn schedules_of_the_file_are_checked_when_it_is_read() {
    let bed = Bed::new();
    let flow = |on: &str, task: &str| {
        format!(
            "[schedules.night]\ncron = \"@daily\"\n[schedules.night.flow]\nname = \"n\"\nnodes.a = {{ task = \"{task}\" }}\n\
             nodes.b = {{ task = \"tasks:add\", args = [1, 2], depends_on = [\"{on}\"] }}\n\
             [schedules.plain]\nevery = \"1d\"\ntask = \"tasks:brocken\"\n"
        )
    };
    bed.write("rea.toml", &flow("c", "tasks:ad"));
    let said = bed.rea(&["serve", "tasks.py", "--port", "0"]);
    let told = "error: rea.toml:6: schedules.night.flow: node \"b\": depends_on: there is no node \"c\"";
    assert!(said.code == 2 && said.err.starts_with(told), "{}", said.err);
    bed.write("rea.toml", &flow("a", "tasks:ad"));
    let server = bed.serve(&["tasks.py"]);
    bed.write("rea.toml", &flow("b", "tasks:ad"));
    let said = bed.rea(&["reload"]);
    assert!(said.code != 0 && said.err.contains("rea.toml:1: schedules.night.flow: the jobs wait"), "{}", said.err);
    bed.write("rea.toml", &flow("a", "tasks:keep"));
    assert_eq!(bed.rea(&["reload"]).code, 0);
    let (_, log) = server.stop();
    let warned = |schedule: &str, hint: &str| {
        let about = |line: &&str| line.contains(&format!("\"schedule\":\"{schedule}\"")) && line.contains(hint);
        log.lines().filter(|line| line.contains("no worker has ever offered")).filter(about).count()
    };
    assert_eq!((warned("night", "did you mean tasks:add?"), warned("night", "")), (1, 1), "{log}");
    assert_eq!(warned("plain", "did you mean tasks:broken?"), 2, "{log}");
}

/// What is set reaches the engine and the workers.
#[test]
fn limits_and_graces_hold_where_they_are_set() {
    let bed = Bed::new();
    let loud = "from rea.task import task\n\n@task\ndef loud(n):\n    print('x' * 99 + '\\n' * n)\n    return 'y' * n\n\n\
                @task\ndef stuck():\n    import signal, time\n    signal.pthread_sigmask(signal.SIG_BLOCK, [15])\n    time.sleep(60)\n";
    bed.write("loud.py", loud);
    bed.write(
        "rea.toml",
        "[serve]\ncode = [\"loud.py\"]\nkill_grace = 0.1\n[jobs]\ntimeout = \"300ms\"\nmax_attempts = 1\n\
         [limits]\nlog = \"4KiB\"\nlog_line = 256\nresult = \"1KiB\"\n",
    );
    let server = bed.serve(&[]);
    let said = bed.rea(&["enqueue", "loud:loud", "5000", "--timeout", "20", "--wait=20"]);
    assert!(said.code == 1 && said.err.contains("the limit is 1,024"), "{}", said.err);
    let id = bed.rea(&["jobs", "--ids"]).word().to_owned();
    assert!(bed.rea(&["logs", &id]).out.ends_with("[output cut by rea after 4096 bytes]\n"));
    let begun = std::time::Instant::now();
    let said = bed.rea(&["enqueue", "loud:stuck", "--wait=20"]);
    assert!(said.code == 1 && said.err.contains("is dead"), "{}", said.err);
    assert!(begun.elapsed() < std::time::Duration::from_secs(4), "the kill waited for {:?}", begun.elapsed());
    assert_eq!(server.stop().0, 0);
}

#[test]
fn config_show_tells_every_setting_and_its_origin() {
    let bed = Bed::new();
    bed.write("rea.toml", "[serve]\n\nport = 9001\n");
    let secret = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
    let shown = |words: &[&str]| {
        let mut command = bed.command();
        command.args(["config", "show"]).args(words).env("REA_TOKEN", secret).env("REA_GRACE", "1m");
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    let out = shown(&["--origin", "--workers", "9"]);
    let row = |name: &str| {
        let row = out.lines().find(|line| line.split_whitespace().next() == Some(name)).unwrap_or_default();
        row.split_whitespace().skip(1).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(row("serve.port"), "9001 rea.toml:3");
    assert_eq!(row("serve.grace"), "1m REA_GRACE");
    assert_eq!(row("serve.workers"), "9 --workers");
    assert_eq!(row("limits.log"), "10MiB default");
    assert_eq!(row("token"), "(hidden) REA_TOKEN");
    assert_eq!(shown(&["--changed"]).lines().count(), 4, "{}", shown(&["--changed"]));
    let some = shown(&["serve.port", "retention"]);
    assert_eq!(some.lines().count(), 6, "{some}");
    let json: serde_json::Value = serde_json::from_str(&shown(&["--json"])).unwrap();
    assert_eq!(json["settings"]["serve.grace"]["value"], 60, "{json}");
    assert_eq!(json["settings"].as_object().unwrap().len(), rea::settings::Key::ALL.len());
    assert!(!json.to_string().contains(secret) && !out.contains(secret));
}

/// It says where tokens are sent and what code is run.
#[test]
fn a_found_file_that_others_may_write_is_not_used() {
    use std::os::unix::fs::PermissionsExt;
    let bed = Bed::new();
    bed.write("rea.toml", "url = \"127.0.0.1:9\"\n");
    std::fs::set_permissions(bed.dir.path().join("rea.toml"), std::fs::Permissions::from_mode(0o666)).unwrap();
    let said = bed.rea(&["status"]);
    assert!(said.code == 2 && said.err.contains("everyone may write it"), "{}", said.err);
    assert_eq!(bed.rea(&["status", "--config", "rea.toml"]).code, 5);
}
