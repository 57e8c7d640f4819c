//! rea
fn main() {}
