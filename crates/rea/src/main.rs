//! The program `rea`.

use std::env::args_os;
use std::process::ExitCode;

use rea::workers::warden;

fn main() -> ExitCode {
    // Before anything else: a warden has no runtime and no other thread.
    if args_os().nth(1).is_some_and(|verb| verb == warden::VERB) {
        return warden::main(args_os().skip(2));
    }
    rea::memory::keep_small();
    rea::cli::main()
}
