//! `rea completions` and `rea man`: made of the same description of the command line that reads it.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum, ValueHint};
use clap_complete::{Generator, Shell};
use clap_mangen::Man as Page;

use super::show::line;
use super::{Exit, Failure, command};

const COMPLETIONS: &str = "Examples:
  rea completions bash > ~/.local/share/bash-completion/completions/rea
  rea completions zsh > ~/.zfunc/_rea          with: fpath+=~/.zfunc before compinit
  rea completions fish > ~/.config/fish/completions/rea.fish";

const MAN: &str = "Examples:
  rea man | man -l -                           rea(1)
  rea man --out ~/.local/share/man/man1        one page a command; then: man rea-enqueue";

/// The flags of `rea completions`.
#[derive(Args)]
#[command(after_help = COMPLETIONS)]
pub(super) struct Completions {
    /// The shell
    #[arg(value_enum)]
    shell: For,
}

#[derive(Clone, Copy, ValueEnum)]
enum For {
    Bash,
    Zsh,
    Fish,
}

impl Completions {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let shell = match self.shell {
            For::Bash => Shell::Bash,
            For::Zsh => Shell::Zsh,
            For::Fish => Shell::Fish,
        };
        let mut whole = command();
        whole.set_bin_name("rea");
        whole.build();
        let mut text = Vec::new();
        shell.try_generate(&whole, &mut text)?;
        std::io::stdout().lock().write_all(&text)?;
        Ok(Exit::Ok)
    }
}

/// The flags of `rea man`.
#[derive(Args)]
#[command(after_help = MAN)]
pub(super) struct Man {
    /// Write a page for each command into this directory, instead of rea(1) to stdout
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    out: Option<PathBuf>,
}

impl Man {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let mut whole = command();
        whole.build();
        let Some(dir) = self.out else {
            std::io::stdout().lock().write_all(&page(whole)?)?;
            return Ok(Exit::Ok);
        };
        let cannot = |path: &Path, e: &std::io::Error| {
            Failure::new(Exit::Usage, format!("can't write {}: {e}", path.display()))
                .hint("name a directory: --out DIR")
        };
        fs::create_dir_all(&dir).map_err(|e| cannot(&dir, &e))?;
        for command in all(whole) {
            let path = dir.join(format!("{}.1", command.get_display_name().unwrap_or(command.get_name())));
            fs::write(&path, page(command)?).map_err(|e| cannot(&path, &e))?;
            line(path.to_string_lossy())?;
        }
        Ok(Exit::Ok)
    }
}

/// The command and all below it that people are shown.
fn all(command: clap::Command) -> Vec<clap::Command> {
    let below: Vec<_> = command.get_subcommands().filter(|c| !c.is_hide_set()).cloned().flat_map(all).collect();
    std::iter::once(command).chain(below).collect()
}

fn page(command: clap::Command) -> Result<Vec<u8>, Failure> {
    let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
    let mut text = Vec::new();
    Page::new(command).title(name).source(concat!("rea ", env!("CARGO_PKG_VERSION"))).render(&mut text)?;
    Ok(text)
}
