//! Values of settings, after parsing.

use std::fmt;

use super::table::TABLE;

/// A parsed value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `true` or `false`.
    Flag(bool),
    /// A whole number.
    Count(u64),
    /// A number.
    Real(f64),
    /// A word or text.
    Word(String),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Flag(x) => write!(f, "{x}"),
            Value::Count(x) => write!(f, "{x}"),
            // `{:?}` is the shortest text that reads back as the same number, with a point or an exponent.
            Value::Real(x) => write!(f, "{x:?}"),
            Value::Word(x) => f.write_str(x),
        }
    }
}

/// One value for each setting of the table, in its order.
#[derive(Clone, Debug, PartialEq)]
pub struct Values(Vec<Option<Value>>);

impl Values {
    /// Nothing is known yet.
    pub fn empty() -> Self {
        Self(vec![None; TABLE.len()])
    }

    fn place(name: &str) -> usize {
        let place = TABLE.iter().position(|s| s.name == name);
        place.unwrap_or_else(|| panic!("the table has no setting {name}"))
    }

    /// The value of a setting, if it is known.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0[Self::place(name)].as_ref()
    }

    /// Sets a value.
    pub fn set(&mut self, name: &str, value: Value) {
        self.0[Self::place(name)] = Some(value);
    }

    /// A switch.
    pub fn flag(&self, name: &str) -> bool {
        match self.get(name) {
            Some(Value::Flag(x)) => *x,
            other => panic!("{name} is {other:?}, not a flag"),
        }
    }

    /// A whole number.
    pub fn count(&self, name: &str) -> u64 {
        match self.get(name) {
            Some(Value::Count(x)) => *x,
            other => panic!("{name} is {other:?}, not a count"),
        }
    }

    /// A whole number as a size; the table's limits are far below what a `usize` holds.
    pub fn size(&self, name: &str) -> usize {
        usize::try_from(self.count(name)).unwrap_or(usize::MAX)
    }

    /// A number.
    pub fn real(&self, name: &str) -> f64 {
        match self.get(name) {
            Some(Value::Real(x)) => *x,
            other => panic!("{name} is {other:?}, not a number"),
        }
    }

    /// A word.
    pub fn word(&self, name: &str) -> &str {
        match self.get(name) {
            Some(Value::Word(x)) => x,
            other => panic!("{name} is {other:?}, not a word"),
        }
    }
}
