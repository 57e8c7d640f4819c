//! Foreign bytes against the parsers, in tests only: seeded mutations of a corpus, for a second in every test run and for longer
//! with `cargo xtask fuzz-parsers --seconds N`. No nightly toolchain, so no coverage feedback: inputs with a new outcome are kept
//! and mutated further instead.
//!
//! A parser must never panic, must not take much more memory than its input, must give back what it took, and must say no
//! briefly and with a stable code.

mod mutate;
mod room;

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use ax::model::Chance;

pub(crate) use mutate::Mutator;

/// How long a target runs in a plain `cargo test`.
const SECONDS: f64 = 0.5;
/// Bytes that a parser may take whatever its input, and for each byte of it.
const ROOM: usize = 64 << 10;
const ROOM_FOR_A_BYTE: usize = 8;
/// Longest message of a refusal, bytes.
const MESSAGE_MAX: usize = 4_000;
/// Longest time for one input; wide, because tests run unoptimized and beside others.
const LONGEST: Duration = Duration::from_secs(2);
/// Most inputs that are mutated further.
const KEPT: usize = 2_000;

/// What became of an input: a short word for each way of being taken or refused.
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct Outcome {
    taken: bool,
    way: String,
}

/// The outcome of an input that was taken; `way` tells which of its parts it had.
pub(crate) fn taken(way: impl Into<String>) -> Outcome {
    Outcome { taken: true, way: way.into() }
}

/// The outcome of a refusal. `message` must be short, whatever the input was; of its words, only `known` ones tell one
/// refusal from another.
pub(crate) fn refused(code: &str, message: &str, known: &[&str]) -> Outcome {
    assert!(message.len() <= MESSAGE_MAX, "a refusal of {} bytes: {}", message.len(), crate::error::clip(message));
    let words = message.split(|c: char| !(c.is_ascii_lowercase() || c == '_'));
    let told: Vec<&str> = words.filter(|word| known.contains(word) || SENTENCES.contains(word)).collect();
    Outcome { taken: false, way: format!("{code} {}", told.join(" ")) }
}

/// Words by which the same code's sentences differ.
const SENTENCES: &[&str] = &[
    "twice",
    "missing",
    "number",
    "text",
    "list",
    "negative",
    "longer",
    "whole",
    "must",
    "expected",
    "invalid",
    "escape",
    "control",
    "recursion",
    "trailing",
    "surrogate",
    "unknown",
    "without",
    "bytes",
    "characters",
    "empty",
    "null",
    "depth",
];

/// Feeds mutations of `corpus`, spiced with `words`, to `parse`, which panics where a promise is broken. What it does within
/// `measured` counts as the parser's room.
pub(crate) fn run(target: &str, corpus: &[&[u8]], words: &[&str], parse: impl Fn(&[u8]) -> Outcome) {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<f64>().ok());
    let limit = Duration::from_secs_f64(number("REA_FUZZ_SECONDS").unwrap_or(SECONDS));
    let seed = number("REA_FUZZ_SEED").map_or(1, |seed| seed as u64);
    let mut mutator = Mutator::new(Chance::new(seed), words);
    let mut kept: Vec<Vec<u8>> = corpus.iter().map(|input| input.to_vec()).collect();
    let mut outcomes = HashSet::new();
    let (begun, mut executions, mut accepted) = (Instant::now(), 0u64, 0u64);
    for input in &kept {
        let outcome = one(target, seed, input, &parse);
        assert!(outcome.taken, "the corpus itself is refused: {}", outcome.way);
        outcomes.insert(outcome);
    }
    while begun.elapsed() < limit {
        let input = mutator.next(&kept);
        let outcome = one(target, seed, &input, &parse);
        executions += 1;
        accepted += u64::from(outcome.taken);
        let promising = outcome.taken;
        if outcomes.insert(outcome) && kept.len() < KEPT && input.len() < 64 << 10 {
            // What was taken goes further than what was refused, so that it is drawn more often.
            kept.extend(std::iter::repeat_n(input, if promising { 4 } else { 1 }));
        }
    }
    println!("fuzz {target}: seed {seed}, {executions} executions, {accepted} accepted, {} outcomes", outcomes.len());
    assert!(accepted > 0, "nothing but the corpus was accepted: the mutations are too wild");
}

fn one(target: &str, seed: u64, input: &[u8], parse: &impl Fn(&[u8]) -> Outcome) -> Outcome {
    catch_unwind(AssertUnwindSafe(|| parse(input))).unwrap_or_else(|panic| {
        let shown = input[..input.len().min(4_096)].escape_ascii();
        println!("fuzz {target}: seed {seed}, {} bytes: b\"{shown}\"", input.len());
        std::panic::resume_unwind(panic)
    })
}

/// Runs the parser itself and checks how much memory it took at its peak, and how long it took.
pub(crate) fn measured<T>(input: &[u8], parser: impl Fn() -> T) -> T {
    let bound = ROOM + ROOM_FOR_A_BYTE * input.len();
    let mut longest = Duration::ZERO;
    // Looked at again, because someone else may have had the machine meanwhile.
    for _ in 0..3 {
        let begun = Instant::now();
        let (parsed, peak) = room::peak_of(&parser);
        assert!(peak <= bound, "{peak} bytes of memory for {} bytes of input, the bound is {bound}", input.len());
        longest = begun.elapsed();
        if longest < LONGEST {
            return parsed;
        }
    }
    panic!("{longest:?} for {} bytes of input", input.len());
}
