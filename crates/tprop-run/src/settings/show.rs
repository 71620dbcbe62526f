//! Settings as people and files see them.

use std::fmt::Write as _;

use super::presets::PRESETS;
use super::table::{Setting, TABLE};
use super::{Settings, Sources, Typed};

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

    /// The fewest names and values that resolve to the same settings.
    pub fn spelt(&self) -> Vec<(&'static str, String)> {
        let all = TABLE.iter().map(|s| (s.name, s.text(&self.config)));
        let resolves = |pairs: &[(&'static str, String)]| {
            let arguments = pairs.iter().map(|(name, text)| Typed::spelt(name, text, text)).collect();
            let found = Settings::resolve(&Sources { file: Vec::new(), arguments });
            found.is_ok_and(|found| found.config == self.config)
        };
        let mut pairs: Vec<_> = all.collect();
        let usual = Settings::resolve(&Sources::default());
        // Those that differ from the defaults mostly do; where one default follows another, the rest is found one by one.
        if let Ok(usual) = usual {
            let differing = usual.differences(self);
            let few: Vec<_> = pairs.iter().filter(|(name, _)| differing.contains(name)).cloned().collect();
            if resolves(&few) {
                pairs = few;
            }
        }
        for place in (0..pairs.len()).rev() {
            let mut fewer = pairs.clone();
            fewer.remove(place);
            if resolves(&fewer) {
                pairs = fewer;
            }
        }
        pairs
    }

    fn line(&self, setting: &Setting, key: &str) -> String {
        match setting.text(&self.config) {
            text if setting.kind.quoted() => format!("{key} = {}", toml::Value::String(text)),
            text => format!("{key} = {text}"),
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
