//! The captured output of a job on its way to a person or a program: bytes come in pieces of any length, whole characters or
//! whole lines go out.

use std::io::{IsTerminal, Write};

use serde_json::json;

use super::{Failure, show};
use crate::logs::for_terminal;

/// How output is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// As it is: into a file or a pipe.
    Exact,
    /// Made harmless for a terminal.
    Harmless,
    /// One JSON object a line, with its attempt.
    Json,
}

/// Prints the output of one attempt after the other.
pub(super) struct Printed {
    form: Form,
    /// What came and could not go out: a part of a character, or of a line.
    kept: Vec<u8>,
}

impl Printed {
    pub(super) fn new(json: bool) -> Printed {
        let form = match json {
            true => Form::Json,
            false if std::io::stdout().is_terminal() => Form::Harmless,
            false => Form::Exact,
        };
        Printed { form, kept: Vec::new() }
    }

    /// The next bytes of an attempt.
    pub(super) fn put(&mut self, attempt: u32, bytes: &[u8]) -> Result<(), Failure> {
        let ready = self.ready(attempt, bytes);
        write(&ready)
    }

    /// There is no more of this attempt.
    pub(super) fn end(&mut self, attempt: u32) -> Result<(), Failure> {
        let rest = std::mem::take(&mut self.kept);
        if rest.is_empty() {
            return Ok(());
        }
        write(&self.shaped(attempt, &rest))
    }

    /// What can go out by now.
    fn ready(&mut self, attempt: u32, bytes: &[u8]) -> Vec<u8> {
        if self.form == Form::Exact {
            return bytes.to_vec();
        }
        self.kept.extend_from_slice(bytes);
        let end = match self.form {
            Form::Json => memchr::memrchr(b'\n', &self.kept).map_or(0, |at| at + 1),
            _ => whole_characters(&self.kept),
        };
        let rest = self.kept.split_off(end);
        let whole = std::mem::replace(&mut self.kept, rest);
        self.shaped(attempt, &whole)
    }

    fn shaped(&self, attempt: u32, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(bytes.len());
        for text in String::from_utf8_lossy(bytes).split_inclusive('\n') {
            let line = text.strip_suffix('\n').unwrap_or(text);
            let line = line.strip_suffix('\r').unwrap_or(line);
            match self.form {
                Form::Json => out.extend_from_slice(json!({ "attempt": attempt, "line": line }).to_string().as_bytes()),
                _ => out.extend_from_slice(for_terminal(line).as_bytes()),
            }
            if text.ends_with('\n') || self.form == Form::Json {
                out.push(b'\n');
            }
        }
        out
    }
}

/// How many bytes can be shown: all but a character at the end that has only begun.
fn whole_characters(bytes: &[u8]) -> usize {
    match std::str::from_utf8(bytes) {
        Ok(_) => bytes.len(),
        Err(error) => match error.error_len() {
            None => error.valid_up_to(),
            // Something else is no UTF-8; only the very end can be a beginning.
            Some(_) => (1..=3.min(bytes.len()))
                .map(|back| bytes.len() - back)
                .find(|at| {
                    std::str::from_utf8(&bytes[*at..]).is_err_and(|e| e.error_len().is_none() && e.valid_up_to() == 0)
                })
                .unwrap_or(bytes.len()),
        },
    }
}

fn write(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    out.write_all(bytes)?;
    // Also what is not a whole line yet.
    out.flush()?;
    Ok(())
}

/// A note beside the output: which attempt begins, or that there was none.
pub(super) fn note(text: &str) {
    show::note(&format!("({text})"));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(form: Form, pieces: &[&[u8]]) -> String {
        let mut printed = Printed { form, kept: Vec::new() };
        let mut out: Vec<u8> = pieces.iter().flat_map(|piece| printed.ready(1, piece)).collect();
        let rest = std::mem::take(&mut printed.kept);
        out.extend(printed.shaped(1, &rest));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn characters_survive_any_cut() {
        let text = "héllo 🦀 שלום\n中文\x1b[2J";
        for form in [Form::Harmless, Form::Json] {
            let whole = printed(form, &[text.as_bytes()]);
            for size in 1..6 {
                let pieces: Vec<&[u8]> = text.as_bytes().chunks(size).collect();
                assert_eq!(printed(form, &pieces), whole, "{size}");
            }
        }
        assert_eq!(printed(Form::Harmless, &[text.as_bytes()]), "héllo 🦀 שלום\n中文\\u{1b}[2J");
        let lines = "{\"attempt\":1,\"line\":\"héllo 🦀 שלום\"}\n{\"attempt\":1,\"line\":\"中文\\u001b[2J\"}\n";
        assert_eq!(printed(Form::Json, &[text.as_bytes()]), lines);
    }

    #[test]
    fn what_is_no_text_is_marked_and_holds_nothing_up() {
        assert_eq!(whole_characters(b"a\xff\xf0\x9f"), 2);
        assert_eq!(whole_characters(b"a\xff"), 2);
        assert_eq!(printed(Form::Harmless, &[b"a\xffb\xf0\x9f"]), "a\u{fffd}b\u{fffd}");
    }
}
