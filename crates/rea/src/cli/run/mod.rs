//! `rea run`: a file of jobs, or a pipe, run to its end; one JSON row for each line. What an earlier run of the same batch
//! has stored is not stored again, and what has ended is not run again: each line has a key of batch and number.

mod batch;
mod flight;
mod flow_file;
mod flows;
mod input;
mod line;
mod output;
mod place;
mod progress;
mod rows;
mod survey;

use std::collections::HashSet;
use std::fs::File;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ax::model::Timestamp;
use ax::model::catalogue::nearest;
use clap::Args;

use batch::Batch;
use flight::{End, Flight, Halt, Plan};
use line::Form;
use output::{Found, Written};
use place::Place;
use progress::{Progress, Tally};
use rows::Rows;
use survey::Survey;

use super::init::program;
use super::road::Road;
use super::serve::{Runtimes, StopSignals};
use super::{Exit, Failure, flags, show};
use crate::logs::{Choice, Logs};
use crate::settings::{self, Flags, Key, Origin, Resolved, Value};

const EXAMPLES: &str = "Examples:
  rea run jobs.jsonl tasks.py > results.jsonl
      a job a line: {\"task\": \"tasks:thumb\", \"args\": [\"a.png\"], \"timeout\": 5}
  rea run files.jsonl tasks.py --task tasks:thumb
      a line is the arguments: [\"a.png\", 200], or a single one: \"a.png\"
  rea run jobs.jsonl tasks.py --output results.jsonl
      after a crash or Ctrl-C the same command goes on, and adds what is missing
  rea run nightly.toml tasks.py
      a single flow, .toml or .json; as a line of a batch: {\"flow\": {\"name\": …, \"nodes\": …}}
  find . -name '*.png' | jq -R . | rea run - tasks.py --task tasks:thumb --name thumbs

A flow gives a row for each node, then one for the whole. Each other line gives one row when it ends: {\"line\": 1, \"task_id\": \"…\", \"state\": \"success\", \"result\": …},
or \"error\" in place of \"result\". The same content (or --name) is the same batch: what has ended
is not run again, only its row is written again. To run a file once more, give the run a --name.
Ctrl-C: running jobs may finish for --grace; a second one ends them at once.";

/// Lines that are stored and have not ended, at most; with `--fail-fast` fewer, so that little is to be cancelled.
const WINDOW: usize = 4_000;
const WINDOW_FAIL_FAST: usize = 200;
/// How long cancelled jobs of a server may take to end.
const CANCEL_PATIENCE: Duration = Duration::from_secs(30);

/// The flags of `rea run`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Run {
    /// The batch, a job or a flow a line, or a flow (.toml, .json); - reads a pipe and begins before its end
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Each line is the arguments of a job of this task: an array, or one value
    #[arg(long, value_name = "TASK")]
    task: Option<String>,
    /// Name the batch, instead of telling it by its content: a pipe needs it to be resumed, a file to be run a second time
    #[arg(long)]
    name: Option<String>,
    /// File for the rows: it is read first, and only rows that are missing are added [else: stdout]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Rows in input order, not as they end
    #[arg(long)]
    ordered: bool,
    /// Lines that can't be jobs give a row "refused", and the others run [else: nothing is run]
    #[arg(long)]
    keep_going: bool,
    /// The first line that does not succeed ends the run; what has not ended is cancelled
    #[arg(long)]
    fail_fast: bool,
    /// Start over what an earlier run left dead or cancelled
    #[arg(long)]
    retry: bool,
    /// At most so many lines are in the store and have not ended [default: 4000, with --fail-fast 200]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=8000))]
    window: Option<u16>,
    /// How long a batch can be resumed, from when its first job was stored; its jobs stay in the store for so long
    #[arg(long, value_name = "TIME", default_value = "30d", value_parser = flags::span)]
    remember: Duration,
    /// Nothing on stderr but errors
    #[arg(long, short)]
    quiet: bool,
    /// Code to load, the same as FILE.py|MODULE after the batch; may be repeated
    #[arg(id = "named_code", long = "code", value_name = "FILE.py|MODULE", help_heading = "Where")]
    code: Vec<String>,
    #[command(flatten)]
    flags: Flags<settings::Batch>,
}

/// What is to be run.
struct Source {
    /// `None` = standard input.
    file: Option<File>,
    batch: Batch,
    /// Of a file that can be read twice.
    survey: Option<Survey>,
    /// The same command finds the same batch.
    resumable: bool,
    /// When the run began.
    begun: Timestamp,
}

impl Run {
    pub(super) fn run(mut self) -> Result<Exit, Failure> {
        self.name_code();
        let given = self.flags.given.clone();
        let all = Resolved::new(&given)?;
        let reach = settings::Reach::new(&given)?;
        let form = Form {
            task: self.task.clone(),
            limits: reach.engine.limits.clone(),
            defaults: reach.engine.defaults.clone(),
        };
        let source = self.source(&form)?;
        if source.survey.as_ref().is_some_and(|survey| survey.lines == 0) {
            self.say("run: the batch has no lines");
            return Ok(Exit::Ok);
        }
        let rows = self.output.as_deref().map(|path| output::open(path, self.retry)).transpose()?;
        let logs = Logs::install(Choice::default(), &log_filter(&all));
        let runtimes = Runtimes::new().map_err(|e| Failure::new(Exit::Unreachable, format!("can't start: {e}")))?;
        let found = runtimes.jobs.block_on(Place::find(&given, &reach, &logs, runtimes.http.handle()));
        let done = found.and_then(|(place, road)| {
            if !place.is_own() && given.values.iter().any(|(key, _)| *key == Key::Code) {
                self.say("note: a server runs on this store: its workers run the jobs, and no code is loaded here");
            }
            runtimes.http.block_on(self.at(place, road, source, form, rows))
        });
        runtimes.end();
        logs.flush();
        done
    }

    /// `--code` and words after the batch are one list.
    fn name_code(&mut self) {
        let named = std::mem::take(&mut self.code);
        if named.is_empty() {
            return;
        }
        let values = &mut self.flags.given.values;
        match values.iter_mut().find(|(key, _)| *key == Key::Code) {
            Some((_, Value::List(code))) => code.extend(named),
            _ => values.push((Key::Code, Value::List(named))),
        }
    }

    fn say(&self, text: &str) {
        if !self.quiet {
            show::note(text);
        }
    }

    /// Opens the batch, and reads it once where that can be done.
    fn source(&self, form: &Form) -> Result<Source, Failure> {
        let named = self.name.as_deref().map(Batch::named);
        let file = match self.file.as_os_str() == "-" {
            true => None,
            false if flow_file::is_one(&self.file) => Some(flow_file::as_batch(&self.file)?),
            false => Some(File::open(&self.file).map_err(|e| {
                let message = format!("can't read {}: {e}", self.file.display());
                Failure::new(Exit::Usage, message).hint("name a file with a job a line, or - for a pipe")
            })?),
        };
        let unreadable =
            |e: std::io::Error| Failure::new(Exit::Usage, format!("can't read {}: {e}", self.file.display()));
        let Some(mut file) = file else { return self.pipe(None, named) };
        if !file.metadata().map_err(unreadable)?.is_file() {
            return self.pipe(Some(file), named);
        }
        let survey = Survey::of(&mut file, form).map_err(unreadable)?;
        if survey.bad_count > 0 {
            let lines = survey.bad_lines().join("\n");
            let count = survey.bad_count;
            let what = format!("{count} of {} lines of {} can't be jobs", survey.lines, self.file.display());
            if !self.keep_going {
                return Err(Failure::new(Exit::Usage, format!("{what}; nothing was stored\n{lines}"))
                    .hint("mend them, or --keep-going to run the others"));
            }
            self.say(&format!("note: {what}:"));
            survey.bad_lines().iter().for_each(|line| self.say(&format!("  {line}")));
        }
        let batch = named.unwrap_or_else(|| Batch::of_content(form.task.as_deref(), &survey.digest));
        Ok(Source { file: Some(file), batch, survey: Some(survey), resumable: true, begun: now() })
    }

    /// What can be read once only.
    fn pipe(&self, file: Option<File>, named: Option<Batch>) -> Result<Source, Failure> {
        if self.output.is_some() && named.is_none() {
            return Err(Failure::new(Exit::Usage, "--output of a pipe needs a --name, which tells the batch")
                .hint("name the batch: --name NAME; or write the rows to stdout"));
        }
        let resumable = named.is_some();
        let batch = match named {
            Some(batch) => batch,
            None => {
                let mut random = [0; 32];
                let no_random = |e| Failure::new(Exit::Unreachable, format!("the system gives no random bytes: {e}"));
                getrandom::fill(&mut random).map_err(no_random)?;
                Batch::once(&random)
            }
        };
        Ok(Source { file, batch, survey: None, resumable, begun: now() })
    }

    /// Runs the batch at its place, and closes that.
    async fn at(
        &self,
        place: Place,
        mut road: Road,
        source: Source,
        form: Form,
        rows: Option<(File, Found)>,
    ) -> Result<Exit, Failure> {
        let mut signals = StopSignals::listen()?;
        let ready = self.ready(&place, &mut road, &source, rows).await;
        let (offers, written) = match ready {
            Ok(ready) => ready,
            Err(failure) => {
                place.stop(&mut signals).await;
                place.close().await;
                return Err(failure);
            }
        };
        let resumable = source.resumable;
        let begun = Instant::now();
        let (mut flight, file) = self.flight(road, source, form, written, offers);
        let ended = match input::spawn(file) {
            Ok(mut input) => flight.fly(&mut input, &mut signals).await,
            Err(error) => Err(Failure::new(Exit::Unreachable, format!("can't start: {error}"))),
        };
        let ended = self.wind_up(&place, &mut flight, ended, &mut signals).await;
        flight.progress.clear();
        let exit = self.report(&place, &flight, ended, resumable, begun.elapsed());
        place.close().await;
        exit
    }

    /// What must hold before anything is stored, or taken out of the output file. Gives the tasks that workers offer, and the
    /// file made ready.
    async fn ready(
        &self,
        place: &Place,
        road: &mut Road,
        source: &Source,
        rows: Option<(File, Found)>,
    ) -> Result<(HashSet<String>, Option<(File, Written)>), Failure> {
        let path = self.output.as_deref().unwrap_or(Path::new(""));
        if let Some((_, found)) = &rows {
            found.check_batch(road, &source.batch, path).await?;
        }
        let status = road.get("/status").await?;
        let offers = status["offers"].as_array().into_iter().flatten().filter_map(|o| o.as_str().map(str::to_owned));
        let offers: HashSet<String> = offers.collect();
        let asked = source.survey.iter().flat_map(|survey| &survey.tasks).map(|(task, line)| (task.as_str(), *line));
        let asked = asked.chain(self.task.as_deref().map(|task| (task, 0)));
        let mut asked = asked.into_iter().filter(|_| !self.keep_going || self.task.is_some());
        if let Some((task, line)) = asked.find(|(task, _)| !offers.contains(*task)) {
            return Err(not_offered(task, line, &offers, place.is_own()));
        }
        let written = rows.map(|(file, found)| found.prepare(file, path)).transpose()?;
        Ok((offers, written))
    }

    fn flight(
        &self,
        road: Road,
        source: Source,
        form: Form,
        written: Option<(File, Written)>,
        offers: HashSet<String>,
    ) -> (Flight, Option<File>) {
        let (rows, written) = match written {
            Some((file, written)) => (Rows::file(file, self.ordered), written),
            None => (Rows::stdout(self.ordered), Written::default()),
        };
        let tally = Tally { written_before: written.tally.done(), ..written.tally };
        let total = source.survey.as_ref().map(|survey| survey.lines);
        let progress = Progress::new(self.quiet, std::io::stderr().is_terminal(), total, tally.done());
        let window = match self.window {
            Some(window) => usize::from(window),
            None if self.fail_fast => WINDOW_FAIL_FAST,
            None => WINDOW,
        };
        let plan = Plan {
            batch: source.batch,
            form,
            window,
            remember: self.remember,
            keep_going: self.keep_going,
            fail_fast: self.fail_fast,
            retry: self.retry,
            begun: source.begun,
            offers,
            digest: source.survey.map(|survey| survey.digest),
            rows_on_terminal: self.output.is_none() && std::io::stdout().is_terminal(),
        };
        (Flight::new(plan, road, rows, written.lines, progress, tally), source.file)
    }

    /// Lets what runs come to its end, and writes the rows that are still to be had.
    async fn wind_up(
        &self,
        place: &Place,
        flight: &mut Flight,
        ended: Result<End, Failure>,
        signals: &mut StopSignals,
    ) -> Result<End, Failure> {
        let early = !matches!(ended, Ok(End::All));
        if early && place.is_own() && !matches!(ended, Ok(End::Unread)) {
            let grace = show::duration(place.grace());
            let how = format!("run: taking no more lines; running jobs may finish for {grace}, Ctrl-C ends them now");
            if !self.quiet {
                flight.progress.tell(&how);
            }
        }
        place.stop(signals).await;
        let last = match &ended {
            Ok(End::FailFast) => tokio::select! {
                rest = flight.cancel_rest(CANCEL_PATIENCE) => rest,
                () = signals.next() => Ok(()),
            },
            Ok(End::Unread) => Ok(()),
            _ => flight.sweep().await,
        };
        match (ended, last) {
            (Ok(End::All), Err(Halt::Trouble(failure))) | (Ok(End::FailFast), Err(Halt::Trouble(failure))) => {
                Err(failure)
            }
            (Ok(_), Err(Halt::End(End::Unread))) => Ok(End::Unread),
            // What ended the run is what is told.
            (ended, _) => ended,
        }
    }

    /// Says how the run ended.
    fn report(
        &self,
        place: &Place,
        flight: &Flight,
        ended: Result<End, Failure>,
        resumable: bool,
        took: Duration,
    ) -> Result<Exit, Failure> {
        let tally = &flight.tally;
        let go_on = || match resumable {
            true => format!("go on with the same command: {}", this_command()),
            false => "a pipe without a --name can't be resumed".to_owned(),
        };
        let summary = |what: &str| {
            let of = flight.progress.total().map_or(String::new(), |total| format!(" of {total}"));
            let took = show::duration(took);
            let mut text = format!("run: {what}, {}{of} lines in {took}: {}", tally.done(), tally.words());
            if tally.written_before + tally.stored_before > 0 {
                let before = tally.written_before + tally.stored_before;
                text.push_str(&format!(" ({before} were there from an earlier run)"));
            }
            self.say(&text);
        };
        match ended {
            Ok(End::All) => {
                summary("done");
                Ok(if tally.failed() > 0 { Exit::Failed } else { Exit::Ok })
            }
            Ok(End::FailFast) => {
                summary("ended by a line that failed");
                self.say(&format!("hint: the rows say why; once it is mended: {} --retry", this_command()));
                Ok(Exit::Failed)
            }
            Ok(End::Stopped) => {
                summary("stopped");
                if !place.is_own() && flight.left() > 0 {
                    self.say(&format!("note: {} jobs are in the server, which goes on with them", flight.left()));
                }
                self.say(&format!("hint: {}", go_on()));
                Ok(Exit::Interrupted)
            }
            Ok(End::Unread) => Ok(Exit::Ok),
            Ok(End::Refused(failure)) => {
                summary("stopped");
                Err(failure)
            }
            Err(failure) => {
                summary("stopped");
                let hint = failure.hint.iter().cloned().chain([go_on()]).collect::<Vec<_>>().join("; ");
                Err(failure.hint(hint))
            }
        }
    }
}

fn now() -> Timestamp {
    Timestamp(jiff::Timestamp::now().as_microsecond())
}

/// What stands beside the bar on stderr: warnings, unless someone wants more.
fn log_filter(all: &Resolved) -> String {
    match all.get(Key::LogFilter) {
        (Value::Text(filter), origin) if *origin != Origin::Default => filter.clone(),
        _ => "warn".to_owned(),
    }
}

/// A task that no worker runs. `line` = 0: it was named on the command line.
fn not_offered(task: &str, line: u64, offers: &HashSet<String>, own: bool) -> Failure {
    let place = if line > 0 { format!("line {line}: ") } else { "--task: ".to_owned() };
    let near = nearest(task, offers.iter().map(String::as_str));
    let hint = match (near.as_slice(), own) {
        ([], true) => format!("the code has {}", list(offers)),
        ([], false) => "start the server with the file that defines it, or stop it and name the code here".to_owned(),
        (near, _) => {
            let near: Vec<String> = near.iter().map(|n| format!("\"{n}\"")).collect();
            format!("did you mean {}?", near.join(" or "))
        }
    };
    Failure::new(Exit::Refused, format!("{place}no worker offers the task \"{task}\"; nothing was stored")).hint(hint)
}

fn list(offers: &HashSet<String>) -> String {
    let mut names: Vec<&str> = offers.iter().map(String::as_str).collect();
    names.sort_unstable();
    names.join(", ")
}

/// What was typed, to be typed again.
fn this_command() -> String {
    let words = std::env::args_os().skip(1).map(|word| show::quoted(&word.to_string_lossy()));
    std::iter::once(program()).chain(words).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_that_no_worker_offers_is_told_with_what_is_near() {
        let offers = HashSet::from(["tasks:add".to_owned(), "tasks:slow".to_owned()]);
        let near = not_offered("tasks:ad", 3, &offers, true);
        assert!(near.message.starts_with("line 3:") && near.hint.unwrap().contains("did you mean \"tasks:add\""));
        let far = not_offered("other", 0, &offers, true);
        assert!(far.message.starts_with("--task:") && far.hint.unwrap() == "the code has tasks:add, tasks:slow");
        assert!(not_offered("other", 0, &offers, false).hint.unwrap().contains("start the server"));
    }
}
