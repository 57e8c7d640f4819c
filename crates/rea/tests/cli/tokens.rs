//! Tokens: made, used by server and clients, and changed while the server runs.

use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use crate::bed::{Bed, Said};

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(10), "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A new token is valid without a restart, an old one is not when its line has gone, and a broken file changes nothing.
#[test]
fn tokens_are_rotated_while_the_server_runs() {
    let bed = Bed::new();
    let file = bed.dir.path().join("rea.token");
    assert_eq!(bed.rea(&["token", "new", "old", "--file", "rea.token"]).code, 0);
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let old = std::fs::read_to_string(&file).unwrap().split(' ').next().unwrap().to_owned();
    let server = bed.serve(&["--token-file", "rea.token", "--log", "json"]);
    let ask = |token: &str, words: &[&str]| -> Said {
        let mut command = bed.command();
        command.args(words).args(["--url", &server.url]).env("REA_TOKEN", token);
        let output = command.output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Said { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
    };
    assert_eq!(ask(&old, &["status"]).code, 0);
    assert_eq!(bed.rea(&["status", "--token-file", "rea.token"]).code, 0, "the server's own file does for a client");
    let said = ask("wrong-wrong-wrong-wrong-wrong-wrong", &["status"]);
    assert!(said.code == 4 && said.err.contains("not this server's"), "{}", said.err);
    // A second one, for reading.
    let made = bed.rea(&["token", "new", "grafana", "--role", "read", "--json"]).json();
    let (new, hash) = (made["token"].as_str().unwrap(), made["hash"].as_str().unwrap());
    std::fs::write(&file, format!("{old} old\n{hash} grafana read\n")).unwrap();
    eventually("the new one is valid", || ask(new, &["status"]).code == 0);
    let said = ask(new, &["queue", "pause", "default"]);
    assert!(said.code == 4 && said.err.contains("for reading"), "{}", said.err);
    // A slip keeps what was valid.
    std::fs::write(&file, "changeme\n").unwrap();
    std::thread::sleep(Duration::from_millis(1_500));
    assert_eq!(ask(&old, &["status"]).code, 0);
    std::fs::write(&file, format!("{hash} grafana read\n")).unwrap();
    eventually("the old one is not valid any more", || ask(&old, &["status"]).code == 4);
    assert_eq!(ask(new, &["status"]).code, 0);
    let (code, log) = server.stop();
    assert_eq!(code, 0);
    for wanted in
        ["\"tokens_changed\"", "\"added\":\"grafana\"", "\"removed\":\"old\"", "\"tokens_kept\"", "\"wrong_token\""]
    {
        assert!(log.contains(wanted), "{wanted} in {log}");
    }
    for secret in [old.as_str(), new, "wrong-wrong", "changeme"] {
        assert!(!log.contains(secret), "the log tells a token");
    }
}

#[test]
fn a_token_is_made_once_under_one_name() {
    let bed = Bed::new();
    let said = bed.rea(&["token", "new", "web"]);
    let words: Vec<&str> = said.word().split(' ').collect();
    assert!(
        words[0].len() == 64 && words[1..] == ["web", "admin"] && said.err.contains("sha256:"),
        "{} {}",
        said.out,
        said.err
    );
    assert_ne!(said.out, bed.rea(&["token", "new", "web"]).out);
    for (words, wrong) in [
        (vec!["token", "new", "a b"], "letters, digits"),
        (vec!["token", "new", "web", "--file", "no/such/dir"], "can't write no/such/dir"),
    ] {
        let said = bed.rea(&words);
        assert!(said.code == 2 && said.err.contains(wrong), "{}", said.err);
    }
    assert_eq!(bed.rea(&["token", "new", "web", "--file", "t"]).code, 0);
    let said = bed.rea(&["token", "new", "web", "--file", "t"]);
    assert!(said.code == 2 && said.err.contains("named web already"), "{}", said.err);
    assert_eq!(bed.rea(&["token", "new", "ops", "--file", "t"]).code, 0);
    assert_eq!(std::fs::read_to_string(bed.dir.path().join("t")).unwrap().lines().count(), 2);
}

/// Whatever was there before, nobody else can read a file that a token was put into.
#[test]
fn a_token_is_never_put_where_others_can_read_it() {
    let bed = Bed::new();
    let token = "0123456789abcdef0123456789abcdef";
    for (name, before, mode, code) in [
        ("empty", "", 0o644, 0),
        ("closed", "", 0o600, 0),
        ("open", &*format!("{token} web\n"), 0o644, 2),
        ("comment", "# tokens\n", 0o644, 2),
    ] {
        let file = bed.dir.path().join(name);
        std::fs::write(&file, before).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        let said = bed.rea(&["token", "new", "ops", "--file", name]);
        assert_eq!(said.code, code, "{name}: {}", said.err);
        let (text, after) = (std::fs::read_to_string(&file).unwrap(), std::fs::metadata(&file).unwrap());
        match code {
            0 => assert_eq!((text.lines().count(), after.permissions().mode() & 0o777), (1, 0o600), "{name}"),
            _ => assert_eq!(text, before, "{name}"),
        }
    }
}
