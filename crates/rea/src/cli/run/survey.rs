//! A file is read once before anything is stored: what it is, how long it is, and which of its lines can't be jobs.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Seek, SeekFrom};

use super::input::Lines;
use super::line::{Bad, Form};

/// So many bad lines are told; the others are counted.
pub(super) const TOLD: usize = 20;

/// What a file holds.
#[derive(Debug, Default)]
pub(super) struct Survey {
    pub(super) digest: [u8; 32],
    /// Lines that are not blank.
    pub(super) lines: u64,
    /// Each task, with the first line that asks for it.
    pub(super) tasks: BTreeMap<String, u64>,
    /// The first bad lines.
    pub(super) bad: Vec<(u64, Bad)>,
    pub(super) bad_count: u64,
}

impl Survey {
    /// Reads the file, and puts it back to its beginning.
    pub(super) fn of(file: &mut File, form: &Form) -> io::Result<Survey> {
        let mut survey = Survey::default();
        let mut lines = Lines::new(BufReader::with_capacity(1 << 20, &*file));
        while let Some(line) = lines.next()? {
            survey.lines += 1;
            match form.read(line.text.as_deref()) {
                Ok(order) => {
                    for task in order.tasks {
                        survey.tasks.entry(task).or_insert(line.number);
                    }
                }
                Err(bad) => {
                    survey.bad_count += 1;
                    if survey.bad.len() < TOLD {
                        survey.bad.push((line.number, bad));
                    }
                }
            }
        }
        survey.digest = lines.digest();
        file.seek(SeekFrom::Start(0))?;
        Ok(survey)
    }

    /// The bad lines, for people; empty when there are none.
    pub(super) fn bad_lines(&self) -> Vec<String> {
        let mut told: Vec<String> =
            self.bad.iter().map(|(number, bad)| format!("line {number}: {}", bad.message)).collect();
        match self.bad_count - self.bad.len() as u64 {
            0 => {}
            more => told.push(format!("and {more} more")),
        }
        told
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    #[test]
    fn every_bad_line_is_counted_and_the_first_ones_are_told() {
        let mut file = tempfile::tempfile().unwrap();
        for n in 0..60 {
            let line = if n % 2 == 0 { "{\"task\": \"m:f\"}\n\n" } else { "{\"task\": 1}\n" };
            file.write_all(line.as_bytes()).unwrap();
        }
        file.seek(SeekFrom::Start(0)).unwrap();
        let form = Form { task: None, limits: Default::default(), defaults: Default::default() };
        let survey = Survey::of(&mut file, &form).unwrap();
        assert_eq!((survey.lines, survey.bad_count), (60, 30));
        let told = survey.bad_lines();
        assert!(told[0].starts_with("line 3: task: must be"), "{told:?}");
        assert_eq!((told.len(), told[TOLD].as_str()), (TOLD + 1, "and 10 more"));
        assert_eq!(survey.tasks["m:f"], 1);
        let mut again = String::new();
        file.read_to_string(&mut again).unwrap();
        assert_eq!(again.lines().count(), 90, "the file is to be read again");
    }
}
