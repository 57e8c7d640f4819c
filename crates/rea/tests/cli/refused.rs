//! C124, F62: servers that do not start, and say how they would.

use std::os::unix::fs::PermissionsExt;

use crate::bed::Bed;

#[test]
fn c124_no_server_is_open_to_the_network_without_a_strong_token() {
    let bed = Bed::new();
    let file = bed.dir.path().join("token");
    let word = |text: &str| {
        std::fs::write(&file, text).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    };
    for host in ["0.0.0.0", "::", "10.11.12.13"] {
        let said = bed.rea(&["serve", "--port", "0", "--host", host]);
        assert_eq!(said.code, 2, "{host}: {}", said.err);
        assert!(said.err.contains("needs a token") && said.err.contains("rea token new"), "{}", said.err);
    }
    for weak in ["", "changeme", "changemechangemechangemechangeme", "short"] {
        word(weak);
        for host in ["0.0.0.0", "127.0.0.1"] {
            let said = bed.rea(&["serve", "--port", "0", "--host", host, "--token-file", "token"]);
            assert_eq!(said.code, 2, "{host} {weak:?}: {}", said.err);
            assert!(weak.is_empty() || !said.err.contains(weak), "the secret is told: {}", said.err);
        }
        let output = bed.command().args(["serve", "--port", "0"]).env("REA_TOKEN", weak).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{weak:?}");
    }
    assert!(!bed.db().exists(), "a refused server makes no store");
}

#[test]
fn code_that_is_not_there_or_not_sound_ends_the_start_with_its_reason() {
    let bed = Bed::new();
    let said = bed.rea(&["serve", "--port", "0", "nothing.py"]);
    assert!(said.code == 2 && said.err.contains("no file nothing.py"), "{}", said.err);
    std::fs::write(bed.dir.path().join("bad.py"), "def broken(:\n").unwrap();
    let said = bed.rea(&["serve", "--port", "0", "bad.py"]);
    assert!(said.code == 2 && said.err.contains("hint: mend the code"), "{}", said.err);
    assert_eq!(said.err.matches("SyntaxError").count(), 1, "{}", said.err);
    std::fs::write(bed.dir.path().join("none.py"), "x = 1\n").unwrap();
    let said = bed.rea(&["serve", "--port", "0", "none.py"]);
    assert!(said.code == 2 && !said.err.contains("hint:"), "{}", said.err);
    assert_eq!(said.err.matches("no task found").count(), 1, "{}", said.err);
    let said = bed.rea(&["serve", "--port", "0", "tasks.py", "--python", "no-such-python"]);
    assert!(said.err.contains("no-such-python was not found") && !said.err.contains("mend"), "{}", said.err);
}
