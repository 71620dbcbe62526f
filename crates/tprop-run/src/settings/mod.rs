//! Settings in two stages: exactly what was typed ([`typed`]), then what it resolves to ([`Settings`]).
//!
//! Sources, each overriding the ones before: defaults, a preset, a TOML file, the command line. To add a setting: a row in [`table`],
//! which says everything about it, and, if it does not go together with others, a sentence in `checks`.

mod checks;
mod config;
mod parse;
pub mod presets;
mod row;
mod show;
pub mod table;
pub mod typed;

pub use config::Checkpointing;
pub use parse::{nearest, nearest_name};
pub use row::Resume;
pub use show::{list, list_presets};
pub use table::name_of_field;
pub use typed::{SettingError, Typed};

use std::collections::HashMap;

use config::Config;
use presets::PRESETS;
use row::Shapes;
use table::TABLE;
use typed::{Place, Written};

/// What was typed, by source.
#[derive(Debug, Default)]
pub struct Sources {
    /// From the file, in its order.
    pub file: Vec<Typed>,
    /// From the command line, in its order.
    pub arguments: Vec<Typed>,
}

/// A value for every setting.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    config: Config,
    preset: Option<&'static str>,
}

impl Settings {
    /// Resolves and checks everything; touches no file.
    ///
    /// # Errors
    /// For the first unknown name, repeated name, value out of range or combination without sense.
    pub fn resolve(sources: &Sources) -> Result<Self, SettingError> {
        let mut preset = None;
        let mut layers: [Vec<(&'static table::Setting, &Typed)>; 2] = [Vec::new(), Vec::new()];
        for (layer, typed) in layers.iter_mut().zip([&sources.file, &sources.arguments]) {
            let mut seen: HashMap<&str, &Place> = HashMap::new();
            for one in typed {
                if let Some(first) = seen.insert(&one.name, &one.place) {
                    let message = format!("{} is set twice (first: {first}); leave one out", one.name);
                    return Err(SettingError::at(&one.place, message));
                }
                if one.name == "preset" {
                    preset = Some(find_preset(one)?);
                } else {
                    layer.push((table::find(&one.name).ok_or_else(|| parse::unknown(one))?, one));
                }
            }
        }
        let mut config = Config::default();
        let mut fixed: Vec<&'static str> = Vec::new();
        for (name, text) in preset.iter().flat_map(|p: &&presets::Preset| p.sets) {
            let setting = table::find(name).expect("presets name settings of the table");
            parse::set(setting, &ours(name, text, "preset"), &mut config)?;
            fixed.push(setting.name);
        }
        for (setting, one) in layers.iter().flatten() {
            parse::set(setting, one, &mut config)?;
            fixed.push(setting.name);
        }
        // They follow from settings that are known by now.
        for setting in TABLE.iter().filter(|s| !fixed.contains(&s.name)) {
            if let Some(follows) = setting.follows {
                (follows.apply)(&mut config);
            }
        }
        checks::check(&config)?;
        Ok(Self { config, preset: preset.map(|p| p.name) })
    }

    /// Resolves what a run has written down about itself, with changes. It is complete, so that a setting that it lacks was introduced
    /// later: the run was made with the value frozen then, whatever the default is now.
    ///
    /// # Errors
    /// As [`Settings::resolve`].
    pub fn recorded(mut file: Vec<Typed>, arguments: Vec<Typed>) -> Result<Self, SettingError> {
        for setting in TABLE {
            if !file.iter().any(|one| one.name == setting.name) {
                file.push(ours(setting.name, setting.frozen, "frozen"));
            }
        }
        Self::resolve(&Sources { file, arguments })
    }

    /// Names whose values differ between two settings.
    pub fn differences(&self, other: &Self) -> Vec<&'static str> {
        let differ = |s: &&table::Setting| s.text(&self.config) != s.text(&other.config);
        TABLE.iter().filter(differ).map(|s| s.name).collect()
    }

    /// What makes these settings a trial of their own: those that shape numbers and differ from the value frozen in their row, sorted by
    /// name. So a new setting or another order of the table leaves it as it is, and a changed default changes it.
    pub fn identity(&self) -> Vec<(&'static str, String)> {
        identity(TABLE, &self.config)
    }

    /// The value of a setting, as it is written.
    pub fn text(&self, name: &str) -> String {
        table::find(name).map_or_else(|| panic!("the table has no setting {name}"), |s| s.text(&self.config))
    }

    /// Whether a setting means something beside the others.
    pub fn applies(&self, name: &str) -> bool {
        table::applies(name, |key, value| self.text(key) == value)
    }

    /// Changes one value behind the user's back; for paths that are made absolute.
    pub fn replace_word(&mut self, name: &str, word: String) {
        let setting = table::find(name).unwrap_or_else(|| panic!("the table has no setting {name}"));
        setting.set(&mut self.config, &word).unwrap_or_else(|e| panic!("{name}={word}: {e}"));
    }
}

fn identity(rows: &[table::Setting], config: &Config) -> Vec<(&'static str, String)> {
    let shaping = rows.iter().filter(|s| s.shapes != Shapes::Nothing);
    let mut pairs: Vec<_> = shaping.map(|s| (s, s.text(config))).filter(|(s, text)| s.frozen != text).collect();
    pairs.sort_by_key(|(s, _)| s.name);
    pairs.into_iter().map(|(s, text)| (s.name, text)).collect()
}

fn ours(name: &str, text: &str, place: &'static str) -> Typed {
    Typed { name: name.to_owned(), text: text.to_owned(), written: Written::Bare, place: Place::Preset(place) }
}

fn find_preset(typed: &Typed) -> Result<&'static presets::Preset, SettingError> {
    presets::find(&typed.text).ok_or_else(|| {
        let names: Vec<_> = PRESETS.iter().map(|p| p.name).collect();
        let near = parse::nearest_preset(&typed.text).map_or(String::new(), |n| format!("; did you mean {n}?"));
        let shown = tprop::vocab::printable(&typed.text);
        SettingError::at(&typed.place, format!("preset must be one of {}, not {shown}{near}", names.join(", ")))
    })
}

#[cfg(test)]
mod tests;
