//! What a row of the table says about a setting, and the small words that rows are written with.

use tprop::words::{WordError, Words};

use super::config::Config;

/// One setting.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Dotted name, the same on the command line, in files and in records.
    pub name: &'static str,
    /// A flag that is another spelling of the name.
    pub flag: Option<&'static str>,
    /// One sentence for people.
    pub doc: &'static str,
    /// What it may be.
    pub kind: Kind,
    /// Where it stands in `Config`.
    pub path: &'static str,
    get: fn(&Config) -> String,
    set: fn(&mut Config, &str) -> Result<(), WordError>,
    /// How its default follows from other settings; otherwise it is that of the configuration.
    pub follows: Option<Follows>,
    /// Its default on the day it was introduced. Never changed: trials are named after what differs from it.
    pub frozen: &'static str,
    /// What it shapes.
    pub shapes: Shapes,
    /// It means something only beside one of these values of another setting.
    pub beside: Option<(&'static str, &'static [&'static str])>,
    /// Whether it may change when a run is resumed.
    pub resume: Resume,
}

/// What a setting may be.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)] // a variant's sentence is about its fields
pub enum Kind {
    /// One of these words, or the one for "no choice". A capital letter in a word stands for a number.
    Words { none: Option<&'static str>, words: &'static [&'static str] },
    /// `true` or `false`.
    Flag,
    /// A whole number from `least` to `most`, or 0 where that has a meaning of its own.
    Count { least: u64, most: u64, zero: Option<&'static str> },
    /// `auto`, or a whole number from 1; in files between quotes.
    AutoCount { most: u64 },
    /// A number above `above`, up to `most`, or 0 where that has a meaning of its own.
    Real { above: f64, most: f64, zero: Option<&'static str> },
    /// Any text.
    Text,
}

/// A default that is not a constant.
#[derive(Clone, Copy, Debug)]
pub struct Follows {
    /// How, for people.
    pub how: &'static str,
    /// Sets it once everything else is known.
    pub apply: fn(&mut Config),
}

/// What a setting shapes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shapes {
    /// The numbers of a run.
    Numbers,
    /// Only what becomes of a run that diverges.
    Divergence,
    /// No number, whatever happens: two trials that differ only in such settings are one.
    Nothing,
}

/// Whether a setting may change when a run is resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resume {
    /// The saved state would not fit.
    Never,
    /// It shapes the numbers, but the saved state fits any value: behind `--allow-change`.
    Allowed,
    /// It shapes no number (of a corpus the fingerprint decides, not the place).
    Freely,
}

/// Where a setting stands in [`Config`], what it may be there, and how it is read and written.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub path: &'static str,
    pub kind: Kind,
    pub get: fn(&Config) -> String,
    pub set: fn(&mut Config, &str) -> Result<(), WordError>,
}

/// The dotted path of a field.
macro_rules! dotted {
    ($first:ident $(. $rest:ident)*) => { concat!(stringify!($first) $(, ".", stringify!($rest))*) };
}

/// A number or a switch; `or` is how none is written.
///
/// `{:?}` is the shortest text that reads back as the same number, with a point or an exponent where it has a fraction.
macro_rules! at {
    ($($field:ident).+, $kind:expr) => {
        Place {
            path: dotted!($($field).+),
            kind: $kind,
            get: |c| format!("{:?}", c.$($field).+),
            set: |c, text| text.parse().map(|value| c.$($field).+ = value).map_err(|_| WordError::Unknown),
        }
    };
    ($($field:ident).+ or $none:literal, $kind:expr) => {
        Place {
            path: dotted!($($field).+),
            kind: $kind,
            get: |c| c.$($field).+.map_or($none.to_owned(), |value| format!("{value:?}")),
            set: |c, text| {
                let value = if text == $none { Ok(None) } else { text.parse().map(Some) };
                value.map(|value| c.$($field).+ = value).map_err(|_| WordError::Unknown)
            },
        }
    };
}

/// A choice among the library's words; `or` is the word for none.
macro_rules! word {
    ($($field:ident).+) => {
        Place {
            path: dotted!($($field).+),
            kind: Kind::Words { none: None, words: words_of(|c| &c.$($field).+) },
            get: |c| c.$($field).+.to_string(),
            set: |c, text| text.parse().map(|value| c.$($field).+ = value),
        }
    };
    ($($field:ident).+ or $none:literal) => {
        Place {
            path: dotted!($($field).+),
            kind: Kind::Words { none: Some($none), words: words_of_option(|c| &c.$($field).+) },
            get: |c| c.$($field).+.map_or($none.to_owned(), |value| value.to_string()),
            set: |c, text| {
                let value = if text == $none { Ok(None) } else { text.parse().map(Some) };
                value.map(|value| c.$($field).+ = value)
            },
        }
    };
}

/// A switch with a word for each of its positions, off first.
macro_rules! either {
    ($($field:ident).+, $off:literal, $on:literal) => {
        Place {
            path: dotted!($($field).+),
            kind: Kind::Words { none: None, words: &[$off, $on] },
            get: |c| if c.$($field).+ { $on } else { $off }.to_owned(),
            set: |c, text| {
                c.$($field).+ = match text {
                    $off => false,
                    $on => true,
                    _ => return Err(WordError::Unknown),
                };
                Ok(())
            },
        }
    };
}

/// A text; `or` is how none is written, and so is the empty text.
macro_rules! text {
    ($($field:ident).+ or $none:expr) => {
        Place {
            path: dotted!($($field).+),
            kind: Kind::Text,
            get: |c| {
                let text = c.$($field).+.as_ref().map(|text| OsStr::new(text).to_string_lossy().into_owned());
                text.unwrap_or_else(|| $none.to_owned())
            },
            set: |c, text| {
                c.$($field).+ = (text != $none && !text.is_empty()).then(|| text.into());
                Ok(())
            },
        }
    };
}

pub(super) use {at, dotted, either, text, word};

/// The words of a field.
pub const fn words_of<W: Words>(_: fn(&Config) -> &W) -> &'static [&'static str] {
    W::WORDS
}

/// The words of a field that may be none.
pub const fn words_of_option<W: Words>(_: fn(&Config) -> &Option<W>) -> &'static [&'static str] {
    W::WORDS
}

pub const fn count(least: u64, most: u64) -> Kind {
    Kind::Count { least, most, zero: None }
}

pub const fn count_or(least: u64, most: u64, zero: &'static str) -> Kind {
    Kind::Count { least, most, zero: Some(zero) }
}

pub const fn real(most: f64) -> Kind {
    Kind::Real { above: 0.0, most, zero: None }
}

pub const fn real_or(above: f64, most: f64, zero: &'static str) -> Kind {
    Kind::Real { above, most, zero: Some(zero) }
}

/// A setting that shapes the numbers, always means something and cannot change when a run is resumed, unless said otherwise.
pub const fn row(name: &'static str, place: Place, frozen: &'static str, doc: &'static str) -> Setting {
    let Place { path, kind, get, set } = place;
    let (shapes, resume) = (Shapes::Numbers, Resume::Never);
    Setting { name, flag: None, doc, kind, path, get, set, follows: None, frozen, shapes, beside: None, resume }
}

impl Setting {
    pub(super) const fn flag(mut self, flag: &'static str) -> Self {
        self.flag = Some(flag);
        self
    }

    pub(super) const fn follows(mut self, how: &'static str, apply: fn(&mut Config)) -> Self {
        self.follows = Some(Follows { how, apply });
        self
    }

    pub(super) const fn beside(mut self, name: &'static str, values: &'static [&'static str]) -> Self {
        self.beside = Some((name, values));
        self
    }

    pub(super) const fn shapes(mut self, shapes: Shapes) -> Self {
        self.shapes = shapes;
        self.resume = Resume::Freely;
        self
    }

    pub(super) const fn resume(mut self, resume: Resume) -> Self {
        self.resume = resume;
        self
    }

    /// The part before the dot.
    pub fn group(&self) -> &'static str {
        self.name.split('.').next().unwrap_or_default()
    }

    /// Its value, as it is written.
    pub fn text(&self, config: &Config) -> String {
        (self.get)(config)
    }

    /// Sets its value; the text is within the range of its kind.
    pub fn set(&self, config: &mut Config, text: &str) -> Result<(), WordError> {
        (self.set)(config, text)
    }

    /// The default as people read it.
    pub fn default_text(&self) -> String {
        match self.follows {
            Some(follows) => follows.how.to_owned(),
            None => match self.text(&Config::default()) {
                text if matches!(self.kind, Kind::Real { .. }) => text.trim_end_matches(".0").to_owned(),
                text => text,
            },
        }
    }
}

/// TOML's whole numbers end here.
pub const LARGEST: u64 = i64::MAX as u64;

impl Kind {
    /// Whether files have it between quotes.
    pub fn quoted(&self) -> bool {
        match self {
            Kind::Words { .. } | Kind::AutoCount { .. } | Kind::Text => true,
            Kind::Flag | Kind::Count { .. } | Kind::Real { .. } => false,
        }
    }

    /// The words of a choice.
    pub fn words(&self) -> Vec<&'static str> {
        match self {
            Kind::Words { none, words } => none.iter().chain(*words).copied().collect(),
            Kind::Flag | Kind::Count { .. } | Kind::AutoCount { .. } | Kind::Real { .. } | Kind::Text => Vec::new(),
        }
    }

    /// What is allowed, as it stands behind "must be" in messages.
    pub fn allowed(&self) -> String {
        let or_zero = |zero: Option<&str>| zero.map_or(String::new(), |what| format!(" (or 0: {what})"));
        match *self {
            Kind::Words { .. } => format!("one of {}", self.words().join(", ")),
            Kind::Flag => "true or false".to_owned(),
            Kind::Count { least, most: LARGEST, zero } => format!("a whole number from {least}{}", or_zero(zero)),
            Kind::Count { least, most, zero } => format!("a whole number from {least} to {most}{}", or_zero(zero)),
            Kind::AutoCount { most } => format!("auto or a whole number from 1 to {most}"),
            Kind::Real { above, most, zero } => {
                // 1e9 reads better than a row of zeros.
                let most = if most >= 1e5 { format!("{most:e}") } else { most.to_string() };
                format!("a number above {above}, up to {most}{}", or_zero(zero))
            }
            Kind::Text => "a text".to_owned(),
        }
    }
}
