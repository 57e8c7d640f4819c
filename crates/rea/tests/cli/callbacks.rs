//! `rea callback secret`, and an enqueue with a callback where no server runs.

use std::os::unix::fs::PermissionsExt;

use crate::bed::Bed;

#[test]
fn a_secret_lands_in_a_closed_file_and_nowhere_else() {
    let bed = Bed::new();
    let file = bed.dir.path().join("rea.callback");
    let said = bed.rea(&["callback", "secret", "--file", "rea.callback"]);
    assert_eq!(said.code, 0, "{}", said.err);
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.starts_with("whsec_") && text.lines().count() == 1, "{text}");
    assert!(!said.out.contains(text.trim()) && !said.err.contains(text.trim()));
    for _ in 0..4 {
        assert_eq!(
            bed.rea(&["callback", "secret", "--file", "rea.callback", "--json"]).json()["secret"],
            serde_json::Value::Null
        );
    }
    let said = bed.rea(&["callback", "secret", "--file", "rea.callback"]);
    assert!(said.code == 2 && said.err.contains("has 5 secrets already"), "{}", said.err);
    let text = std::fs::read_to_string(&file).unwrap();
    let secrets: std::collections::HashSet<&str> = text.lines().collect();
    assert_eq!(secrets.len(), 5);
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    let said = bed.rea(&["callback", "secret", "--file", "rea.callback"]);
    assert!(said.code == 2 && said.err.contains("chmod 600"), "{}", said.err);
    let printed = bed.rea(&["callback", "secret"]);
    assert!(printed.word().starts_with("whsec_"));
}

#[tokio::test]
async fn without_a_server_a_callback_is_stored_by_the_same_rules() {
    let bed = Bed::with_store().await;
    let words = ["enqueue", "echo", "--callback", "https://example.org/hook"];
    let off = bed.rea(&words);
    assert!(off.code == 4 && off.err.contains("sends no callbacks"), "{} {}", off.code, off.err);
    assert_eq!(bed.rea(&["callback", "secret", "--file", "rea.callback"]).code, 0);
    std::fs::write(bed.dir.path().join("rea.toml"), "[serve]\ncallback_secret_file = \"rea.callback\"\n").unwrap();
    let id = bed.rea(&words).word().to_owned();
    let jobs = bed.rea(&["jobs", "--queue", "callbacks", "--json"]).json();
    assert_eq!(jobs["jobs"][0]["args"], serde_json::json!(["https://example.org/hook", id]));
    let refused = bed.rea(&["enqueue", "echo", "--callback", "http://127.0.0.1:1/"]);
    assert!(refused.code == 4 && refused.err.contains("127.0.0.1 is"), "{} {}", refused.code, refused.err);
}
