//! Mutations: small slips, pieces of other inputs, words of the language, and things that are far too long or too deep.

use ax::model::Chance;

/// What breaks parsers, whatever they parse.
const NASTY: &[&str] = &[
    "null",
    "true",
    "-1",
    "0",
    "1e400",
    "-1e-400",
    "1e999999999",
    "NaN",
    "-Infinity",
    "18446744073709551616",
    "-9223372036854775809",
    "0.1e1",
    "00",
    "\"",
    "\\",
    "\\u0000",
    "\\ud800",
    "\\ud83d\\ude00",
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "\n",
    "\r\n",
    "\0",
    "\u{feff}",
    "\u{202e}",
    "é",
    "😀",
    "%00",
    "%",
    "%ff",
    "+",
    "&",
    "=",
    ";",
    "'",
    "../",
    "<script>",
    "'; DROP TABLE jobs;--",
    "x' OR '1'='1",
    "9999-12-31T23:59:60Z",
    "-262143-01-01T00:00:00Z",
    "2026-02-30T00:00:00+99:99",
];
/// Longest input.
const LONGEST: usize = 256 << 10;

/// A source of inputs.
pub(crate) struct Mutator<'a> {
    chance: Chance,
    words: &'a [&'a str],
}

impl<'a> Mutator<'a> {
    pub(crate) fn new(chance: Chance, words: &'a [&'a str]) -> Mutator<'a> {
        Mutator { chance, words }
    }

    /// A number below `end`, which is at least 1.
    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.chance.next_u64() % end.max(1) as u64).unwrap_or(0)
    }

    /// One of `kept` with a few mutations.
    pub(crate) fn next(&mut self, kept: &[Vec<u8>]) -> Vec<u8> {
        // Half of them from the beginning, where the corpus is.
        let reach = if self.below(2) == 0 { kept.len().min(8) } else { kept.len() };
        let mut input = kept[self.below(reach)].clone();
        for _ in 0..=self.below(3) {
            self.mutate(&mut input, kept);
        }
        input.truncate(LONGEST);
        input
    }

    fn mutate(&mut self, input: &mut Vec<u8>, kept: &[Vec<u8>]) {
        let at = self.below(input.len() + 1);
        let end = at + self.below((input.len() - at + 1).min(32));
        match self.below(12) {
            0 if at < input.len() => input[at] ^= 1 << self.below(8),
            1 if at < input.len() => input[at] = self.chance.next_u64().to_le_bytes()[0],
            2 => drop(input.drain(at..end)),
            3 => input.truncate(at),
            4 => {
                let piece = input[at..end].to_vec();
                input.splice(at..at, piece);
            }
            5 => {
                let other = &kept[self.below(kept.len())];
                let from = self.below(other.len() + 1);
                let to = from + self.below((other.len() - from + 1).min(200));
                input.splice(at..end, other[from..to].iter().copied());
            }
            6 | 7 => self.put(input, at, end, NASTY),
            8 | 9 => self.put(input, at, end, self.words),
            // Something far too long: a digit, a letter or a bracket, again and again.
            10 if self.below(40) == 0 => {
                let byte = b"0x[{\" ,%-\\a1"[self.below(12)];
                let times = 1 << self.below(18);
                input.splice(at..at, std::iter::repeat_n(byte, times));
            }
            // A digit, in place of one.
            _ => {
                if let Some(digit) = input[at..].iter_mut().find(|byte| byte.is_ascii_digit()) {
                    *digit = b"0123456789"[self.chance.next_u64() as usize % 10];
                }
            }
        }
    }

    fn put(&mut self, input: &mut Vec<u8>, at: usize, end: usize, words: &[&str]) {
        if let Some(word) = words.get(self.below(words.len())) {
            let to = if self.below(2) == 0 { at } else { end };
            input.splice(at..to, word.bytes());
        }
    }
}
