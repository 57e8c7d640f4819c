//! Foreign text made harmless: no newline, no terminal sequence and no change of writing direction gets through.

use std::fmt::Write as _;

/// Whether `c` could break a line, steer a terminal, or make text read otherwise than it is.
fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{061C}' | '\u{200E}' | '\u{200F}' | '\u{2028}' | '\u{2029}' | '\u{FEFF}')
        || matches!(c, '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}' | '\u{E0000}'..='\u{E007F}')
}

/// Appends `text` as a JSON string, quotes included.
pub fn push_json(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    if text.bytes().all(|b| matches!(b, 0x20..=0x7E) && b != b'"' && b != b'\\') {
        out.extend_from_slice(text.as_bytes());
    } else {
        for c in text.chars() {
            push_json_char(out, c);
        }
    }
    out.push(b'"');
}

fn push_json_char(out: &mut Vec<u8>, c: char) {
    match c {
        '"' => out.extend_from_slice(b"\\\""),
        '\\' => out.extend_from_slice(b"\\\\"),
        '\n' => out.extend_from_slice(b"\\n"),
        c if is_unsafe(c) => {
            for unit in c.encode_utf16(&mut [0; 2]) {
                out.extend_from_slice(format!("\\u{unit:04x}").as_bytes());
            }
        }
        c => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
    }
}

/// JSON that means the same and is harmless on a terminal: JSON leaves some control characters as they are.
#[must_use]
pub fn json_for_terminal(json: String) -> String {
    if json.bytes().all(|b| matches!(b, 0x20..=0x7E)) {
        return json;
    }
    let mut out = Vec::with_capacity(json.len() + 16);
    for c in json.chars() {
        // Outside of strings JSON has ASCII alone, and space that is no harm.
        match c {
            '\n' | '\t' | '\r' => out.push(c as u8),
            c if is_unsafe(c) => push_json_char(&mut out, c),
            c => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    String::from_utf8(out).unwrap_or(json)
}

/// Appends `text` for a line that people read.
pub fn push_plain(out: &mut Vec<u8>, text: &str) {
    if text.bytes().all(|b| matches!(b, 0x20..=0x7E)) {
        out.extend_from_slice(text.as_bytes());
    } else {
        out.extend_from_slice(for_terminal(text).as_bytes());
    }
}

/// `text` as one harmless line.
#[must_use]
pub fn for_terminal(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\t' => out.push(' '),
            c if is_unsafe(c) => drop(write!(out, "\\u{{{:x}}}", u32::from(c))),
            c => out.push(c),
        }
    }
    out
}
