//! What people are told when they slip, word for word: `slips.txt` is read like a page of a manual. After a change of wording
//! `UPDATE_SLIPS=1 cargo test -p rea --test cli slips` writes it anew; look at the difference.

use crate::bed::Bed;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cli/slips.txt");

const WRONG: &str = "[serve]\nport = \"http\"\n";

#[tokio::test]
async fn slips_are_answered_with_what_would_be_right() {
    let bed = Bed::with_store().await;
    std::fs::write(bed.dir.path().join("wrong.toml"), WRONG).unwrap();
    let page = std::fs::read_to_string(PAGE).unwrap();
    let mut told = String::new();
    for command in page.lines().filter_map(|line| line.strip_prefix("$ rea ")) {
        let mut shell = std::process::Command::new("sh");
        shell.arg("-c").arg(format!("\"$PROGRAM\" {command}")).env("PROGRAM", env!("CARGO_BIN_EXE_rea"));
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("REA_") {
                shell.env_remove(name);
            }
        }
        let output = shell.current_dir(bed.dir.path()).env_remove("COLUMNS").output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        assert_eq!(
            text(&output.stdout),
            "",
            "{command}: a slip prints nothing that a program could take for an answer"
        );
        let code = output.status.code().unwrap_or(-1);
        assert_ne!(code, 0, "{command}");
        told.push_str(&format!("$ rea {command}\n{}[exit code {code}]\n\n", text(&output.stderr)));
    }
    let told = told.trim_end().to_owned() + "\n";
    if std::env::var_os("UPDATE_SLIPS").is_some() {
        std::fs::write(PAGE, told).unwrap();
        return;
    }
    assert!(told == page, "the page must be:\n{told}");
}
