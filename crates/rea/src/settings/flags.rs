//! The settings that a command takes as flags, made of the table: name, help, default and variable are written once.

use std::marker::PhantomData;
use std::path::PathBuf;

use clap::builder::ValueParser;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, ValueHint, value_parser};

use super::table::WORDS;
use super::value::{Kind, Value};
use super::{Key, file};

/// Id of `--config`.
const CONFIG: &str = "config";

/// Which settings a kind of command takes.
pub trait Doors: Clone + Send + Sync + 'static {
    /// Those settings.
    const KEYS: &'static [Key];
    /// Heading in the help.
    const HEADING: Option<&'static str> = None;
}

/// `rea serve`.
#[derive(Clone, Debug)]
pub struct Server;
impl Doors for Server {
    const KEYS: &'static [Key] = &[
        Key::Code,
        Key::Db,
        Key::Host,
        Key::Port,
        Key::Workers,
        Key::Python,
        Key::Child,
        Key::Reload,
        Key::TokenFile,
        Key::AllowHosts,
        Key::MaxConnections,
        Key::Grace,
        Key::Log,
    ];
}

/// Commands that ask a server, or the store itself.
#[derive(Clone, Debug)]
pub struct Asking;
impl Doors for Asking {
    const KEYS: &'static [Key] = &[Key::Db, Key::Url, Key::TokenFile];
    const HEADING: Option<&'static str> = Some("Where");
}

/// `rea run`: asks a server, or is one on a free port.
#[derive(Clone, Debug)]
pub struct Batch;
impl Doors for Batch {
    const KEYS: &'static [Key] = &[Key::Code, Key::Db, Key::Url, Key::TokenFile, Key::Workers, Key::Python, Key::Grace];
    const HEADING: Option<&'static str> = Some("Where");
}

/// Commands that open the store themselves.
#[derive(Clone, Debug)]
pub struct StoreOnly;
impl Doors for StoreOnly {
    const KEYS: &'static [Key] = &[Key::Db];
}

/// `rea config`: every setting that has a flag. Its words name settings, so there are none for code.
#[derive(Clone, Debug)]
pub struct All;
impl Doors for All {
    const KEYS: &'static [Key] = &[
        Key::Db,
        Key::Url,
        Key::TokenFile,
        Key::Host,
        Key::Port,
        Key::Workers,
        Key::Python,
        Key::Child,
        Key::Reload,
        Key::AllowHosts,
        Key::MaxConnections,
        Key::Grace,
        Key::Log,
    ];
}

/// What was given on the command line.
#[derive(Clone, Debug, Default)]
pub struct Given {
    /// The settings.
    pub values: Vec<(Key, Value)>,
    /// `--config`.
    pub config: Option<PathBuf>,
}

/// The flags of one kind of command.
#[derive(Clone, Debug)]
pub struct Flags<D> {
    /// What was given.
    pub given: Given,
    doors: PhantomData<D>,
}

impl<D: Doors> Args for Flags<D> {
    fn augment_args(command: Command) -> Command {
        let args = D::KEYS.iter().map(|key| arg(*key).help_heading(D::HEADING));
        command.args(args).arg(
            Arg::new(CONFIG)
                .long(CONFIG)
                .value_name("FILE")
                .value_parser(value_parser!(PathBuf))
                .value_hint(ValueHint::FilePath)
                .help_heading(D::HEADING)
                .help(format!("File of settings [default: {} if it is there] [env: {}]", file::FILE_NAME, file::ENV)),
        )
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<D: Doors> FromArgMatches for Flags<D> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let values = D::KEYS.iter().filter_map(|key| Some((*key, read(*key, matches)?))).collect();
        let config = matches.get_one::<PathBuf>(CONFIG).cloned();
        Ok(Flags { given: Given { values, config }, doors: PhantomData })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

fn is_path(kind: Kind) -> bool {
    matches!(kind, Kind::Path | Kind::Program)
}

fn arg(key: Key) -> Arg {
    let setting = key.setting();
    let kind = setting.kind;
    let default = if setting.default.is_empty() { String::new() } else { format!(" [default: {}]", setting.default) };
    let arg = Arg::new(setting.name).help(format!("{}{default} [env: {}]", setting.about, setting.env));
    if kind == Kind::Switch {
        return arg.long(setting.flag).action(ArgAction::SetTrue);
    }
    let arg = match setting.flag {
        WORDS => arg.value_name(WORDS).num_args(0..).action(ArgAction::Append),
        flag => arg.long(flag).value_name(kind.placeholder()).allow_negative_numbers(true),
    };
    let arg = if matches!(kind, Kind::List | Kind::Code) { arg.action(ArgAction::Append) } else { arg };
    let arg = match kind {
        Kind::Path | Kind::Program | Kind::Code => arg.value_hint(ValueHint::FilePath),
        _ => arg,
    };
    match kind {
        Kind::Word(words) => arg.value_parser(ValueParser::from(words.to_vec())),
        kind if is_path(kind) => arg.value_parser(value_parser!(PathBuf)),
        kind => arg.value_parser(move |typed: &str| kind.read(typed)),
    }
}

fn read(key: Key, matches: &ArgMatches) -> Option<Value> {
    let setting = key.setting();
    match setting.kind {
        Kind::List | Kind::Code => {
            let lists = matches.get_many::<Value>(setting.name)?;
            let texts = lists.flat_map(|list| if let Value::List(texts) = list { texts.clone() } else { Vec::new() });
            Some(Value::List(texts.collect()))
        }
        Kind::Switch => matches.get_flag(setting.name).then_some(Value::Switch(true)),
        Kind::Word(_) => matches.get_one::<String>(setting.name).cloned().map(Value::Text),
        kind if is_path(kind) => matches.get_one::<PathBuf>(setting.name).cloned().map(Value::Path),
        _ => matches.get_one::<Value>(setting.name).cloned(),
    }
}
