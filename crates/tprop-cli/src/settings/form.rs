//! Grammars of compound values, for example `parallel:2`. Each reader says what is wrong, if something is.

use std::str::FromStr;

use tprop::method::{Ignore, Init, LambdaSchedule};
use tprop::objective::Constraint;

/// Factor of `balance` without one of its own.
const BALANCE: f64 = 2.0;

/// `head:tail`, or `head` alone.
fn split(text: &str) -> (&str, Option<&str>) {
    text.split_once(':').map_or((text, None), |(head, tail)| (head, Some(tail)))
}

fn number<N: FromStr + PartialOrd + std::fmt::Display>(text: &str, least: N, most: N) -> Result<N, String> {
    match text.parse::<N>() {
        Ok(n) if n >= least && n <= most => Ok(n),
        _ => Err(format!("the number behind the colon must be from {least} to {most}")),
    }
}

/// `auto|N`
pub fn auto_or_count(text: &str) -> Result<(), String> {
    count_unless(text, "auto").map(drop)
}

/// The number, or nothing for `word`.
pub fn count_unless(text: &str, word: &str) -> Result<Option<usize>, String> {
    if text == word {
        return Ok(None);
    }
    match text.parse::<u32>() {
        Ok(n) if n > 0 => Ok(Some(n as usize)),
        _ => Err(format!("the number must be from 1 to {}", u32::MAX)),
    }
}

/// `none|first|N`
pub fn ignore(text: &str) -> Result<Ignore, String> {
    match text {
        "none" => Ok(Ignore::None),
        "first" => Ok(Ignore::First),
        n => n.parse().map(Ignore::Token).map_err(|_| String::new()),
    }
}

/// `zero|parallel:N|stored:N|sequential`
pub fn init(text: &str) -> Result<Init, String> {
    Ok(match split(text) {
        ("zero", None) => Init::Zero,
        ("sequential", None) => Init::Sequential,
        ("parallel", Some(n)) => Init::Parallel { sweeps: number(n, 1, 1_000_000)? },
        ("stored", Some(n)) => Init::Stored { sweeps: number(n, 0, 1_000_000)? },
        _ => return Err(String::new()),
    })
}

/// `none|tanh|box|binary|sparse:K`
pub fn constraint(text: &str) -> Result<Constraint, String> {
    Ok(match split(text) {
        ("none", None) => Constraint::None,
        ("tanh", None) => Constraint::Tanh,
        ("box", None) => Constraint::Box,
        ("binary", None) => Constraint::Binary,
        ("sparse", Some(k)) => Constraint::Sparse(number(k, 1, 1_000_000)?),
        _ => return Err(String::new()),
    })
}

/// `constant|geometric:F|balance|balance:F`
pub fn lambda_schedule(text: &str) -> Result<LambdaSchedule, String> {
    Ok(match split(text) {
        ("constant", None) => LambdaSchedule::Constant,
        ("geometric", Some(f)) => LambdaSchedule::Geometric(number(f, 1e-3, 1e3)?),
        ("balance", None) => LambdaSchedule::Balance(BALANCE),
        ("balance", Some(f)) => LambdaSchedule::Balance(number(f, 1.0001, 1e3)?),
        _ => return Err(String::new()),
    })
}
