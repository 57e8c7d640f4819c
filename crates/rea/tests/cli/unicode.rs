//! C116: text of every script, in a terminal without a language: shown and found.

use crate::bed::Bed;

const TASKS: &str = r#"
from rea.task import task

@task(queue="队列 📬")
def 发送(name):
    """发送通知"""
    print("🦀 你好", name, "שלום مرحبا")
    return name
"#;

const NAME: &str = "Zoë 🎉 שרה";

#[test]
fn c116_emoji_chinese_and_right_to_left_text_are_shown_and_found() {
    let bed = Bed::new();
    std::fs::write(bed.dir.path().join("任务.py"), TASKS).unwrap();
    for lang in ["C", "POSIX"] {
        let env = [("LANG", lang), ("LC_ALL", lang)];
        let rea = |words: &[&str]| {
            let output = bed.command().args(words).envs(env).output().unwrap();
            let text = |bytes| String::from_utf8(bytes).unwrap();
            assert!(output.status.success(), "{words:?}: {}", text(output.stderr));
            text(output.stdout)
        };
        let server = bed.serve_in(&["任务.py"], &env);
        assert_eq!(rea(&["enqueue", "任务:发送", NAME, "--tag", "标签", "--wait=20"]), format!("\"{NAME}\"\n"));
        let found = rea(&["jobs", "--queue", "队列 📬", "--task", "任务:发送", "--tag", "标签", "--ids"]);
        let id = found.lines().next().unwrap().to_owned();
        assert_eq!(found.lines().count(), if lang == "C" { 1 } else { 2 });
        let line = format!("🦀 你好 {NAME} שלום مرحبا");
        assert_eq!(rea(&["logs", &id]), format!("{line}\n"));
        let object: serde_json::Value = serde_json::from_str(&rea(&["logs", "-f", &id, "--json"])).unwrap();
        assert_eq!(object, serde_json::json!({"attempt": 1, "line": line}));
        assert!(rea(&["jobs"]).contains("队列 📬"));
        assert!(rea(&["tasks"]).contains("发送通知"));
        let job = rea(&["job", &id]);
        assert!(job.contains(NAME) && job.contains("队列 📬") && job.contains("标签"), "{job}");
        assert!(rea(&["queue", "pause", "队列 📬"]).contains("paused"));
        assert!(rea(&["status"]).contains("paused       队列 📬"));
        rea(&["queue", "resume", "队列 📬"]);
        assert!(rea(&["trace", &id]).contains("任务:发送"));
        let (code, log) = server.stop();
        assert_eq!(code, 0, "{log}");
        assert!(
            log.lines().any(|l| l.contains("任务:发送") && l.contains("队列 📬") && l.contains("success")),
            "{log}"
        );
    }
}
