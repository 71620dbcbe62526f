//! Settings as people and files see them.

use std::fmt::Write as _;

use super::Settings;
use super::presets::PRESETS;
use super::table::{Setting, TABLE};
use super::values::Value;

impl Settings {
    /// All settings as TOML: `--config` reads them back as the same settings.
    pub fn to_toml(&self) -> String {
        let mut text = String::from("# Settings of tprop, complete; `tprop settings` explains each.\n");
        // `method` has no group, and TOML wants such keys before the first table.
        for setting in TABLE.iter().filter(|s| s.name == s.group()) {
            let _ = writeln!(text, "{}", self.line(setting, setting.name));
        }
        let mut group = "";
        for setting in TABLE.iter().filter(|s| s.name != s.group()) {
            if setting.group() != group {
                group = setting.group();
                let _ = writeln!(text, "\n[{group}]");
            }
            let _ = writeln!(text, "{}", self.line(setting, &setting.name[group.len() + 1..]));
        }
        text
    }

    /// The value of a setting of the table, as text.
    pub fn text(&self, name: &str) -> String {
        self.values.get(name).expect("every setting is resolved").to_string()
    }

    fn line(&self, setting: &Setting, key: &str) -> String {
        match self.values.get(setting.name).expect("every setting is resolved") {
            Value::Word(word) => format!("{key} = {}", toml::Value::String(word.clone())),
            value => format!("{key} = {value}"),
        }
    }
}

/// A listing of the settings whose names begin with `prefix`; nothing if there is none.
pub fn list(prefix: &str) -> Option<String> {
    let mut text = String::new();
    let mut group = "";
    for setting in TABLE.iter().filter(|s| s.name.starts_with(prefix)) {
        if setting.group() != group {
            group = setting.group();
            let gap = if text.is_empty() { "" } else { "\n" };
            let _ = writeln!(text, "{gap}[{group}]");
        }
        let flag = setting.flag.map_or(String::new(), |flag| format!("  (also --{flag})"));
        let default = match setting.default_text() {
            text if text.is_empty() => "none".to_owned(),
            text => text,
        };
        let _ = writeln!(text, "{} = {default}{flag}", setting.name);
        let _ = writeln!(text, "    {}. {}.", setting.doc, upper(&setting.kind.allowed()));
    }
    (!text.is_empty()).then_some(text)
}

/// A listing of the presets with what each sets.
pub fn list_presets() -> String {
    let mut text = String::new();
    for preset in PRESETS {
        let _ = writeln!(text, "preset = {}\n    {}.", preset.name, preset.doc);
        for (name, value) in preset.sets {
            let _ = writeln!(text, "    {name}={value}");
        }
    }
    text
}

fn upper(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or(String::new(), |c| c.to_uppercase().chain(chars).collect())
}
