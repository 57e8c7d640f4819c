//! C124, F62, F63, F74: which servers do not start.

use std::os::unix::fs::PermissionsExt;

use clap::Parser;

use super::*;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    serve: ServeArgs,
}

fn args(words: &[&str]) -> ServeArgs {
    Line::parse_from(std::iter::once("serve").chain(words.iter().copied())).serve
}

const GOOD: &str = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

fn token(text: &str) -> Result<Option<String>, BadSetting> {
    read_token(None, Some(text.into())).map(|t| t.map(|t| t.reveal().to_owned()))
}

#[test]
fn c124_weak_tokens_do_not_start_a_server() {
    for weak in [
        "",
        " ",
        "\n",
        "changeme",
        "short",
        "0123456789abcdef",
        &"a".repeat(32),
        &"ab".repeat(32),
        &"changeme".repeat(8),
        "changemechangemechangemechangeme1",
        "secret-token-secret-token-secret-token",
        "0000000000000000000000000000000000001",
        "with a space in the middle of the token",
        "täglich-ein-anderes-wort-für-die-tür",
    ] {
        let refused = token(weak).unwrap_err();
        assert!(refused.hint.contains("openssl rand"), "{weak}");
    }
    assert_eq!(token(GOOD).unwrap().as_deref(), Some(GOOD));
    assert_eq!(token(&format!("{GOOD}\n")).unwrap().as_deref(), Some(GOOD));
    assert!(read_token(None, None).unwrap().is_none());
}

#[test]
fn f74_a_token_file_that_others_can_read_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("token");
    assert!(read_token(Some(&file), None).unwrap_err().problem.contains("can't read"));
    std::fs::write(&file, GOOD).unwrap();
    for (mode, good) in [(0o600, true), (0o400, true), (0o640, false), (0o644, false), (0o606, false)] {
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!(read_token(Some(&file), None).is_ok(), good, "{mode:o}");
    }
    // The file wins over the environment, and an empty file is not "off".
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::write(&file, "").unwrap();
    assert!(read_token(Some(&file), Some(GOOD.into())).unwrap_err().problem.contains("empty"));
}

#[test]
fn f62_every_address_but_loopback_needs_a_token() {
    for open in ["0.0.0.0", "::", "[::]", "192.168.1.10"] {
        let refused = args(&["--host", open]).resolve().unwrap_err();
        assert!(refused.problem.contains("needs a token") && refused.hint.contains("openssl"), "{open}");
    }
    for local in ["127.0.0.1", "::1", "[::1]", "localhost", "127.0.0.5"] {
        assert!(args(&["--host", local]).resolve().is_ok(), "{local}");
    }
    assert!(args(&["--host", "example.org"]).resolve().is_err());
    assert!(args(&["no_such_file.py"]).resolve().unwrap_err().problem.contains("no_such_file.py"));
}

#[test]
fn lengths_of_time_read_as_people_write_them() {
    for (text, ms) in
        [("30", 30_000), ("0.5", 500), ("500ms", 500), ("10m", 600_000), ("2h", 7_200_000), ("1d", 86_400_000)]
    {
        assert_eq!(seconds(text), Ok(Duration::from_millis(ms)), "{text}");
    }
    for bad in ["", "-1", "x", "5 parsecs", "NaN", "inf", "1e300"] {
        assert!(seconds(bad).is_err(), "{bad}");
    }
}
