//! Tables of an experiment's file: every key is known, every value has the right type, or the file is refused with line and
//! column.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use toml::de::{DeTable, DeValue};

use tprop_run::settings::typed::{self, Place, Written};
use tprop_run::settings::{SettingError, Typed, nearest};

/// A file, for messages about what stands in it.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// Its text.
    pub text: &'a str,
    /// Where it lies.
    pub path: &'a Path,
}

type Read<T> = Result<T, SettingError>;

impl<'a> Source<'a> {
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

    /// A refusal of what stands under a key.
    pub fn refuse_at<T>(&self, key: &str, message: impl Into<String>) -> Read<T> {
        self.source.refuse(self.value(key).map_or(self.at, |(at, _)| at), message)
    }

    /// A value with the place of its key.
    pub fn value(&self, key: &str) -> Option<(usize, &'a DeValue<'a>)> {
        let (key, value) = self.table.iter().find(|(k, _)| k.get_ref().as_ref() as &str == key)?;
        Some((key.span().start, value.get_ref()))
    }

    /// A value that `read` takes; `wanted` says what that is.
    fn get<T>(&self, key: &str, wanted: &str, read: impl Fn(&'a DeValue<'a>) -> Option<T>) -> Read<Option<T>> {
        match self.value(key).map(|(_, value)| read(value)) {
            Some(None) => self.refuse_at(key, format!("{key} of {} must be {wanted}", self.name)),
            found => Ok(found.flatten()),
        }
    }

    /// A text.
    pub fn text(&self, key: &str) -> Read<Option<String>> {
        self.get(key, "a text in quotes", text)
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
        Ok(self.get(key, "true or false", DeValue::as_bool)?.unwrap_or(false))
    }

    /// A whole number from `least` to `most`.
    pub fn count(&self, key: &str, least: u64, most: u64) -> Read<Option<u64>> {
        let inside = |value| number(value).filter(|n| (least..=most).contains(n));
        self.get(key, &format!("a whole number from {least} to {most}"), inside)
    }

    /// A number.
    pub fn real(&self, key: &str) -> Read<Option<f64>> {
        self.get(key, "a number", number)
    }

    /// A list of numbers; `nan` stands for one that is missing.
    pub fn reals(&self, key: &str) -> Read<Vec<f64>> {
        Ok(self.get(key, "a list of numbers", |value| list(value, number))?.unwrap_or_default())
    }

    /// A list of texts.
    pub fn texts(&self, key: &str) -> Read<Vec<String>> {
        Ok(self.get(key, "a list of texts in quotes", |value| list(value, text))?.unwrap_or_default())
    }

    /// Seeds: a list, or a number n for 1 … n; the first alone unless given.
    pub fn seeds(&self) -> Read<Vec<u64>> {
        let read = |value| match list(value, number) {
            None => number(value).filter(|n| (1..=1000).contains(n)).map(|n| (1..=n).collect()),
            seeds => seeds.filter(|seeds| !seeds.is_empty()),
        };
        let wanted = "a list of whole numbers, or how many seeds (1 to 1000)";
        let seeds = self.get("seeds", wanted, read)?.unwrap_or_else(|| vec![1]);
        match seeds.iter().enumerate().find(|(i, seed)| seeds[..*i].contains(seed)) {
            Some((_, seed)) => self.refuse_at("seeds", format!("seeds: {seed} stands there twice; leave one out")),
            None => Ok(seeds),
        }
    }

    /// A table of settings, as typed; empty if there is none.
    pub fn settings(&self, key: &str) -> Read<Vec<Typed>> {
        let Some(table) = self.get(key, "a table of settings", DeValue::as_table)? else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        typed::flatten("", table, &|at| self.source.place(at), &mut found)?;
        found.sort_by_key(|(at, _)| *at);
        Ok(found.into_iter().map(|(_, one)| one).collect())
    }

    /// A table.
    pub fn table(&self, key: &str) -> Read<Option<&'a DeTable<'a>>> {
        self.get(key, "a table", DeValue::as_table)
    }

    /// A table whose keys are all known, which messages call `name`.
    pub fn inner(&self, key: &str, name: &'a str, keys: &[&str]) -> Read<Option<Self>> {
        let at = self.value(key).map_or(self.at, |(at, _)| at);
        self.table(key)?.map(|table| Self::new(self.source, name, table, at, keys)).transpose()
    }

    /// A list of tables, each with its place.
    pub fn tables(&self, key: &str) -> Read<Vec<(usize, &'a DeTable<'a>)>> {
        let tables = |value: &'a DeValue<'a>| {
            let tables = value.as_array()?.iter().map(|value| Some((value.span().start, value.get_ref().as_table()?)));
            tables.collect()
        };
        Ok(self.get(key, "a list of tables", tables)?.unwrap_or_default())
    }

    /// A list of tables whose keys are all known, each of which messages call `name`.
    pub fn inners(&self, key: &str, name: &'a str, keys: &[&str]) -> Read<Vec<Self>> {
        let tables = self.tables(key)?.into_iter();
        tables.map(|(at, table)| Self::new(self.source, name, table, at, keys)).collect()
    }
}

fn text(value: &DeValue<'_>) -> Option<String> {
    value.as_str().map(str::to_owned)
}

/// A number, with all its digits.
fn number<T: FromStr>(value: &DeValue<'_>) -> Option<T> {
    let written = typed::scalar(value).ok().filter(|(_, written)| *written == Written::Number);
    written?.0.replace('_', "").parse().ok()
}

fn list<T>(value: &DeValue<'_>, read: impl Fn(&DeValue<'_>) -> Option<T>) -> Option<Vec<T>> {
    value.as_array()?.iter().map(|value| read(value.get_ref())).collect()
}
