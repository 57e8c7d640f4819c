//! Where a page of a listing ended, as a text that clients hand back and must not look into.

use ax::model::store::Cursor;

use crate::error::{Code, Problem};

/// The form of the text; another form gets another letter.
const VERSION: char = 'a';

/// The text of a cursor.
#[must_use]
pub fn text(cursor: Cursor) -> String {
    format!("{VERSION}{:x}", cursor.0)
}

/// Reads a cursor that `text` made.
///
/// # Errors
/// `bad_cursor`.
pub fn parse(text: &str) -> Result<Cursor, Problem> {
    let digits = text.strip_prefix(VERSION).filter(|d| !d.is_empty() && d.bytes().all(|b| b.is_ascii_hexdigit()));
    let cursor = digits.and_then(|d| i64::from_str_radix(d, 16).ok()).map(Cursor);
    // One form a cursor: zeros before it, or capital letters, are none of ours.
    cursor.filter(|cursor| self::text(*cursor) == text).ok_or_else(|| {
        Problem::new(Code::BadCursor, "the cursor is not one that this server gave out")
            .hint("start again without a cursor")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_read_back_and_garbage_does_not() {
        for n in [0, 1, 4_096, i64::MAX] {
            assert_eq!(parse(&text(Cursor(n))), Ok(Cursor(n)));
        }
        for bad in
            ["", "a", "b1", "a00", "a1F", "a-1", "a+1", "a 1", "1", "aé", "a8000000000000000", "'; DROP TABLE jobs;--"]
        {
            assert_eq!(parse(bad).unwrap_err().code(), Code::BadCursor, "{bad}");
        }
        assert!(parse(&"a".repeat(1 << 20)).is_err());
    }
}
