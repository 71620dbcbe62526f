//! What the program knows about the settings of a run, for reports.

use std::path::Path;

use tprop_report::run::{Described, Setting};

use crate::settings::table::{self, Kind, TABLE, harmless};
use crate::settings::{Settings, Typed, typed};

/// Reads a `settings.toml`.
pub fn describe(path: &Path) -> Described {
    let file = match typed::read_file(path) {
        Ok(file) => file,
        Err(e) => {
            return Described {
                problem: Some(format!("{e}; the run is shown without settings")),
                ..Described::default()
            };
        }
    };
    // What is not said may be anything.
    let is = |key: &str, value: &str| file.iter().find(|t| t.name == key).is_none_or(|t| t.text == value);
    let setting = |one: &Typed| {
        let known = table::find(&one.name);
        Setting {
            name: one.name.clone(),
            text: one.text.clone(),
            rank: TABLE.iter().position(|s| s.name == one.name).unwrap_or(usize::MAX),
            shapes: !harmless(&one.name),
            applies: table::applies(&one.name, is),
            number: known.is_none_or(|s| matches!(s.kind, Kind::Count { .. } | Kind::Real { .. })),
        }
    };
    let settings = file.iter().map(setting).collect();
    let (words, problem) = match Settings::recorded(file, Vec::new()) {
        Ok(resolved) => (Some(shortest(&resolved)), None),
        Err(e) => (None, Some(format!("{e}; they are shown as they are, without a short command"))),
    };
    Described { settings, words, problem }
}

/// The fewest words that resolve to the same run; those that shape no number, and the one share of a process alone, are left out.
fn shortest(settings: &Settings) -> Vec<String> {
    let alone = |name: &str, value: &str| name == "cluster.shares" && value == "1";
    let named = settings.spelt().into_iter().filter(|(n, v)| !(harmless(n) || alone(n, v)));
    named.map(|(name, value)| format!("{name}={value}")).collect()
}
