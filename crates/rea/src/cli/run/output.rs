//! The file of `--output`: the run owns it. What is in it is not written again, a last line that was torn by a crash is cut
//! off, and what is no row of a run is never touched.

use std::borrow::Cow;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, BufRead, BufReader, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::batch::Batch;
use super::progress::Tally;
use crate::cli::road::Road;
use crate::cli::{Exit, Failure};

/// Which lines of the input have a row.
#[derive(Debug, Default)]
pub(super) struct LineSet(Vec<u64>);

impl LineSet {
    pub(super) fn insert(&mut self, line: u64) -> bool {
        let (word, bit) = (usize::try_from(line / 64).unwrap_or(usize::MAX), 1 << (line % 64));
        if word >= self.0.len() {
            self.0.resize(word + 1, 0);
        }
        let new = self.0[word] & bit == 0;
        self.0[word] |= bit;
        new
    }

    pub(super) fn contains(&self, line: u64) -> bool {
        let word = usize::try_from(line / 64).ok().and_then(|word| self.0.get(word));
        word.is_some_and(|word| word & (1 << (line % 64)) != 0)
    }
}

/// What an earlier run has written.
#[derive(Debug, Default)]
pub(super) struct Written {
    pub(super) lines: LineSet,
    pub(super) tally: Tally,
}

/// The fields of a row that are read back.
#[derive(Deserialize)]
struct Known<'a> {
    line: u64,
    task_id: Option<&'a str>,
    state: &'a str,
    /// It is of a node: the row of its flow stands behind those of all nodes.
    #[serde(borrow)]
    node: Option<Cow<'a, str>>,
}

/// No line of a result is longer: a result of the largest size, an id, and words.
const ROW_MAX: usize = 16 << 20;

/// Opens the file, made when missing, and reads what is in it. Whose rows these are is not known yet: nothing is changed.
pub(super) fn open(path: &Path, retry: bool) -> Result<(File, Found), Failure> {
    let trouble = |e| unusable(path, &e);
    let file = OpenOptions::new().read(true).append(true).create(true).open(path).map_err(trouble)?;
    if !file.metadata().map_err(trouble)?.is_file() {
        let message = format!("--output {} is no file: a run must be able to read what it wrote", path.display());
        return Err(Failure::new(Exit::Usage, message).hint("leave --output out: rows then go to stdout"));
    }
    lock(&file, path)?;
    let found = read(&file, path, retry)?;
    Ok((file, found))
}

fn unusable(path: &Path, error: &io::Error) -> Failure {
    Failure::new(Exit::Usage, format!("can't use --output {}: {error}", path.display()))
}

fn lock(file: &File, path: &Path) -> Result<(), Failure> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => {
            let message = format!("another run writes --output {}", path.display());
            Err(Failure::new(Exit::Locked, message).hint("wait for it, or name another file"))
        }
        Err(TryLockError::Error(e)) => {
            Err(Failure::new(Exit::Usage, format!("can't lock --output {}: {e}", path.display())))
        }
    }
}

/// What is in the file.
#[derive(Debug)]
pub(super) struct Found {
    written: Written,
    /// A job of its rows, also of those that must not stay, to see whose rows these are.
    job: Option<String>,
    /// Bytes up to the end of the last whole row.
    whole: u64,
    /// Rows that must not stay.
    dropped: u64,
    retry: bool,
}

fn stays(row: &Known<'_>, retry: bool) -> bool {
    row.state == "success" || !(retry || matches!(row.state, "held" | "refused"))
}

fn read(file: &File, path: &Path, retry: bool) -> Result<Found, Failure> {
    let mut found = Found { written: Written::default(), job: None, whole: 0, dropped: 0, retry };
    let (mut number, mut nodes) = (0, 0);
    each_row(file, |text| {
        number += 1;
        let row: Known<'_> = serde_json::from_slice(text).map_err(|_| foreign(path, number))?;
        nodes += text.len() as u64;
        if found.job.is_none() && row.state != "missing" {
            found.job = row.task_id.map(str::to_owned);
        }
        // Rows of nodes without that of their flow are torn.
        if row.node.is_some() {
            return Ok(());
        }
        found.whole += std::mem::take(&mut nodes);
        if !stays(&row, retry) {
            found.dropped += 1;
            return Ok(());
        }
        if !found.written.lines.insert(row.line) {
            let message = format!("--output {} has two rows for line {}", path.display(), row.line);
            return Err(Failure::new(Exit::Usage, message).hint("move it away, or name another file"));
        }
        found.written.tally.count(row.state);
        Ok(())
    })?;
    Ok(found)
}

/// How every row begins.
const BEGINNING: &[u8] = b"{\"line\":";

/// Whether this may be the first part of a row: then it was torn, and is no one else's text.
fn is_begun(text: &[u8]) -> bool {
    text.starts_with(BEGINNING) || BEGINNING.starts_with(text)
}

/// Every row that has its end. Text without an end that is no row's beginning is handed over too, to be refused.
fn each_row(file: &File, mut each: impl FnMut(&[u8]) -> Result<(), Failure>) -> Result<(), Failure> {
    let unreadable = |e: io::Error| Failure::new(Exit::Usage, format!("can't read --output: {e}"));
    let mut reader = BufReader::with_capacity(1 << 20, file);
    reader.seek(SeekFrom::Start(0)).map_err(unreadable)?;
    let mut text = Vec::new();
    loop {
        text.clear();
        reader.read_until(b'\n', &mut text).map_err(unreadable)?;
        if !text.ends_with(b"\n") && text.len() <= ROW_MAX && is_begun(&text) {
            return Ok(());
        }
        each(&text)?;
    }
}

fn foreign(path: &Path, number: u64) -> Failure {
    let message = format!("line {number} of --output {} is no row of a run", path.display());
    Failure::new(Exit::Usage, message).hint("nothing was changed; name another file")
}

/// The file without the rows that must not stay, put in its place as a whole.
fn rewrite(file: &File, path: &Path, retry: bool) -> io::Result<File> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let beside = PathBuf::from(beside);
    let new = OpenOptions::new().read(true).append(true).create(true).open(&beside)?;
    new.set_len(0)?;
    let mut out = BufWriter::new(&new);
    let mut failed = None;
    let mut rows = Vec::new();
    let copied = each_row(file, |text| {
        rows.extend_from_slice(text);
        let Ok(row) = serde_json::from_slice::<Known<'_>>(text) else { return Ok(()) };
        if row.node.is_some() {
            return Ok(());
        }
        if stays(&row, retry)
            && let Err(error) = out.write_all(&rows)
        {
            failed = Some(error);
        }
        rows.clear();
        Ok(())
    });
    if let Some(error) = failed {
        return Err(error);
    }
    copied.map_err(|failure| io::Error::other(failure.message))?;
    out.flush()?;
    drop(out);
    new.sync_all()?;
    std::fs::rename(&beside, path)?;
    Ok(new)
}

impl Found {
    /// Makes the file ready for more rows. A torn row is cut off; rows of held jobs, of lines that could not be stored and, with
    /// `retry`, of all that did not succeed are taken out: they will come again.
    pub(super) fn prepare(self, file: File, path: &Path) -> Result<(File, Written), Failure> {
        let trouble = |e| unusable(path, &e);
        if self.dropped == 0 {
            file.set_len(self.whole).map_err(trouble)?;
            return Ok((file, self.written));
        }
        let file = rewrite(&file, path, self.retry).map_err(trouble)?;
        lock(&file, path)?;
        Ok((file, self.written))
    }

    /// Makes sure that the rows are of this batch: by one job of them.
    pub(super) async fn check_batch(&self, road: &mut Road, batch: &Batch, path: &Path) -> Result<(), Failure> {
        let Some(id) = &self.job else { return Ok(()) };
        let of_other = |why: &str| {
            Failure::new(Exit::Usage, format!("--output {} holds the results of another batch: {why}", path.display()))
                .hint("name another file, or the store (--db) that it was made with; nothing was changed")
        };
        let job = match road.get(&format!("/jobs/{id}")).await {
            Ok(job) => job,
            Err(failure) if failure.exit == Exit::NotFound => {
                return Err(of_other(&format!("its job {id} is not in this store")));
            }
            Err(failure) => return Err(failure),
        };
        let id_text = batch.id().to_string();
        let key = job["key"].as_str().unwrap_or_default();
        if job["root_id"] == id_text || key.starts_with(&format!("run:{id_text}:")) || !key.starts_with("run:") {
            return Ok(());
        }
        Err(of_other(&format!("its job {id} belongs to batch {}", job["root_id"].as_str().unwrap_or("-"))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: &str = "{\"line\":1,\"task_id\":\"a\",\"state\":\"success\",\"result\":null}\n\
        {\"line\":70,\"task_id\":\"b\",\"state\":\"held\",\"error\":null}\n\
        {\"line\":3,\"task_id\":\"c\",\"state\":\"dead\",\"error\":null}\n";

    fn opened(text: &str, retry: bool) -> (String, Result<Written, Failure>) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out.jsonl");
        std::fs::write(&path, text).unwrap();
        let opened = open(&path, retry).map(|(file, found)| {
            assert_eq!(
                std::fs::read_to_string(&path).unwrap(),
                text,
                "changed before it is known whose rows these are"
            );
            let (mut file, written) = found.prepare(file, &path).unwrap();
            file.write_all(b"+\n").unwrap();
            written
        });
        (std::fs::read_to_string(&path).unwrap(), opened)
    }

    #[test]
    fn a_torn_last_row_is_cut_off_and_the_rest_is_known() {
        let rows = ROWS.replace("held", "cancelled");
        let (text, written) = opened(&format!("{rows}{{\"line\":4,\"ta"), false);
        assert_eq!(text, format!("{rows}+\n"));
        let written = written.unwrap();
        assert_eq!(written.tally.words(), "1 success, 1 dead, 1 cancelled");
        assert_eq!([1, 3, 4, 70, 71].map(|l| written.lines.contains(l)), [true, true, false, true, false]);
    }

    #[test]
    fn what_will_come_again_is_taken_out() {
        let lines: Vec<&str> = ROWS.lines().collect();
        let (text, written) = opened(ROWS, false);
        assert_eq!(text, format!("{}\n{}\n+\n", lines[0], lines[2]));
        assert!(!written.unwrap().lines.contains(70));
        let (text, written) = opened(ROWS, true);
        assert_eq!(text, format!("{}\n+\n", lines[0]));
        assert_eq!(written.unwrap().tally.words(), "1 success");
    }

    #[test]
    fn rows_of_nodes_go_and_stay_with_that_of_their_flow() {
        let node = "{\"line\":2,\"node\":\"a\\\"b\",\"task_id\":\"c\",\"state\":\"success\",\"result\":1}\n";
        let flow = "{\"line\":2,\"flow_id\":\"f\",\"state\":\"dead\",\"error\":null}\n";
        let first = format!("{}\n", ROWS.lines().next().unwrap());
        let (text, written) = opened(&format!("{first}{node}{node}{flow}{}", &flow.replace('2', "3")[..20]), false);
        assert_eq!(text, format!("{first}{node}{node}{flow}+\n"));
        assert_eq!(written.unwrap().tally.words(), "1 success, 1 dead");
        let (text, written) = opened(&format!("{first}{node}{node}"), false);
        assert_eq!(
            (text, written.unwrap().lines.contains(2)),
            (format!("{first}+\n"), false),
            "torn before its flow's row"
        );
        let (text, _) = opened(&format!("{node}{flow}{first}"), true);
        assert_eq!(text, format!("{first}+\n"));
    }

    #[test]
    fn rows_that_will_all_come_again_still_say_whose_they_are() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out.jsonl");
        for state in ["dead", "held", "cancelled", "skipped"] {
            let gone = "{\"line\":1,\"task_id\":\"gone\",\"state\":\"missing\",\"error\":null}";
            std::fs::write(&path, format!("{gone}\n{{\"line\":2,\"task_id\":\"a\",\"state\":\"{state}\"}}\n")).unwrap();
            assert_eq!(open(&path, true).unwrap().1.job.as_deref(), Some("a"), "{state}");
        }
    }

    #[test]
    fn a_file_that_is_something_else_is_not_touched() {
        for text in ["precious\n", "precious", "{\"line\":1}\n", "{\"a\":1}", "\n"] {
            let (after, refused) = opened(text, true);
            assert_eq!(after, text);
            let refused = refused.unwrap_err();
            assert!(refused.exit == Exit::Usage && refused.message.contains("line 1"), "{text}: {}", refused.message);
        }
        let twice = ROWS.lines().next().unwrap();
        let (after, refused) = opened(&format!("{twice}\n{twice}\n"), false);
        assert_eq!(after, format!("{twice}\n{twice}\n"));
        assert!(refused.unwrap_err().message.contains("two rows for line 1"));
    }
}
