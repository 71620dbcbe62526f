//! How choices are written. An enum that a user can choose from has its words in one place, beside its variants; `FromStr`, `Display`
//! and the list of words are made from it. No word falls through to a default.

use std::fmt::Display;
use std::str::FromStr;

/// What is chosen by a word. `Display` writes the word that `FromStr` reads.
pub trait Words: Display + FromStr<Err = WordError> {
    /// All words, in the order in which people read them; a capital letter stands for a number (`parallel:N`).
    const WORDS: &'static [&'static str];
}

/// Why a text is none of the words.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum WordError {
    /// No word is like it.
    #[error("no such word")]
    Unknown,
    /// The word is right, its number is not.
    #[error("the number behind the colon must be from {least} to {most}")]
    Range {
        /// The smallest that is allowed.
        least: f64,
        /// The largest.
        most: f64,
    },
}

/// Gives an enum its words.
///
/// A word stands for one variant. What the variant carries begins as written here, and is left out when the word is written. Compound
/// words (`parallel:2`) are only listed; the enum has its `FromStr` and `Display` written out.
///
/// ```
/// #[derive(Debug, PartialEq)]
/// pub enum Pace {
///     Walk,
///     Run { steps: usize },
/// }
/// tprop::words! { Pace { "walk" => Walk, "run" => Run { steps: 3 } } }
///
/// assert_eq!("run".parse(), Ok(Pace::Run { steps: 3 }));
/// assert_eq!(Pace::Run { steps: 5 }.to_string(), "run");
/// assert!("fly".parse::<Pace>().is_err());
/// ```
#[macro_export]
macro_rules! words {
    ($type:ident { $($word:literal => $variant:ident $(($($inner:tt)*))? $({ $($named:tt)* })?),+ $(,)? }) => {
        $crate::words!($type: $($word)|+);

        impl $type {
            /// Its word.
            pub fn name(&self) -> &'static str {
                match self {
                    $($type::$variant { .. } => $word,)+
                }
            }
        }

        impl ::std::str::FromStr for $type {
            type Err = $crate::words::WordError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                match text {
                    $($word => Ok($type::$variant $(($($inner)*))? $({ $($named)* })?),)+
                    _ => Err($crate::words::WordError::Unknown),
                }
            }
        }

        impl ::std::fmt::Display for $type {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(self.name())
            }
        }
    };
    ($type:ident: $($word:literal)|+) => {
        impl $crate::words::Words for $type {
            const WORDS: &'static [&'static str] = &[$($word),+];
        }
    };
}

/// `head:tail`, or `head` alone.
pub(crate) fn split(text: &str) -> (&str, Option<&str>) {
    text.split_once(':').map_or((text, None), |(head, tail)| (head, Some(tail)))
}

/// The number behind a colon.
pub(crate) fn number<N: FromStr + PartialOrd + Copy + Into<f64>>(
    text: &str,
    least: N,
    most: N,
) -> Result<N, WordError> {
    match text.parse::<N>() {
        Ok(n) if n >= least && n <= most => Ok(n),
        _ => Err(WordError::Range { least: least.into(), most: most.into() }),
    }
}
