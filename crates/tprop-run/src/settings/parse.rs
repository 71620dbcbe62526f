//! From what was typed to a configuration: types, ranges, and the nearest right name for a wrong one.

use tprop::words::WordError;

use super::config::Config;
use super::presets::PRESETS;
use super::table::{Kind, Setting, TABLE};
use super::typed::{SettingError, Typed, Written};

/// Sets a setting to what was typed.
pub fn set(setting: &Setting, typed: &Typed, config: &mut Config) -> Result<(), SettingError> {
    let refuse = |why: &str| {
        let shown = match tprop::vocab::printable(&typed.text) {
            text if text.is_empty() => "empty".to_owned(),
            text => text,
        };
        let why = if why.is_empty() { String::new() } else { format!("; {why}") };
        let message = format!("{} must be {}, not {shown}{why}", setting.name, setting.kind.allowed());
        Err(SettingError::at(&typed.place, message))
    };
    if typed.written == Written::Quoted && !setting.kind.quoted() {
        return refuse("without quotes");
    }
    if matches!((setting.kind, typed.written), (Kind::Text, Written::Number | Written::Boolean)) {
        return refuse("in quotes");
    }
    let Some(text) = within(setting.kind, &typed.text) else { return refuse("") };
    match setting.set(config, &text) {
        Ok(()) => Ok(()),
        Err(why @ WordError::Range { .. }) => refuse(&why.to_string()),
        Err(WordError::Unknown) => {
            // `parallel:N` is nothing that anyone can type.
            let words = setting.kind.words().into_iter().filter(|word| !word.contains(char::is_uppercase));
            refuse(&nearest(&typed.text, words).map_or(String::new(), |word| format!("did you mean {word}?")))
        }
    }
}

/// A value as settings write it, if its kind allows it; a choice looks at its words itself.
fn within(kind: Kind, text: &str) -> Option<String> {
    let count = |range: std::ops::RangeInclusive<u64>| whole(text).filter(|n| range.contains(n));
    match kind {
        Kind::Words { .. } | Kind::Text => Some(text.to_owned()),
        Kind::Flag => ["true", "false"].contains(&text).then(|| text.to_owned()),
        Kind::AutoCount { .. } if text == "auto" => Some(text.to_owned()),
        Kind::AutoCount { most } => count(1..=most).map(|n| n.to_string()),
        Kind::Count { zero: Some(_), .. } if whole(text) == Some(0) => Some("0".to_owned()),
        Kind::Count { least, most, .. } => count(least..=most).map(|n| n.to_string()),
        Kind::Real { above, most, zero } => match text.replace('_', "").parse::<f64>() {
            // −0 would be 0 with another sign; NaN fails all comparisons.
            Ok(0.0) if zero.is_some() => Some("0.0".to_owned()),
            Ok(x) if x > above && x <= most => Some(format!("{x:?}")),
            _ => None,
        },
    }
}

/// A whole number, also as `1_000` or `1e6`, which is how people write large ones.
fn whole(text: &str) -> Option<u64> {
    let text = text.replace('_', "");
    text.parse().ok().or_else(|| {
        let x: f64 = text.parse().ok().filter(|_| text.contains(['e', 'E']))?;
        ((0.0..1e15).contains(&x) && x.fract() == 0.0).then_some(x as u64)
    })
}

/// The refusal of a name that is none.
pub fn unknown(typed: &Typed) -> SettingError {
    let name = tprop::vocab::printable(&typed.name);
    let group = TABLE.iter().any(|s| s.group() == typed.name && s.name != typed.name);
    let help = match nearest_name(&typed.name) {
        _ if group => format!("it is a group of settings; `tprop settings {name}` lists them"),
        Some(near) => format!("did you mean {near}?"),
        None => "`tprop settings` lists them all".to_owned(),
    };
    let message = if name.is_empty() {
        "a setting's name is missing before `=`".to_owned()
    } else {
        format!("there is no setting {name}; {help}")
    };
    SettingError::at(&typed.place, message)
}

/// The setting that a wrong name probably meant.
pub fn nearest_name(typed: &str) -> Option<&'static str> {
    let last = |name: &'static str| name.rsplit('.').next().unwrap_or(name);
    // `hidden` and `train.hidden` both mean `model.hidden`: the last part counts alone, a little less.
    let typed_last = typed.rsplit('.').next().unwrap_or(typed);
    let distance = |name: &'static str| {
        let whole = 2 * edits(typed, name);
        let part = 2 * edits(typed_last, last(name)) + 1 + usize::from(typed.contains('.'));
        whole.min(part)
    };
    let names = TABLE.iter().map(|s| s.name).chain(["preset"]);
    let (near, name) = names.map(|name| (distance(name), name)).min_by_key(|(d, _)| *d)?;
    (near <= 2 * (typed_last.chars().count() / 2).max(2)).then_some(name)
}

/// The word that a wrong one probably meant.
pub fn nearest<'a>(typed: &str, words: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let (near, word) = words.map(|word| (edits(typed, word), word)).min_by_key(|(d, _)| *d)?;
    (near <= (word.len() / 2).max(1)).then_some(word)
}

/// The group of settings that a wrong name probably meant.
pub fn nearest_group(typed: &str) -> Option<&'static str> {
    nearest(typed, TABLE.iter().map(Setting::group))
}

/// The preset's name that a wrong one probably meant.
pub fn nearest_preset(typed: &str) -> Option<&'static str> {
    nearest(typed, PRESETS.iter().map(|p| p.name))
}

/// Least number of insertions, deletions, replacements and swaps of neighbours that make one text the other.
pub fn edits(a: &str, b: &str) -> usize {
    // Nobody means a setting by a longer text, and the table is quadratic.
    let a: Vec<char> = a.chars().take(64).collect();
    let b: Vec<char> = b.chars().take(64).collect();
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            rows[i][j] = if i == 0 || j == 0 {
                i + j
            } else {
                let replace = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                let mut best = replace.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
                if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                    best = best.min(rows[i - 2][j - 2] + 1);
                }
                best
            };
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_names_find_the_right_one() {
        for (typed, meant) in [
            ("model.hiden", Some("model.hidden")),
            ("hidden", Some("model.hidden")),
            ("lr", Some("optim.lr")),
            ("train.lr", Some("optim.lr")),
            ("btprop.state_step", Some("btprop.state_steps")),
            ("modle.cell", Some("model.cell")),
            ("btprop.lamda", Some("btprop.lambda")),
            ("optim.rate", Some("optim.name")),
            ("presett", Some("preset")),
            ("zzzzzzzzzzzz", None),
        ] {
            assert_eq!(nearest_name(typed), meant, "{typed}");
        }
    }

    #[test]
    fn edits_count_swaps_once() {
        assert_eq!((edits("modle", "model"), edits("", "abc"), edits("kitten", "sitting")), (1, 3, 3));
    }
}
