//! `[queues.NAME]` and `[keys.NAME]` of `rea.toml`: the limits that queues and concurrency keys begin with. They are declared:
//! applied again only when their own text has changed, so that what people set meanwhile stays.

use ax::model::catalogue::nearest;
use ax::model::limits::Limits;
use ax::model::{Scope, Subject, new_job};
use ax::{Limit, LimitChange, LimitWrite};
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::place::{Place, Table};
use super::value::{Kind, Value};
use super::{BadSetting, bad};

/// `ax::model::permits::MAX_CONCURRENCY`, which a test compares.
const COUNT: Kind = Kind::Whole { min: 1, max: 1_000_000 };

/// Every key, with an example.
const KEYS: &[(&str, Kind, &str)] = &[
    ("concurrency", COUNT, "concurrency = 2"),
    ("per_node", COUNT, "per_node = 1"),
    ("rate", Kind::Rate, r#"rate = "10/min""#),
    ("fair", Kind::Switch, "fair = true"),
];

/// What the tables of this name are about.
pub(super) fn scope(section: &str) -> Option<Scope> {
    match section {
        "queues" => Some(Scope::Queue),
        "keys" => Some(Scope::Key),
        _ => None,
    }
}

/// Reads all of one scope.
///
/// # Errors
/// The first thing that is wrong, with its line.
pub(super) fn read(
    section: &str,
    scope: Scope,
    table: &DeTable<'_>,
    place: Place<'_>,
) -> Result<Vec<LimitWrite>, BadSetting> {
    let all = Table { name: section, table, place };
    all.entries().into_iter().map(|(name, value)| one(&all, scope, name, value)).collect()
}

fn one(
    all: &Table<'_>,
    scope: Scope,
    name: &Spanned<DeString<'_>>,
    value: &Spanned<DeValue<'_>>,
) -> Result<LimitWrite, BadSetting> {
    let at = all.place.of(&name.span());
    let name = name.get_ref();
    let whole = all.whole(name);
    if let Err(invalid) = new_job::name("name", name, &Limits::default()) {
        return bad(format!("{at}: the name of a {scope} {}", invalid.problem), "such as [queues.mail]");
    }
    let DeValue::Table(table) = value.get_ref() else {
        return bad(format!("{at}: {whole} must be a table"), format!("[{whole}]\n{}", KEYS[0].2));
    };
    let table = Table { name: &whole, table, place: all.place };
    let mut limit = Limit::default();
    let mut said = vec![];
    for (key, value) in table.entries() {
        let whole = table.whole(key.get_ref());
        let Some((known, kind, example)) = KEYS.iter().find(|(known, ..)| known == key.get_ref()) else {
            let names = || KEYS.iter().map(|(known, ..)| *known);
            let hint = match nearest(key.get_ref(), names()).first() {
                Some(near) => format!("did you mean {near}?"),
                None => format!("a limit has {}", names().collect::<Vec<_>>().join(", ")),
            };
            return bad(format!("{}: there is no setting {whole}", table.place.of(&key.span())), hint);
        };
        let read = table.checked(&whole, *kind, value, (*example).to_owned())?;
        said.push(format!("{known} = {read}"));
        match (*known, read) {
            ("concurrency", Value::Whole(n)) => limit.concurrency = u32::try_from(n).ok(),
            ("per_node", Value::Whole(n)) => limit.per_node = u32::try_from(n).ok(),
            ("rate", Value::Rate(rate)) => limit.rate = Some(rate),
            (_, Value::Switch(fair)) => limit.fair = fair,
            _ => return bad(format!("{}: {whole} is of another kind", table.place.of(&value.span())), *example),
        }
    }
    let change = LimitChange::to(Subject::new(scope, &**name), limit);
    if let Err(invalid) = change.check() {
        return bad(format!("{at}: {whole}.{}: {}", invalid.field, invalid.problem), "see docs/limits.md");
    }
    // Order and layout are no part of what is declared.
    said.sort_unstable();
    let text = said.join(", ");
    Ok(LimitWrite::Declare { change, text })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn parsed(text: &str) -> Result<Vec<LimitWrite>, BadSetting> {
        let table = DeTable::parse(text).unwrap();
        let (section, value) = table.get_ref().iter().next().unwrap();
        let DeValue::Table(limits) = value.get_ref() else { panic!() };
        let section = section.get_ref();
        read(section, scope(section).unwrap(), limits, Place { path: Path::new("rea.toml"), text })
    }

    #[test]
    fn a_limit_has_all_that_it_is_given_and_the_same_text_however_it_is_laid_out() {
        let mut declared = parsed("[queues.mail]\nrate = \"10/min\"\nfair=true\nconcurrency = 2").unwrap();
        let LimitWrite::Declare { change, text } = declared.remove(0) else { panic!() };
        let rate = ax::Rate::parse("10/min").ok();
        let limit = Limit { concurrency: Some(2), per_node: None, rate, fair: true };
        assert_eq!(change, LimitChange::to(Subject::new(Scope::Queue, "mail"), limit));
        let again = parsed("[queues]\nmail = { concurrency = 2, fair = true, rate = \"10 / minute\" }").unwrap();
        assert_eq!(again, [LimitWrite::Declare { change, text }]);
        assert!(parsed("[keys.\"*\"]\nconcurrency = 3").is_ok());
        assert_eq!(COUNT, Kind::Whole { min: 1, max: ax::model::permits::MAX_CONCURRENCY.into() });
    }

    #[test]
    fn slips_are_told_with_their_line_and_what_would_be_right() {
        for (text, problem, hint) in [
            (
                "[queues.a]\nconcurency = 2",
                "rea.toml:2: there is no setting queues.a.concurency",
                "did you mean concurrency?",
            ),
            (
                "[queues.a]\nconcurrency = 0",
                "rea.toml:2: queues.a.concurrency = 0: must be a whole number",
                "concurrency = 2",
            ),
            ("[queues.a]\nrate = 10", "rea.toml:2: queues.a.rate = 10: must be a number of starts", "10/min"),
            ("[queues.a]\nrate = \"10\"", "such as 10/min", "10/min"),
            ("[keys.a]\nfair = true", "rea.toml:1: keys.a.fair: only in a queue", "docs/limits.md"),
            ("[keys.\"*\"]\nrate = \"1/s\"", "keys.*.rate: each key", "docs/limits.md"),
            ("[queues]\na = 3", "queues.a must be a table", "[queues.a]"),
        ] {
            let wrong = parsed(text).unwrap_err();
            assert!(wrong.problem.contains(problem) && wrong.hint.contains(hint), "{text}: {wrong:?}");
        }
    }
}
