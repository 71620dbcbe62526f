//! Stage one: exactly what was typed, and where.

use std::fmt;
use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};

use super::table;

/// Something wrong with settings, in one sentence.
#[derive(Debug, PartialEq)]
pub struct SettingError {
    /// Where, if it is about one value.
    pub place: Option<Place>,
    /// What was found and what was wanted.
    pub message: String,
}

impl SettingError {
    /// About one value.
    pub fn at(place: &Place, message: impl Into<String>) -> Self {
        Self { place: Some(place.clone()), message: message.into() }
    }

    /// About several settings that do not go together.
    pub fn together(message: impl Into<String>) -> Self {
        Self { place: None, message: message.into() }
    }
}

impl fmt::Display for SettingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Some(place) => write!(f, "{place}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

impl std::error::Error for SettingError {}

/// Where something was typed.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // a variant's sentence is about its fields
pub enum Place {
    /// In a file; line and column count from 1.
    File { path: PathBuf, line: usize, column: usize },
    /// On the command line.
    Argument(String),
    /// In a preset of ours.
    Preset(&'static str),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::File { path, line, column } => write!(f, "{}: line {line}, column {column}", path.display()),
            Place::Argument(text) => f.write_str(&tprop::vocab::printable(text)),
            Place::Preset(name) => write!(f, "preset {name}"),
        }
    }
}

/// A name and a value as someone typed them.
#[derive(Clone, Debug, PartialEq)]
pub struct Typed {
    /// The dotted name.
    pub name: String,
    /// The value's text.
    pub text: String,
    /// How the value was written.
    pub written: Written,
    /// Where.
    pub place: Place,
}

/// How a value was written; a TOML file tells texts from numbers, a command line does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// On the command line, where everything is text.
    Bare,
    /// In quotes.
    Quoted,
    /// A TOML number.
    Number,
    /// A TOML boolean.
    Boolean,
}

impl Typed {
    /// `key=value` of a command line.
    pub fn argument(text: &str) -> Option<Self> {
        let (name, value) = text.split_once('=')?;
        Some(Self::spelt(name.trim(), value.trim(), text))
    }

    /// A setting that was given as `spelling` on the command line.
    pub fn spelt(name: &str, value: &str, spelling: &str) -> Self {
        Self {
            name: name.to_owned(),
            text: value.to_owned(),
            written: Written::Bare,
            place: Place::Argument(spelling.to_owned()),
        }
    }
}

/// Largest settings file, in bytes.
const LARGEST: u64 = 256 << 10;

/// Reads a settings file.
///
/// # Errors
/// If it cannot be read, is not TOML, or has a value that no setting can have.
pub fn read_file(path: &Path) -> Result<Vec<Typed>, SettingError> {
    read_text(&text_of(path)?, path)
}

/// The text of a settings file, not yet looked at.
pub fn text_of(path: &Path) -> Result<String, SettingError> {
    let trouble = |what: String| SettingError::together(format!("{}: {what}", path.display()));
    let meta = std::fs::metadata(path).map_err(|e| trouble(format!("settings cannot be read ({e})")))?;
    if !meta.is_file() {
        return Err(trouble("not an ordinary file; a TOML file is wanted".into()));
    }
    // Parsed settings take a hundred times the room of their text.
    if meta.len() > LARGEST {
        return Err(trouble(format!(
            "{} bytes, but settings have a few thousand; is this the right file?",
            meta.len()
        )));
    }
    let bytes = std::fs::read(path).map_err(|e| trouble(format!("settings cannot be read ({e})")))?;
    String::from_utf8(bytes).map_err(|e| {
        let valid = e.utf8_error().valid_up_to();
        let (line, column) = line_and_column(&String::from_utf8_lossy(&e.as_bytes()[..valid]), valid);
        SettingError::at(&Place::File { path: path.to_owned(), line, column }, "not UTF-8")
    })
}

/// Reads the text of a settings file; `path` is for messages.
pub fn read_text(text: &str, path: &Path) -> Result<Vec<Typed>, SettingError> {
    let place = |at: usize| {
        let (line, column) = line_and_column(text, at);
        Place::File { path: path.to_owned(), line, column }
    };
    let table = DeTable::parse(text).map_err(|e| {
        let message = e.message().lines().collect::<Vec<_>>().join("; ");
        SettingError::at(&place(e.span().map_or(0, |s| s.start)), message)
    })?;
    let mut typed = Vec::new();
    flatten("", table.get_ref(), &place, &mut typed)?;
    typed.sort_by_key(|(at, _)| *at);
    Ok(typed.into_iter().map(|(_, t)| t).collect())
}

/// The values of a table and of those inside it, each with its dotted name and the place of its key.
pub fn flatten(
    prefix: &str,
    table: &DeTable<'_>,
    place: &dyn Fn(usize) -> Place,
    typed: &mut Vec<(usize, Typed)>,
) -> Result<(), SettingError> {
    for (key, value) in table {
        let name = format!("{prefix}{}", key.get_ref());
        let at = key.span().start;
        if let DeValue::Table(inner) = value.get_ref() {
            if inner.is_empty() && !table::TABLE.iter().any(|s| s.group() == name) {
                let near = super::parse::nearest_group(&name).map_or(String::new(), |n| format!("; did you mean {n}?"));
                let shown = tprop::vocab::printable(&name);
                return Err(SettingError::at(&place(at), format!("there is no group of settings {shown}{near}")));
            }
            flatten(&format!("{name}."), inner, place, typed)?;
            continue;
        }
        let (text, written) = scalar(value.get_ref())
            .map_err(|why| SettingError::at(&place(value.span().start), format!("{name}: must {why}")))?;
        typed.push((at, Typed { name, text, written, place: place(at) }));
    }
    Ok(())
}

/// The text of one value, or what it must be instead.
pub fn scalar(value: &DeValue<'_>) -> Result<(String, Written), &'static str> {
    match value {
        DeValue::String(text) => Ok((text.to_string(), Written::Quoted)),
        DeValue::Integer(n) => Ok((integer_text(n.as_str(), n.radix()), Written::Number)),
        DeValue::Float(x) => Ok((x.as_str().to_owned(), Written::Number)),
        DeValue::Boolean(x) => Ok((x.to_string(), Written::Boolean)),
        DeValue::Array(_) => Err("be one value, not a list"),
        DeValue::Table(_) => Err("be one value, not a table"),
        DeValue::Datetime(_) => Err("not be a date"),
    }
}

/// TOML also writes whole numbers in other bases; what is too large stays as it is and is refused by the setting's range.
fn integer_text(digits: &str, radix: u32) -> String {
    match u64::from_str_radix(digits, radix) {
        Ok(n) if radix != 10 => n.to_string(),
        _ => digits.to_owned(),
    }
}

/// Line and column, from 1, of a byte of a text; columns count characters.
pub fn line_and_column(text: &str, at: usize) -> (usize, usize) {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    let before = &text[..at];
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    (line, column)
}
