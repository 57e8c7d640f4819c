//! Words with places for the arguments of a job: the words of a command, where one word stays one word, whatever is filled in
//! (no shell reads it), and the concurrency key that a task gives its jobs.

use serde_json::{Map, Value};

/// One word: `{0}` and `{name}` inside stand for an argument, `{{` and `}}` for braces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word(Vec<Piece>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    /// An argument by its place.
    Place(usize),
    /// An argument by its name.
    Name(String),
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
            let (name, after) = after.split_once('}').filter(|_| brace == "{").ok_or_else(wrong)?;
            if name.is_empty() || name.contains('{') {
                return Err(wrong());
            }
            if !plain.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut plain)));
            }
            pieces.push(name.parse().map_or_else(|_| Piece::Name(name.to_owned()), Piece::Place));
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
            let (value, name) = match piece {
                Piece::Text(text) => {
                    filled.push_str(text);
                    continue;
                }
                Piece::Place(place) => (args.get(*place), place.to_string()),
                Piece::Name(name) => (kwargs.get(name), name.clone()),
            };
            match value {
                Some(Value::String(text)) if text.contains('\0') => {
                    return Err(format!("{{{name}}} without NUL characters"));
                }
                Some(Value::String(text)) => filled.push_str(text),
                Some(value) => filled.push_str(&value.to_string()),
                None => return Err(format!("{{{name}}}")),
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
                match piece {
                    Piece::Text(_) => {}
                    Piece::Place(place) => told.push_str(&format!(" {place}")),
                    Piece::Name(name) => told.push_str(&format!(" {name}")),
                }
            }
            assert_eq!(told, expected, "{word}");
        }
    }

    #[test]
    fn words_that_are_not_well_formed_are_told() {
        for bad in ["{", "}", "{}", "{a", "a}", "{a{b}}"] {
            assert!(Word::parse(bad).unwrap_err().contains("{name}"), "{bad}");
        }
        assert_eq!(Word::parse("a{{b").unwrap().fixed(), Some("a{b"));
        assert_eq!(Word::parse("").unwrap().fixed(), Some(""));
        assert_eq!(Word::parse("a{0}").unwrap().fixed(), None);
    }
}
