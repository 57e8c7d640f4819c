//! Steps through the text of a JSON value, for those who change a part of it and leave the rest as it was written. The text is
//! valid; of what is not, they only never go past the end.

/// Behind the string that begins at `at`.
#[must_use]
pub fn string_end(bytes: &[u8], at: usize) -> usize {
    let mut end = at + 1;
    while end < bytes.len() {
        match bytes[end] {
            b'\\' => end += 2,
            b'"' => return end + 1,
            _ => end += 1,
        }
    }
    bytes.len()
}

/// The first byte from `at` on that is no white space.
#[must_use]
pub fn space_end(bytes: &[u8], mut at: usize) -> usize {
    while bytes.get(at).is_some_and(u8::is_ascii_whitespace) {
        at += 1;
    }
    at
}
