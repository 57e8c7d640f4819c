//! What is wrong with a cron rule that can't be read, in words: which field, which part of it, and what it may be. The library
//! that reads rules says neither; it is asked about one field at a time.

use croner::parser::CronParser;

use crate::catalogue::nearest;

/// The names that stand for a whole rule.
const NICKNAMES: [&str; 6] = ["@hourly", "@daily", "@weekly", "@monthly", "@yearly", "@annually"];
/// The fields in their order, and what each may be.
const FIELDS: [(&str, &str); 6] = [
    ("second", "0 to 59"),
    ("minute", "0 to 59"),
    ("hour", "0 to 23"),
    ("day", "1 to 31, L or 15W"),
    ("month", "1 to 12 or JAN to DEC"),
    ("weekday", "0 to 7, SUN to SAT, 5L or 5#2"),
];

/// What is wrong with a rule that this parser does not read; goes on after "the rule ".
pub(crate) fn fault(parser: &CronParser, rule: &str) -> String {
    let rule = rule.trim();
    if rule.starts_with('@') {
        let known = NICKNAMES.join(" ");
        return match nearest(rule, NICKNAMES.into_iter()).first() {
            Some(near) => format!("is no nickname that is known; did you mean {near}? There are {known}"),
            None => format!("is no nickname that is known; there are {known}"),
        };
    }
    let given: Vec<&str> = rule.split_whitespace().collect();
    let first = match given.len() {
        5 => 1,
        6 => 0,
        n => {
            let fields = if n == 1 { "field" } else { "fields" };
            return format!(
                "has {n} {fields}; five are needed (minute hour day month weekday), or six with seconds first"
            );
        }
    };
    let alone = |place: usize, text: &str| {
        let mut fields = ["*"; 6];
        fields[place] = text;
        parser.parse(&fields.join(" ")).is_ok()
    };
    for (place, field) in given.iter().enumerate().map(|(n, field)| (n + first, *field)) {
        if !alone(place, field) {
            let part = field.split(',').find(|part| !alone(place, part)).unwrap_or(field);
            return in_field(place, part);
        }
    }
    "can't be read".to_owned()
}

fn in_field(place: usize, part: &str) -> String {
    let (name, may_be) = FIELDS[place];
    let steps_from = part.split_once('/').map(|(from, _)| from);
    let ends = part.split_once('-').and_then(|(from, to)| Some((from.parse::<u32>().ok()?, to.parse::<u32>().ok()?)));
    let why = match (steps_from, ends) {
        (Some(from), _) if from != "*" && !from.contains('-') => {
            "a step has * or a range before it (*/5 10-20/5)".to_owned()
        }
        (None, Some((from, to))) if from > to => "a range goes from the lower to the higher".to_owned(),
        _ => format!("it may be {may_be}, *, and lists, ranges and steps of these (1,3 1-5 */2)"),
    };
    format!("has the {name} {part:?}: {why}")
}
