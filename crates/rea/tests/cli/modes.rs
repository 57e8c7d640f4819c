//! F74: whatever the umask, only its owner can read what a store consists of, and its owner always can.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

use crate::bed::Bed;

/// Every file and directory below.
fn all(dir: &Path) -> Vec<PathBuf> {
    let below = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    below.flat_map(|path| if path.is_dir() { [vec![path.clone()], all(&path)].concat() } else { vec![path] }).collect()
}

#[test]
fn f74_files_are_private_under_any_umask() {
    for umask in ["000", "022", "377"] {
        let bed = Bed::new();
        std::fs::set_permissions(bed.dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let mut shell = std::process::Command::new("sh");
        let rea = env!("CARGO_BIN_EXE_rea");
        let script = format!(
            "umask {umask}; \"{rea}\" token new --file rea.token && exec \"{rea}\" serve tasks.py --port 0 --workers 1 --log json"
        );
        shell.args(["-c", &script]).current_dir(bed.dir.path()).stdin(std::process::Stdio::null());
        shell.stderr(std::process::Stdio::null()).stdout(std::process::Stdio::null()).process_group(0);
        let mut server = shell.spawn().unwrap();
        let begun = std::time::Instant::now();
        while bed.rea(&["enqueue", "tasks:add", "1", "2", "--wait=10"]).code != 0 {
            assert!(begun.elapsed() < std::time::Duration::from_secs(30), "umask {umask}: no job was run");
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        let made: Vec<PathBuf> =
            all(bed.dir.path()).into_iter().filter(|path| path.to_string_lossy().contains("rea.")).collect();
        for wanted in
            ["rea.db", "rea.db-wal", "rea.db-shm", "rea.db.lock", "rea.db.wardens", "rea.db.logs", "rea.token"]
        {
            assert!(made.contains(&bed.dir.path().join(wanted)), "{wanted} is not in {made:?}");
        }
        assert!(made.iter().any(|path| path.extension().is_some_and(|e| e == "log")), "{made:?}");
        for path in &made {
            let mode = std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
            let right = if path.is_dir() { 0o700 } else { 0o600 };
            assert_eq!(mode, right, "umask {umask}: {} has mode {mode:03o}", path.display());
        }
        rustix::process::kill_process(rustix::process::Pid::from_child(&server), rustix::process::Signal::TERM)
            .unwrap();
        server.wait().unwrap();
    }
}
