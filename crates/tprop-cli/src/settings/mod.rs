//! Settings in two stages: exactly what was typed ([`typed`]), then what it resolves to ([`Settings`]).
//!
//! Sources, each overriding the ones before: defaults, a preset, a TOML file, the command line. To add a setting: a line in
//! [`table`], its use in [`convert`], and, if it does not go together with others, a sentence in [`checks`].

mod checks;
mod convert;
mod form;
mod parse;
pub mod presets;
mod show;
pub mod table;
pub mod typed;
mod values;

pub use convert::Checkpointing;
pub use parse::{nearest, nearest_name};
pub use show::{list, list_presets};
pub use typed::{SettingError, Typed};

use presets::PRESETS;
use std::collections::HashMap;
use table::{TABLE, Usual};
use typed::{Place, Written};
use values::Values;

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
    values: Values,
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
        let mut values = Values::empty();
        for setting in TABLE {
            if let Usual::Is(text) = setting.default {
                values.set(setting.name, parse::value(setting, &ours(setting.name, text, "default"))?);
            }
        }
        let mut fixed: Vec<&'static str> = Vec::new();
        for (name, text) in preset.iter().flat_map(|p: &&presets::Preset| p.sets) {
            let setting = table::find(name).expect("presets name settings of the table");
            values.set(name, parse::value(setting, &ours(name, text, "preset"))?);
            fixed.push(setting.name);
        }
        for (setting, one) in layers.iter().flatten() {
            values.set(setting.name, parse::value(setting, one)?);
            fixed.push(setting.name);
        }
        // They follow from settings that are known by now.
        for setting in TABLE {
            if let Usual::Follows(_, of) = setting.default
                && !fixed.contains(&setting.name)
            {
                values.set(setting.name, of(&values));
            }
        }
        checks::check(&values)?;
        Ok(Self { values, preset: preset.map(|p| p.name) })
    }

    /// Names whose values differ between two settings.
    pub fn differences(&self, other: &Self) -> Vec<&'static str> {
        TABLE.iter().map(|s| s.name).filter(|n| self.values.get(n) != other.values.get(n)).collect()
    }

    /// The value of a setting, as it is written.
    pub fn text(&self, name: &str) -> String {
        self.values.get(name).map_or(String::new(), ToString::to_string)
    }

    /// Whether a setting means something beside the others.
    pub fn applies(&self, name: &str) -> bool {
        table::applies(name, |key, value| self.text(key) == value)
    }

    /// Changes one value behind the user's back; for paths that are made absolute.
    pub fn replace_word(&mut self, name: &str, word: String) {
        self.values.set(name, values::Value::Word(word));
    }
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
