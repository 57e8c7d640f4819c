//! Words with places for the arguments of a job: the words of a command, where one word stays one word, whatever is filled in
//! (no shell reads it), and the concurrency key that a task gives its jobs.

use std::fmt;

use serde_json::{Map, Value};

/// One word: `{0}` and `{name}` inside stand for an argument, `{0|name}` for the first of them that is given, `{{` and `}}`
/// for braces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word(Vec<Piece>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    /// The first of these that is given.
    Argument(Vec<Source>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Source {
    /// An argument by its place.
    Place(usize),
    /// An argument by its name.
    Name(String),
}

impl Source {
    fn parse(text: &str) -> Source {
        text.parse().map_or_else(|_| Source::Name(text.to_owned()), Source::Place)
    }

    fn of<'a>(&self, args: &'a [Value], kwargs: &'a Map<String, Value>) -> Option<&'a Value> {
        match self {
            Source::Place(place) => args.get(*place),
            Source::Name(name) => kwargs.get(name),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Place(place) => write!(f, "{place}"),
            Source::Name(name) => f.write_str(name),
        }
    }
}

/// As it stands in a word, without the braces.
fn spelled(sources: &[Source]) -> String {
    sources.iter().map(Source::to_string).collect::<Vec<_>>().join("|")
}

impl Word {
    /// Reads a word.
    ///
    /// # Errors
    /// What is wrong with a placeholder, and what would be right.
    pub fn parse(text: &str) -> Result<Word, String> {
        let wrong = || format!("{text:?}: an argument is {{0}} or {{name}}, a brace is {{{{ or }}}}");
        let mut pieces = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            plain.push_str(&rest[..at]);
            let (brace, after) = (&rest[at..=at], &rest[at + 1..]);
            if let Some(after) = after.strip_prefix(brace) {
                plain.push_str(brace);
                rest = after;
                continue;
            }
            let (inner, after) = after.split_once('}').filter(|_| brace == "{").ok_or_else(wrong)?;
            if inner.contains('{') || inner.split('|').any(str::is_empty) {
                return Err(wrong());
            }
            if !plain.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut plain)));
            }
            pieces.push(Piece::Argument(inner.split('|').map(Source::parse).collect()));
            rest = after;
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            pieces.push(Piece::Text(plain));
        }
        Ok(Word(pieces))
    }

    /// The text, if it has no places.
    #[must_use]
    pub fn fixed(&self) -> Option<&str> {
        match self.0.as_slice() {
            [] => Some(""),
            [Piece::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// The word for a job: texts as they are, other values as JSON.
    ///
    /// # Errors
    /// The argument that is missing or can't be part of a word.
    pub fn fill(&self, args: &[Value], kwargs: &Map<String, Value>) -> Result<String, String> {
        let mut filled = String::new();
        for piece in &self.0 {
            let sources = match piece {
                Piece::Text(text) => {
                    filled.push_str(text);
                    continue;
                }
                Piece::Argument(sources) => sources,
            };
            match sources.iter().find_map(|source| source.of(args, kwargs)) {
                Some(Value::String(text)) if text.contains('\0') => {
                    return Err(format!("{{{}}} without NUL characters", spelled(sources)));
                }
                Some(Value::String(text)) => filled.push_str(text),
                Some(value) => filled.push_str(&value.to_string()),
                None => return Err(format!("{{{}}}", spelled(sources))),
            }
        }
        Ok(filled)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn arguments_fill_their_places_and_nothing_else() {
        let args = [json!("a b; rm -rf"), json!(3)];
        let kwargs = json!({ "size": "10x10", "list": [1, "x"] });
        let kwargs = kwargs.as_object().unwrap();
        let of = |word| Word::parse(word).unwrap().fill(&args, kwargs);
        assert_eq!(of("plain").unwrap(), "plain");
        assert_eq!(of("{0}").unwrap(), "a b; rm -rf", "one word stays one word");
        assert_eq!(of("--size={size}x{1}").unwrap(), "--size=10x10x3");
        assert_eq!(of("{list}").unwrap(), r#"[1,"x"]"#);
        assert_eq!(of("{{0}}").unwrap(), "{0}");
        assert_eq!(of("{1|size}-{7|size}-{nope|0}").unwrap(), "3-10x10-a b; rm -rf");
        assert_eq!(of("{2|nope}").unwrap_err(), "{2|nope}");
        assert_eq!(of("{2}").unwrap_err(), "{2}");
        assert_eq!(of("{nope}").unwrap_err(), "{nope}");
        assert!(Word::parse("{0}").unwrap().fill(&[json!("a\0b")], kwargs).is_err());
    }

    /// The same table as the Python package reads.
    #[test]
    fn words_are_read_as_the_samples_say() {
        for line in include_str!("../../../protocol/samples/words.txt").lines() {
            let (word, expected) = line.split_once('\t').unwrap();
            let Ok(read) = Word::parse(word) else {
                assert_eq!(expected, "!", "{word}");
                continue;
            };
            let mut told = "=".to_owned();
            for piece in read.0 {
                if let Piece::Argument(sources) = piece {
                    told.push_str(&format!(" {}", spelled(&sources)));
                }
            }
            assert_eq!(told, expected, "{word}");
        }
    }

    #[test]
    fn words_that_are_not_well_formed_are_told() {
        for bad in ["{", "}", "{}", "{a", "a}", "{a{b}}", "{a|}"] {
            assert!(Word::parse(bad).unwrap_err().contains("{name}"), "{bad}");
        }
        assert_eq!(Word::parse("a{{b").unwrap().fixed(), Some("a{b"));
        assert_eq!(Word::parse("").unwrap().fixed(), Some(""));
        assert_eq!(Word::parse("a{0}").unwrap().fixed(), None);
    }
}
