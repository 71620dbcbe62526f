//! Tables of an experiment's file: every key is known, every value has the right type, or the file is refused with line and
//! column.

use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};

use tprop_run::settings::typed::{self, Place};
use tprop_run::settings::{SettingError, Typed, nearest};

/// Where a table's text stands, for messages.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    text: &'a str,
    path: &'a Path,
}

type Read<T> = Result<T, SettingError>;

impl<'a> Source<'a> {
    /// A file's text; `path` is for messages.
    pub fn new(text: &'a str, path: &'a Path) -> Self {
        Self { text, path }
    }

    /// Line and column of a byte.
    pub fn place(&self, at: usize) -> Place {
        let (line, column) = typed::line_and_column(self.text, at);
        Place::File { path: PathBuf::from(self.path), line, column }
    }

    /// A refusal.
    pub fn refuse<T>(&self, at: usize, message: impl Into<String>) -> Read<T> {
        Err(SettingError::at(&self.place(at), message))
    }

    /// Parses the whole text.
    pub fn parse(&self) -> Read<DeTable<'a>> {
        match DeTable::parse(self.text) {
            Ok(table) => Ok(table.into_inner()),
            Err(e) => {
                let message = e.message().lines().collect::<Vec<_>>().join("; ");
                self.refuse(e.span().map_or(0, |s| s.start), message)
            }
        }
    }
}

/// One table whose keys are all known.
#[derive(Clone, Copy, Debug)]
pub struct Section<'a> {
    /// Where it stands.
    pub source: Source<'a>,
    /// As messages name it.
    name: &'a str,
    table: &'a DeTable<'a>,
    at: usize,
}

impl<'a> Section<'a> {
    /// Refuses keys that are not among `keys`.
    pub fn new(source: Source<'a>, name: &'a str, table: &'a DeTable<'a>, at: usize, keys: &[&str]) -> Read<Self> {
        for key in table.keys() {
            let found: &str = key.get_ref();
            if !keys.contains(&found) {
                let near = nearest(found, keys.iter().copied());
                let near = near.map_or(format!("there are {}", keys.join(", ")), |n| format!("did you mean {n}?"));
                let shown = tprop::vocab::printable(found);
                return source.refuse(key.span().start, format!("{name} has no key {shown}; {near}"));
            }
        }
        Ok(Self { source, name, table, at })
    }

    /// Where the table stands.
    pub fn place(&self) -> Place {
        self.source.place(self.at)
    }

    /// A refusal of the whole table.
    pub fn refuse<T>(&self, message: impl Into<String>) -> Read<T> {
        self.source.refuse(self.at, message)
    }

    /// A value with the place of its key.
    pub fn value(&self, key: &str) -> Option<(usize, &'a DeValue<'a>)> {
        let (key, value) = self.table.iter().find(|(k, _)| k.get_ref().as_ref() as &str == key)?;
        Some((key.span().start, value.get_ref()))
    }

    fn wrong<T>(&self, at: usize, key: &str, wanted: &str) -> Read<T> {
        self.source.refuse(at, format!("{key} of {} must be {wanted}", self.name))
    }

    /// A text.
    pub fn text(&self, key: &str) -> Read<Option<String>> {
        match self.value(key) {
            None => Ok(None),
            Some((_, DeValue::String(text))) => Ok(Some(text.to_string())),
            Some((at, _)) => self.wrong(at, key, "a text in quotes"),
        }
    }

    /// A text that must be there.
    pub fn needed(&self, key: &str) -> Read<String> {
        match self.text(key)? {
            Some(text) if !text.trim().is_empty() => Ok(text),
            _ => self.refuse(format!("{} needs a {key}", self.name)),
        }
    }

    /// A switch; off unless given.
    pub fn flag(&self, key: &str) -> Read<bool> {
        match self.value(key) {
            None => Ok(false),
            Some((_, DeValue::Boolean(x))) => Ok(*x),
            Some((at, _)) => self.wrong(at, key, "true or false"),
        }
    }

    /// A whole number from `least` to `most`.
    pub fn count(&self, key: &str, least: u64, most: u64) -> Read<Option<u64>> {
        let Some((at, value)) = self.value(key) else { return Ok(None) };
        match whole(value) {
            Some(n) if (least..=most).contains(&n) => Ok(Some(n)),
            _ => self.wrong(at, key, &format!("a whole number from {least} to {most}")),
        }
    }

    /// A number.
    pub fn real(&self, key: &str) -> Read<Option<f64>> {
        let Some((at, value)) = self.value(key) else { return Ok(None) };
        number(value).map_or_else(|| self.wrong(at, key, "a number"), |x| Ok(Some(x)))
    }

    /// A list of numbers; `nan` stands for one that is missing.
    pub fn reals(&self, key: &str) -> Read<Vec<f64>> {
        self.list(key, "a list of numbers", number)
    }

    /// A list of texts.
    pub fn texts(&self, key: &str) -> Read<Vec<String>> {
        self.list(key, "a list of texts in quotes", |value| match value {
            DeValue::String(text) => Some(text.to_string()),
            _ => None,
        })
    }

    fn list<T>(&self, key: &str, wanted: &str, read: impl Fn(&DeValue<'_>) -> Option<T>) -> Read<Vec<T>> {
        let Some((at, value)) = self.value(key) else { return Ok(Vec::new()) };
        let DeValue::Array(values) = value else { return self.wrong(at, key, wanted) };
        let read = values.iter().map(|value| read(value.get_ref())).collect::<Option<Vec<T>>>();
        read.map_or_else(|| self.wrong(at, key, wanted), Ok)
    }

    /// Seeds: a list, or a number n for 1 … n.
    pub fn seeds(&self, key: &str) -> Read<Option<Vec<u64>>> {
        let wanted = "a list of whole numbers, or how many seeds (1 to 1000)";
        let seeds: Vec<u64> = match self.value(key) {
            None => return Ok(None),
            Some((_, DeValue::Array(_))) => self.list(key, wanted, whole)?,
            Some((at, value)) => match whole(value) {
                Some(n) if (1..=1000).contains(&n) => (1..=n).collect(),
                _ => return self.wrong(at, key, wanted),
            },
        };
        let at = self.value(key).map_or(self.at, |(at, _)| at);
        let repeated = seeds.iter().enumerate().find(|(i, seed)| seeds[..*i].contains(seed));
        match repeated {
            _ if seeds.is_empty() => self.wrong(at, key, wanted),
            Some((_, seed)) => self.source.refuse(at, format!("{key}: {seed} stands there twice; leave one out")),
            None => Ok(Some(seeds)),
        }
    }

    /// A table of settings, as typed; empty if there is none.
    pub fn settings(&self, key: &str) -> Read<Vec<Typed>> {
        let Some((at, value)) = self.value(key) else { return Ok(Vec::new()) };
        let DeValue::Table(table) = value else { return self.wrong(at, key, "a table of settings") };
        let mut found = Vec::new();
        typed::flatten("", table, &|at| self.source.place(at), &mut found)?;
        found.sort_by_key(|(at, _)| *at);
        Ok(found.into_iter().map(|(_, one)| one).collect())
    }

    /// A table.
    pub fn table(&self, key: &str) -> Read<Option<(usize, &'a DeTable<'a>)>> {
        match self.value(key) {
            None => Ok(None),
            Some((at, DeValue::Table(table))) => Ok(Some((at, table))),
            Some((at, _)) => self.wrong(at, key, "a table"),
        }
    }

    /// A list of tables.
    pub fn tables(&self, key: &str) -> Read<Vec<(usize, &'a DeTable<'a>)>> {
        let Some((at, value)) = self.value(key) else { return Ok(Vec::new()) };
        let DeValue::Array(values) = value else { return self.wrong(at, key, "a list of tables") };
        let tables = values.iter().map(|value| match value.get_ref() {
            DeValue::Table(table) => Some((value.span().start, table)),
            _ => None,
        });
        tables.collect::<Option<Vec<_>>>().map_or_else(|| self.wrong(at, key, "a list of tables"), Ok)
    }
}

/// A whole number, with all its digits.
fn whole(value: &DeValue<'_>) -> Option<u64> {
    match value {
        DeValue::Integer(_) => typed::scalar(value).ok()?.0.replace('_', "").parse().ok(),
        _ => None,
    }
}

fn number(value: &DeValue<'_>) -> Option<f64> {
    match value {
        DeValue::Integer(_) | DeValue::Float(_) => {
            let (text, _) = typed::scalar(value).ok()?;
            text.replace('_', "").parse().ok()
        }
        _ => None,
    }
}
