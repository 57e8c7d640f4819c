//! C124, F62, F63, F74: which servers do not start. How the layers go before one another, and how slips are told.

use std::os::unix::fs::PermissionsExt;

use std::time::Duration;

use clap::Parser;

use super::file::File;
use super::*;
use crate::http::tokens::{Hash, Role};

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    flags: Flags<Server>,
}

/// These words, this file and these variables; nothing of the machine's own.
fn layers(words: &[&str], file: Option<&str>, env: &[(&str, &str)]) -> Result<Resolved, BadSetting> {
    let line = Line::try_parse_from(std::iter::once("rea").chain(words.iter().copied())).unwrap();
    let file = file.map(|text| File::read("conf/rea.toml".into(), text)).transpose()?;
    let variable = |name: &str| env.iter().find(|(n, _)| *n == name).map(|(_, text)| (*text).into());
    Resolved::of(file, variable, &line.flags.given)
}

fn started(words: &[&str]) -> Result<Serve, BadSetting> {
    plain::of(&layers(words, None, &[])?)
}

/// The value and its origin, as `rea config show` has them.
fn shown(all: &Resolved, key: Key) -> (String, String) {
    let (value, origin) = all.get(key);
    (value.show(key.setting().kind), origin.to_string())
}

const GOOD: &str = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

fn token(text: &str) -> Result<bool, BadSetting> {
    read_tokens(None, Some(text.into())).map(|t| t.is_some_and(|t| t[0].hash == Hash::of(GOOD.as_bytes())))
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
        assert!(refused.hint.contains("rea token new"), "{weak}");
    }
    assert_eq!(token(GOOD), Ok(true));
    assert_eq!(token(&format!("{GOOD}\n")), Ok(true));
    assert!(read_tokens(None, None).unwrap().is_none());
}

#[test]
fn f74_a_token_file_that_others_can_read_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("token");
    assert!(read_tokens(Some(&file), None).unwrap_err().problem.contains("can't read"));
    std::fs::write(&file, GOOD).unwrap();
    for (mode, good) in [(0o600, true), (0o400, true), (0o640, false), (0o644, false), (0o606, false)] {
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!(read_tokens(Some(&file), None).is_ok(), good, "{mode:o}");
    }
    // The file wins over the environment, and an empty file is not "off".
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::write(&file, "").unwrap();
    assert!(read_tokens(Some(&file), Some(GOOD.into())).unwrap_err().problem.contains("empty"));
}

#[test]
fn several_tokens_stand_in_one_file_with_names_and_roles() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("token");
    let write = |text: &str| {
        std::fs::write(&file, text).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        read_tokens(Some(&file), None)
    };
    let other = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    let known = write(&format!("# for the web\n{GOOD} web\n\n  {other} grafana read\n")).unwrap().unwrap();
    let of = |i: usize| (known[i].name.as_str(), known[i].role);
    assert_eq!((of(0), of(1), known.len()), (("web", Role::Admin), ("grafana", Role::Read), 2));
    assert!(known[0].hash == Hash::of(GOOD.as_bytes()) && known[1].hash == Hash::of(b"abc"));
    // A client sends the first that is not a hash.
    assert_eq!(client_token(&file).unwrap().reveal(), GOOD);
    for (text, wrong) in [
        (format!("{GOOD} web\n{GOOD} other"), "token:2, or its name, stands there twice"),
        (format!("{GOOD} web\n{other} web"), "token:2, or its name, stands there twice"),
        (format!("{GOOD} web root"), "neither admin nor read"),
        (format!("{GOOD} we;b"), "has a name that"),
        (format!("{GOOD} web read 1"), "more words than three"),
        ("sha256:12".to_owned(), "token:1 is no hash"),
        (format!("{GOOD}\nchangeme web"), "token:2 has 8 characters"),
        ("# nothing\n".to_owned(), "is empty"),
    ] {
        let refused = write(&text).unwrap_err();
        assert!(refused.problem.contains(wrong), "{}", refused.problem);
        assert!(!refused.problem.contains(GOOD) && !refused.problem.contains("changeme"), "{}", refused.problem);
    }
    write(&format!("{other} server read")).unwrap();
    assert!(client_token(&file).unwrap_err().problem.contains("no token that can be sent"));
}

#[test]
fn f62_every_address_but_loopback_needs_a_token() {
    for open in ["0.0.0.0", "::", "[::]", "192.168.1.10"] {
        let refused = started(&["--host", open]).unwrap_err();
        assert!(refused.problem.contains("needs a token") && refused.hint.contains("rea token new"), "{open}");
    }
    for local in ["127.0.0.1", "::1", "[::1]", "localhost", "127.0.0.5"] {
        assert!(started(&["--host", local]).is_ok(), "{local}");
    }
    assert!(started(&["no_such_file.py"]).unwrap_err().problem.contains("no_such_file.py"));
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

#[test]
fn later_layers_go_before_earlier_ones_and_each_value_knows_its_own() {
    let file = "db = \"data/jobs.db\"\n\n[serve]\nport = 9001\nworkers = 2\n[retention]\nsuccess = \"forever\"\n";
    let env = [("REA_PORT", "9002"), ("REA_JOBS_TIMEOUT", "none")];
    let all = layers(&["--port", "9003"], Some(file), &env).unwrap();
    let expect = |key, value: &str, origin: &str| assert_eq!(shown(&all, key), (value.to_owned(), origin.to_owned()));
    expect(Key::Port, "9003", "--port");
    expect(Key::Workers, "2", "conf/rea.toml:5");
    expect(Key::KeepSuccess, "forever", "conf/rea.toml:7");
    expect(Key::Timeout, "none", "REA_JOBS_TIMEOUT");
    expect(Key::Grace, "30s", "default");
    // Files count from where the file is.
    expect(Key::Db, "conf/data/jobs.db", "conf/rea.toml:1");
    assert_eq!(shown(&layers(&[], Some(file), &env).unwrap(), Key::Port), ("9002".into(), "REA_PORT".into()));
    let serve = plain::of(&all).unwrap();
    assert_eq!((serve.address.port(), serve.workers, serve.engine.defaults.timeout_ms), (9003, 2, None));
    assert_eq!(serve.engine.retention.success_ms, u64::MAX);
}

/// What is not set is what the libraries have as their own default: a table beside it would drift.
#[test]
fn the_defaults_are_those_of_the_engine_and_the_workers() {
    let serve = started(&[]).unwrap();
    let (ours, theirs) = (serve.engine, ax::Options::new("rea.db"));
    assert_eq!(format!("{ours:?}"), format!("{theirs:?}"));
    let pool = crate::workers::PoolOptions::new("rea.db", Vec::new());
    assert_eq!(
        (serve.workers, serve.kill_grace, serve.import_timeout, serve.recycle_jobs),
        (pool.slots, pool.kill_grace, pool.import_timeout, pool.recycle_jobs)
    );
    assert_eq!(
        (serve.recycle_rss_bytes, serve.log_bytes, serve.log_line_bytes),
        (pool.recycle_rss_bytes, pool.log_bytes, pool.log_line_bytes)
    );
    assert_eq!(serve.grace, Duration::from_secs(30));
    let year = ax::model::limits::MAX_SPAN_MS;
    for key in [Key::Timeout, Key::RetryCap, Key::UniqueFor] {
        let Kind::Span { max_ms, .. } = key.setting().kind else { panic!("{key:?}") };
        assert_eq!(max_ms, year, "{key:?}");
    }
}

#[test]
fn a_slip_in_the_file_is_told_with_its_line_and_what_would_be_right() {
    for (text, problem, hint) in [
        ("[serve]\n\nprot = 1", "conf/rea.toml:3: there is no setting serve.prot", "did you mean port in [serve]?"),
        ("port = 1", "conf/rea.toml:1: there is no setting port", "did you mean port in [serve]?"),
        ("[serve]\ntimeout = 1", "no setting serve.timeout", "did you mean timeout in [jobs]?"),
        ("[sevre]\nport = 1", "conf/rea.toml:1: there is no setting sevre", "tables [serve], [jobs]"),
        ("x = 1", "conf/rea.toml:1: there is no setting x", "there are db, url, token_file, and the tables [serve]"),
        ("[engine]\nqqqqqqqqqqqq = 1", "no setting engine.qqqqqqqqqqqq", "[engine] has poll, local_queue"),
        (
            "[serve]\nport = 99999",
            "conf/rea.toml:2: serve.port = 99999: must be a whole number from 0 to 65535",
            "default is 8000",
        ),
        ("[serve]\nport = -1", "serve.port = -1: must be", ""),
        ("[serve]\nworkers = 2.5", "serve.workers = 2.5: must be a whole number", ""),
        ("[serve]\ngrace = true", "serve.grace = true: must be a length of time, such as \"10m\"", ""),
        ("[serve]\ngrace = \"3 parsecs\"", "\"parsecs\" is no unit of time", ""),
        ("[serve]\ncode = [1]", "serve.code = [1]: must be a list of texts", ""),
        ("[serve]\nhost = \"example.org\"", "is no IP address", ""),
        ("[serve]\nlog = \"xml\"", "must be one of auto, json, text", ""),
        ("[serve]\nlog_filter = \"rea=loud\"", "is no filter", ""),
        ("[jobs]\ntimeout = 0", "jobs.timeout = 0: must be 1ms to 366d, or none", "default is 1m"),
        ("[limits]\nargs = \"5MB\"", "use B, KiB, MiB or GiB", ""),
        ("[limits]\nargs = \"1GiB\"", "must be 1KiB to 3MiB", ""),
        ("serve = 3", "conf/rea.toml:1: there is no setting serve", "tables [serve]"),
        ("token = \"x\"", "conf/rea.toml:1: a token does not belong into this file", "token_file = "),
        ("db = rea.db", "conf/rea.toml:1 is no TOML", "texts stand in quotes"),
        ("db = \"a\"\ndb = \"b\"", "conf/rea.toml:2 is no TOML: duplicate key", ""),
    ] {
        let refused = layers(&[], Some(text), &[]).unwrap_err();
        assert!(refused.problem.contains(problem) && refused.hint.contains(hint), "{text}: {refused:?}");
    }
    let refused = layers(&[], None, &[("REA_PORT", "http")]).unwrap_err();
    assert!(refused.problem.contains("REA_PORT=http: must be a whole number"), "{refused:?}");
    assert!(layers(&[], None, &[("REA_DB", "")]).unwrap_err().problem.contains("REA_DB=: is empty"));
    let refused = plain::of(&layers(&[], Some("[serve]\n\nhost = \"0.0.0.0\""), &[]).unwrap()).unwrap_err();
    assert!(refused.problem.starts_with("conf/rea.toml:3: listening on 0.0.0.0 needs a token"), "{refused:?}");
}

#[test]
fn every_kind_of_value_may_be_written_as_people_write_it() {
    let file = "[serve]\ncode = \"my.tasks\"\nallow_hosts = [\"a\", \"b\"]\ngrace = 1.5\nrecycle_memory = 16_777_216\n\
                port = 0x10\npython = \"python3.12\"\n[limits]\nlog = \"1GiB\"\n";
    let all = layers(&[], Some(file), &[("REA_ALLOW_HOST", "c, d,")]).unwrap();
    let text = |key| shown(&all, key).0;
    assert_eq!(
        (text(Key::Code), text(Key::AllowHosts), text(Key::Grace)),
        ("my.tasks".into(), "c,d".into(), "1500ms".into())
    );
    assert_eq!(
        (text(Key::RecycleMemory), text(Key::Port), text(Key::LogMax)),
        ("16MiB".into(), "16".into(), "1GiB".into())
    );
    // A program by its name is looked for, not taken from here.
    assert_eq!(text(Key::Python), "python3.12");
    for key in Key::ALL {
        let (value, kind) = (&all.get(*key).0, key.setting().kind);
        let typed = value.show(kind);
        assert!(matches!(value, Value::Nothing) || kind.read(&typed).as_ref() == Ok(value), "{key:?}: {typed}");
    }
}

#[test]
fn a_token_is_never_shown_and_its_file_goes_before_it_unless_the_variable_is_nearer() {
    let all = layers(&[], Some("token_file = \"t\""), &[("REA_TOKEN", GOOD)]).unwrap();
    assert_eq!(shown(&all, Key::Token), ("(hidden)".into(), "REA_TOKEN".into()));
    let serve = plain::of(&all).unwrap();
    assert!(serve.tokens.unwrap()[0].hash == Hash::of(GOOD.as_bytes()));
    assert_eq!(serve.token_file, None);
    let all = layers(&["--token-file", "no-such-file"], None, &[("REA_TOKEN", GOOD)]).unwrap();
    assert!(plain::of(&all).unwrap_err().problem.contains("no-such-file"));
}

/// `docs/settings.md` has a row for each setting, with all that the table says, and no other.
#[test]
fn every_setting_is_documented() {
    let page = include_str!("../../../../docs/settings.md");
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| `")).collect();
    let code = |text: &str| if text.is_empty() { String::new() } else { format!("`{text}`") };
    let wanted: Vec<String> = Key::ALL
        .iter()
        .map(|key| {
            let s = key.setting();
            let flag = match s.flag {
                "" => String::new(),
                table::WORDS => "words".to_owned(),
                flag => format!("`--{flag}`"),
            };
            let name = if s.kind == Kind::Secret { "`token` (not in the file)".to_owned() } else { code(s.name) };
            format!("| {name} | `{}` | {flag} | {} | {} | {} |", s.env, code(s.default), s.kind.range(), s.about)
        })
        .collect();
    assert!(rows == wanted, "the rows must be:\n{}", wanted.join("\n"));
}

#[test]
fn callbacks_are_off_without_a_secret_and_a_wrong_secret_or_network_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("rea.callback");
    let env = |allow| [("REA_CALLBACK_SECRET_FILE", file.to_str().unwrap()), ("REA_CALLBACK_ALLOW", allow)];
    let serve = |allow| plain::of(&layers(&[], None, &env(allow)).unwrap());
    assert_eq!(started(&[]).unwrap().callbacks, None);
    assert!(serve("").unwrap_err().problem.contains("can't read the file of callback secrets"));
    std::fs::write(&file, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
    assert!(serve("").unwrap_err().hint.starts_with("chmod 600 "));
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let callbacks = serve("10.0.0.0/8, 127.0.0.1").unwrap().callbacks.unwrap();
    assert!(callbacks.secret_file == file && callbacks.allowed.refuses([127, 0, 0, 1].into()).is_none());
    let wrong = serve("10.0.0.0/33").unwrap_err();
    assert!(wrong.problem.starts_with("REA_CALLBACK_ALLOW: ") && wrong.problem.contains("10.0.0.0/33"), "{wrong:?}");
    std::fs::write(&file, "hunter2-hunter2\n").unwrap();
    let wrong = serve("").unwrap_err();
    assert!(wrong.problem.contains("line 1 is no secret") && !wrong.problem.contains("hunter2"), "{wrong:?}");
}
