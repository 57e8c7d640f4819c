//! What ran, by the word of the functions themselves: the lines that they append to a file outside the store.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::server;

/// What a line says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    Start,
    End,
    /// A process that the function made.
    Helper,
}

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) word: Word,
    pub(super) job: String,
    pub(super) attempt: u32,
    pub(super) token: String,
    pub(super) pid: u32,
    /// When that process began, clock ticks since boot.
    pub(super) began: u64,
}

/// Every whole line of the file. A file that is not there yet has none.
pub(super) fn read(path: &Path) -> Result<Vec<Line>> {
    if !path.exists() {
        return Ok(Vec::new());
    }
    let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    text.lines().map(|line| parse(line).with_context(|| format!("not a line of the functions: {line:?}"))).collect()
}

fn parse(line: &str) -> Option<Line> {
    let mut fields = line.split(' ');
    let word = match fields.next()? {
        "start" => Word::Start,
        "end" => Word::End,
        "helper" => Word::Helper,
        _ => return None,
    };
    let line = Line {
        word,
        job: fields.next()?.to_owned(),
        attempt: fields.next()?.parse().ok()?,
        token: fields.next()?.to_owned(),
        pid: fields.next()?.parse().ok()?,
        began: fields.next()?.parse().ok()?,
    };
    fields.next().is_none().then_some(line)
}

/// Processes of `lines` that live although their server is dead: alive, and not of the family of the server that runs now.
/// For each the line that speaks of it last.
pub(super) fn survivors(lines: &[Line], now_running: u32) -> Vec<&Line> {
    let family = server::family(now_running);
    let last: BTreeMap<(u32, u64), &Line> = lines.iter().map(|line| ((line.pid, line.began), line)).collect();
    last.into_values().filter(|l| !family.contains(&l.pid) && server::lives(l.pid, Some(l.began))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_and_torn_ones_are_noticed() {
        let line = parse("start 0193793e-7f00-7000-8000-000000000001 2 00000000000000ff 4242 99").unwrap();
        assert_eq!((line.word, line.attempt, line.pid, line.began), (Word::Start, 2, 4242, 99));
        assert_eq!(line.token, "00000000000000ff");
        assert!(parse("start 0193793e 2 00ff 4242").is_none());
        assert!(parse("other 0193793e 2 00ff 4242 99").is_none());
    }

    #[test]
    fn a_process_outside_the_running_servers_family_is_a_survivor() {
        let sleeper = || std::process::Command::new("sleep").arg("30").spawn().unwrap();
        let (mut orphan, mut server) = (sleeper(), sleeper());
        let began = server::began(orphan.id()).unwrap();
        let line = parse(&format!("helper j 1 ff {} {began}", orphan.id())).unwrap();
        let lines = [line, parse(&format!("helper j 1 ff {} {}", orphan.id(), began + 1)).unwrap()];
        assert_eq!(survivors(&lines, server.id()), [&lines[0]]);
        assert!(survivors(&lines, std::process::id()).is_empty());
        orphan.kill().unwrap();
        orphan.wait().unwrap();
        assert!(survivors(&lines, server.id()).is_empty());
        server.kill().unwrap();
        server.wait().unwrap();
    }
}
