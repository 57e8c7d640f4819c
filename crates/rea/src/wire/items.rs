//! A JSON array, item by item: a flood of tiny ones takes no room.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::error::Problem;

/// Why the items of an array were not all taken.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The text is no JSON array.
    NotOne(serde_json::Error),
    /// An item was refused.
    Refused(Problem),
}

/// Hands each item of the array `json` to `take`, which may refuse it; nothing after that is looked at.
///
/// # Errors
/// Why it stopped.
pub(crate) fn each<'a>(json: &'a [u8], mut take: impl FnMut(&'a RawValue) -> Result<(), Problem>) -> Result<(), Stop> {
    let mut refused = None;
    let mut parser = serde_json::Deserializer::from_slice(json);
    let walked = Items { take: &mut take, refused: &mut refused }.deserialize(&mut parser).and_then(|()| parser.end());
    match (walked, refused) {
        (Ok(()), _) => Ok(()),
        (Err(_), Some(problem)) => Err(Stop::Refused(problem)),
        (Err(error), None) => Err(Stop::NotOne(error)),
    }
}

struct Items<'t, F> {
    take: &'t mut F,
    refused: &'t mut Option<Problem>,
}

impl<'de, F: FnMut(&'de RawValue) -> Result<(), Problem>> DeserializeSeed<'de> for Items<'_, F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<(), D::Error> {
        d.deserialize_seq(self)
    }
}

impl<'de, F: FnMut(&'de RawValue) -> Result<(), Problem>> Visitor<'de> for Items<'_, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<(), A::Error> {
        while let Some(item) = array.next_element::<&'de RawValue>()? {
            if let Err(problem) = (self.take)(item) {
                *self.refused = Some(problem);
                return Err(A::Error::custom("refused"));
            }
        }
        Ok(())
    }
}
