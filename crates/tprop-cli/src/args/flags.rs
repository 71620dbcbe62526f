//! Settings on the command line: flags, key=value, and the data source.

use clap::{Arg, ArgMatches, Args, Command as Clap, FromArgMatches};

use crate::failure::{Failure, Outcome};
use crate::settings::table::{self, Kind, TABLE};
use crate::settings::{Sources, Typed, presets, typed};

/// Flags that are other spellings of dotted names, made from the settings' table.
#[derive(Debug, Default)]
pub struct SettingFlags(Vec<Typed>);

impl FromArgMatches for SettingFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let flags = TABLE.iter().filter_map(|s| Some((s.name, s.flag?))).chain([("preset", "preset")]);
        let typed = flags.filter_map(|(name, flag)| {
            let value = matches.get_one::<String>(name)?;
            Some(Typed::spelt(name, value, &format!("--{flag} {value}")))
        });
        Ok(Self(typed.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for SettingFlags {
    fn augment_args(command: Clap) -> Clap {
        let mut command = command.next_help_heading("Everyday settings");
        for setting in TABLE {
            if let Some(flag) = setting.flag {
                let (value, words) = match setting.kind {
                    Kind::Count { .. } => ("N", String::new()),
                    Kind::Real { .. } => ("X", String::new()),
                    Kind::Words { .. } => ("WORD", format!(": {}", setting.kind.words().join(", "))),
                    Kind::AutoCount { .. } | Kind::Flag | Kind::Text => ("TEXT", String::new()),
                };
                let help = match setting.default_text() {
                    text if text.is_empty() => format!("{}{words}", setting.doc),
                    text => format!("{}{words} [{}={text}]", setting.doc, setting.name),
                };
                let arg = Arg::new(setting.name).long(flag).value_name(value).help(help);
                command = command.arg(arg.allow_negative_numbers(true));
            }
        }
        let names: Vec<_> = presets::PRESETS.iter().map(|p| p.name).collect();
        let help = format!("Several settings at once: {}", names.join(", "));
        command = command.arg(Arg::new("preset").long("preset").value_name("WORD").help(help));
        command.next_help_heading(None)
    }

    fn augment_args_for_update(command: Clap) -> Clap {
        Self::augment_args(command)
    }
}

/// What was typed, by source: words with `=` are settings, one other word is the data source.
pub fn sources(words: &[String], flags: &SettingFlags, config: Option<&std::path::Path>) -> Outcome<Sources> {
    let mut arguments = Vec::new();
    let mut source: Option<&str> = None;
    for word in words {
        match Typed::argument(word) {
            // A file whose name happens to have an `=` is still a file.
            Some(typed) if table::find(&typed.name).is_some() || !std::path::Path::new(word).exists() => {
                arguments.push(typed);
            }
            _ => {
                if let Some(first) = source.replace(word) {
                    return Err(Failure::input(format!(
                        "two data sources, {first} and {word}; a corpus is one file, one directory or one name (settings are key=value)"
                    )));
                }
                arguments.push(Typed::spelt("data.source", word, word));
            }
        }
    }
    arguments.extend(flags.0.iter().cloned());
    let file = config.map(typed::read_file).transpose()?.unwrap_or_default();
    Ok(Sources { file, arguments })
}
