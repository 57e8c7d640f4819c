//! What is written is read back; what is cut, changed or something else is refused.

use std::fs;

use ax::StoreCopy;
use tempfile::TempDir;

use super::super::write::write;
use super::*;

const JOB: &str = "0193793e-7f00-7000-8000-0000000000ab";

/// A store and one log, and the backup made of them.
fn backup() -> (TempDir, Vec<u8>) {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("copy"), vec![7; 5_000]).unwrap();
    fs::create_dir_all(dir.path().join("l/ab")).unwrap();
    fs::write(dir.path().join(format!("l/ab/{JOB}.1.log")), "said\n").unwrap();
    // What is no log stays out.
    fs::write(dir.path().join("l/ab/notes.txt"), "x").unwrap();
    let copy = StoreCopy { by_state: [1, 0, 0, 0, 2, 0, 0, 0, 0], schema: 3 };
    let mut out = vec![];
    let (store, logs) = (dir.path().join("copy"), dir.path().join("l"));
    write(&mut out, &store, &copy, Some(&logs), "2026-11-30T12:00:00Z".to_owned()).unwrap();
    (dir, out)
}

#[test]
fn what_was_put_in_comes_out() {
    let (dir, bytes) = backup();
    let (store, logs) = (dir.path().join("new.db"), dir.path().join("new.logs"));
    let manifest = parts(bytes.as_slice(), Some(Target { store: &store, logs: &logs })).unwrap();
    assert_eq!((manifest.jobs, manifest.logs, manifest.logs_bytes, manifest.store_bytes), (3, 1, 5, 5_000));
    assert_eq!(fs::read(&store).unwrap(), vec![7; 5_000]);
    assert_eq!(fs::read_to_string(logs.join(format!("ab/{JOB}.1.log"))).unwrap(), "said\n");
    assert_eq!(parts(bytes.as_slice(), None), Ok(manifest), "also when it is only looked at");
    let again = parts(bytes.as_slice(), Some(Target { store: &store, logs: &logs }));
    assert!(again.unwrap_err().contains("can't write"), "what is there is not written over");
}

#[test]
fn a_backup_that_was_cut_or_changed_is_refused() {
    let (_dir, bytes) = backup();
    for cut in [0, 100, 600, 5_700, 6_200, bytes.len() - 2_600] {
        assert!(parts(&bytes[..cut], None).is_err(), "cut at {cut}");
    }
    for (at, part) in [(600, "the store in it is not what was put in"), (6_146, "the logs in it are not")] {
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        let why = parts(changed.as_slice(), None).unwrap_err();
        assert!(why.contains(part), "{at}: {why}");
    }
    assert!(parts(&b"CREATE TABLE"[..], None).is_err());
}

#[test]
fn names_in_a_backup_lead_nowhere_else() {
    for (two, name, is) in [
        ("ab", format!("{JOB}.1.log"), true),
        ("ab", format!("{JOB}.01.log"), false),
        ("ac", format!("{JOB}.1.log"), false),
        ("..", format!("{JOB}.1.log"), false),
        ("ab", "../x.1.log".to_owned(), false),
        ("ab", format!("{JOB}/../../x.1.log"), false),
        ("ab", format!("{JOB}.1.log.sh"), false),
    ] {
        assert_eq!(is_log(two, &name), is, "{two} {name}");
    }
    let mut tar = tar::Builder::new(vec![]);
    let mut header = tar::Header::new_gnu();
    header.set_size(1);
    // `append_data` refuses such a name, so it is written by hand.
    let name = b"../evil";
    header.as_old_mut().name[..name.len()].copy_from_slice(name);
    header.set_cksum();
    tar.append(&header, &b"x"[..]).unwrap();
    let bytes = tar.into_inner().unwrap();
    assert!(parts(bytes.as_slice(), None).unwrap_err().contains("it holds ../evil"));
}
