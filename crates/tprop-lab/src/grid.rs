//! A grid: for each of some settings the values that it takes. Points are numbered, the last setting changes fastest, so
//! that a grid of any size costs nothing until its points are asked for.

use toml::de::{DeTable, DeValue};
use tprop::rng::Draws;

use super::toml::{Section, Source};
use tprop_run::settings::table::{self, Kind};
use tprop_run::settings::typed::{self, Written};
use tprop_run::settings::{SettingError, Typed};

/// More trials than this are a mistake, or need another program.
pub const MOST_TRIALS: u64 = 10_000;

/// Some settings with the values that they take.
#[derive(Clone, Debug, Default)]
pub struct Grid {
    axes: Vec<Vec<Typed>>,
}

/// One value for each setting of a grid.
pub type Point = Vec<Typed>;

impl Grid {
    /// Reads a table of lists, ranges and single values.
    pub fn read(source: Source<'_>, table: &DeTable<'_>) -> Result<Self, SettingError> {
        let mut axes = Vec::new();
        collect(source, "", table, &mut axes)?;
        axes.sort_by_key(|(at, _)| *at);
        Ok(Self { axes: axes.into_iter().map(|(_, values)| values).collect() })
    }

    /// How many points there are; none if that is beyond all counting.
    pub fn len(&self) -> Option<u64> {
        self.axes.iter().try_fold(1u64, |n, values| n.checked_mul(values.len() as u64))
    }

    /// The first value of each setting, for its name and for messages that need a place.
    pub fn firsts(&self) -> impl Iterator<Item = &Typed> {
        self.axes.iter().map(|values| &values[0])
    }

    /// All points, in their order.
    pub fn points(&self) -> impl Iterator<Item = Point> {
        (0..self.len().unwrap_or(0)).map(|i| self.point(i))
    }

    /// The point of a number below [`Grid::len`].
    fn point(&self, number: u64) -> Point {
        let mut rest = number;
        let mut point: Vec<Typed> = Vec::with_capacity(self.axes.len());
        for values in self.axes.iter().rev() {
            let n = values.len() as u64;
            point.push(values[(rest % n) as usize].clone());
            rest /= n;
        }
        point.reverse();
        point
    }

    /// All points in an order that `seed` and `purpose` choose.
    pub fn shuffled(&self, seed: u64, purpose: &str) -> Vec<Point> {
        let draws = Draws::new(seed, purpose);
        let mut order: Vec<u64> = (0..self.len().unwrap_or(0)).collect();
        order.sort_by_key(|i| (draws.bits(*i), *i));
        order.into_iter().map(|i| self.point(i)).collect()
    }
}

/// A point as people read it: `optim.lr=0.1 btprop.lambda=1`.
pub fn shown(point: &[Typed]) -> String {
    let parts: Vec<String> = point.iter().map(|t| format!("{}={}", t.name, tprop::vocab::printable(&t.text))).collect();
    parts.join(" ")
}

fn collect(
    source: Source<'_>,
    prefix: &str,
    table: &DeTable<'_>,
    axes: &mut Vec<(usize, Vec<Typed>)>,
) -> Result<(), SettingError> {
    for (key, value) in table {
        let name = format!("{prefix}{}", key.get_ref());
        let at = key.span().start;
        let one = |value: &DeValue<'_>, at: usize| match typed::scalar(value) {
            Ok((text, written)) => Ok(Typed { name: name.clone(), text, written, place: source.place(at) }),
            Err(why) => source.refuse(at, format!("{name}: each value must {why}")),
        };
        let values = match value.get_ref() {
            DeValue::Table(inner) if inner.keys().any(|k| ["from", "to", "steps"].contains(&k.get_ref().as_ref())) => {
                let section = Section::new(source, &name, inner, at, &["from", "to", "steps", "scale"])?;
                range(section, &name)?
            }
            DeValue::Table(inner) => {
                collect(source, &format!("{name}."), inner, axes)?;
                continue;
            }
            DeValue::Array(list) => {
                list.iter().map(|v| one(v.get_ref(), v.span().start)).collect::<Result<Vec<_>, _>>()?
            }
            single => vec![one(single, at)?],
        };
        if values.is_empty() {
            return source.refuse(at, format!("{name} has no value, so the grid is empty; give at least one"));
        }
        let mut seen = std::collections::HashSet::new();
        for value in &values {
            if !seen.insert(number_or_text(&value.text)) {
                let shown = tprop::vocab::printable(&value.text);
                return Err(SettingError::at(&value.place, format!("{name} has {shown} twice; leave one out")));
            }
        }
        axes.push((at, values));
    }
    Ok(())
}

/// 0.1 and 1e-1 are the same.
fn number_or_text(text: &str) -> String {
    // 0.0 + -0.0 is 0.0.
    text.parse::<f64>().map_or_else(|_| text.to_owned(), |x| format!("{:e}", x + 0.0))
}

/// `{ from, to, steps, scale }`: `steps` values from `from` to `to`, both included, evenly spaced or (`log`) in equal ratios.
fn range(section: Section<'_>, name: &str) -> Result<Vec<Typed>, SettingError> {
    let (from, to) = (section.real("from")?, section.real("to")?);
    let steps = section.count("steps", 1, MOST_TRIALS)?;
    let (Some(from), Some(to), Some(steps)) = (from, to, steps) else {
        return section.refuse(format!("a range of {name} needs from, to and steps"));
    };
    let log = match section.text("scale")?.as_deref() {
        None | Some("linear") => false,
        Some("log") => true,
        Some(_) => return section.refuse(format!("scale of {name} must be \"linear\" or \"log\"")),
    };
    if !from.is_finite() || !to.is_finite() {
        return section.refuse(format!("a range of {name} needs finite ends"));
    }
    if log && (from <= 0.0 || to <= 0.0) {
        return section.refuse(format!("a range of {name} with scale=\"log\" needs ends above 0"));
    }
    let whole = table::find(name).is_some_and(|s| matches!(s.kind, Kind::Count { .. }));
    let values = (0..steps).map(|i| {
        let part = if steps == 1 { 0.0 } else { i as f64 / (steps - 1) as f64 };
        let x = if log { from * (to / from).powf(part) } else { from + (to - from) * part };
        // Twelve digits: 0.1 rather than 0.10000000000000002.
        let x: f64 = format!("{x:.11e}").parse().unwrap_or(x);
        let text = if whole { format!("{}", x.round()) } else { format!("{x}") };
        Typed { name: name.to_owned(), text, written: Written::Number, place: section.place() }
    });
    Ok(values.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn read(text: &str) -> Result<Grid, String> {
        let source = Source { text, path: Path::new("g.toml") };
        let table = source.parse().map_err(|e| e.to_string())?;
        Grid::read(source, &table).map_err(|e| e.to_string())
    }

    #[test]
    fn the_last_setting_changes_fastest() {
        let grid = read("optim.lr = [0.1, 0.01]\n[btprop]\nlambda = [1, 2, 3]\nsolver = \"alm\"\n").unwrap();
        assert_eq!(grid.len(), Some(6));
        let points: Vec<String> = (0..6).map(|i| shown(&grid.point(i))).collect();
        assert_eq!(points[0], "optim.lr=0.1 btprop.lambda=1 btprop.solver=alm");
        assert_eq!(points[1], "optim.lr=0.1 btprop.lambda=2 btprop.solver=alm");
        assert_eq!(points[5], "optim.lr=0.01 btprop.lambda=3 btprop.solver=alm");
    }

    #[test]
    fn ranges_hit_round_numbers() {
        let texts = |text: &str| -> Vec<String> {
            let grid = read(text).unwrap();
            (0..grid.len().unwrap()).map(|i| grid.point(i)[0].text.clone()).collect()
        };
        assert_eq!(
            texts("optim.lr = { from = 0.001, to = 1, steps = 4, scale = \"log\" }"),
            ["0.001", "0.01", "0.1", "1"]
        );
        assert_eq!(texts("optim.lr = { from = 1, to = 0.1, steps = 4 }"), ["1", "0.7", "0.4", "0.1"]);
        assert_eq!(texts("model.hidden = { from = 8, to = 64, steps = 4, scale = \"log\" }"), ["8", "16", "32", "64"]);
        assert_eq!(texts("model.hidden = { from = 1, to = 4, steps = 3 }"), ["1", "3", "4"]);
    }

    #[test]
    fn a_shuffle_is_a_permutation_that_the_seed_chooses() {
        let grid = read("optim.lr = [1, 2, 3, 4, 5]\nbtprop.lambda = [1, 2, 3, 4]").unwrap();
        let order =
            |seed, purpose: &str| -> Vec<String> { grid.shuffled(seed, purpose).iter().map(|p| shown(p)).collect() };
        let (a, b, c) = (order(1, "x"), order(2, "x"), order(1, "y"));
        assert_eq!(a, order(1, "x"));
        assert!(a != b && a != c);
        let sorted = |mut list: Vec<String>| {
            list.sort();
            list
        };
        let all: Vec<String> = (0..20).map(|i| shown(&grid.point(i))).collect();
        assert_eq!(sorted(a), sorted(all.clone()));
        assert_eq!(sorted(b), sorted(all));
    }

    #[test]
    fn refusals_name_the_place() {
        for (text, expected) in [
            ("optim.lr = []", "g.toml: line 1, column 7: optim.lr has no value"),
            ("optim.lr = [0.1, 1e-1]", "line 1, column 18: optim.lr has 1e-1 twice"),
            ("optim.lr = [[0.1]]", "column 13: optim.lr: each value must be one value, not a list"),
            ("optim.lr = { from = 1, to = 2 }", "needs from, to and steps"),
            ("optim.lr = { from = 0, to = 2, steps = 3, scale = \"log\" }", "ends above 0"),
            ("optim.lr = { from = 1, to = 2, steps = 3, scale = \"cubic\" }", "\"linear\" or \"log\""),
            ("optim.lr = { from = 1, to = 2, steps = 0 }", "from 1 to 10000"),
            ("optim.lr = { from = 1, to = 2, step = 3 }", "optim.lr has no key step; did you mean steps?"),
            ("optim.lr = { from = inf, to = 2, steps = 3 }", "finite"),
            ("model.hidden = { from = 1, to = 2, steps = 5 }", "twice"),
            ("a = 1\na = 2", "line 2, column 1"),
        ] {
            let found = read(text).unwrap_err();
            assert!(found.contains(expected), "{text}: {found}");
        }
        let huge = format!("a.b = [{}]", (0..10).map(|i| i.to_string()).collect::<Vec<_>>().join(","));
        let huge: String = (0..30).map(|i| huge.replace("a.b", &format!("a.b{i}")) + "\n").collect();
        assert_eq!(read(&huge).unwrap().len(), None);
    }
}
