//! Parallel coordinates: one axis per setting, one line per run, the result on the last axis.

use super::scale::{Scale, tick_text};
use super::{Canvas, Hang, LETTER, Plot, Shape};
use crate::numbers::number;

/// An axis.
#[derive(Clone, Debug, PartialEq)]
pub struct ParallelAxis {
    /// The setting, or the result.
    pub name: String,
    /// Its values in order; a result has none.
    pub values: Vec<String>,
    /// Whether they are numbers.
    pub numeric: bool,
}

/// A run.
#[derive(Clone, Debug, PartialEq)]
pub struct Thread {
    /// Its values, one for each setting; nothing where a setting means nothing for it.
    pub values: Vec<Option<String>>,
    /// Its result; lower is better.
    pub result: f64,
    /// What is read when it is pointed at.
    pub tip: String,
}

/// Many settings against a result.
#[derive(Clone, Debug, PartialEq)]
pub struct Parallel {
    /// What is seen.
    pub title: String,
    /// The settings.
    pub axes: Vec<ParallelAxis>,
    /// The last axis.
    pub result: String,
    /// The runs.
    pub threads: Vec<Thread>,
}

/// Beyond so many values only some are written beside an axis.
const WRITTEN: usize = 8;

impl Plot for Parallel {
    fn draw(&self, shape: Shape) -> String {
        let width = shape.width();
        let (left, right, top) = (44.0, width - 52.0, 66.0);
        let bottom = top + if shape == Shape::Wide { 250.0 } else { 220.0 };
        let mut canvas = Canvas::new(width, bottom + 30.0);
        canvas.head(&self.title, "");
        let step = (right - left) / self.axes.len() as f64;
        let results = Scale::fit(self.threads.iter().map(|t| t.result), bottom - 12.0, top, 3.0);
        let places: Vec<_> = self.axes.iter().map(|axis| places(axis, (bottom - 12.0, top))).collect();

        // The best run is drawn last, above the others.
        let mut order: Vec<&Thread> = self.threads.iter().collect();
        order.sort_by(|a, b| b.result.total_cmp(&a.result));
        let last = order.len().saturating_sub(1);
        for (rank, thread) in order.iter().enumerate() {
            let mut points: Vec<(f64, f64)> = Vec::new();
            for (i, value) in thread.values.iter().enumerate() {
                // A setting that means nothing for a run leads below the axis.
                let y = value.as_deref().and_then(|v| height(&places[i], v)).unwrap_or(bottom + 4.0);
                points.push((left + step * i as f64, y));
            }
            points.push((right, results.at(thread.result)));
            let share = if last == 0 { 1.0 } else { rank as f64 / last as f64 };
            let (opacity, wide) = (0.18 + 0.82 * share * share, 1.2 + 1.4 * share * share);
            let looks = format!(r#" stroke-opacity="{opacity:.2}" stroke-width="{wide:.1}""#);
            let class = if rank == last { "pt thread top" } else { "pt thread" };
            canvas.path(class, &points, &looks, &thread.tip);
        }
        for (i, axis) in self.axes.iter().enumerate() {
            let x = left + step * i as f64;
            canvas.line("axis", (x, top), (x, bottom - 12.0));
            // Names of neighbours stand at two heights, so that they do not run into each other.
            let hang = if i == 0 { Hang::Start } else { Hang::Middle };
            let at = if i == 0 { (x - left, 40.0) } else { (x, 40.0 + 14.0 * (i % 2) as f64) };
            canvas.label("name", at, hang, &axis.name, (step * 1.8 / LETTER) as usize);
            for (value, y) in places[i].iter().step_by(places[i].len().div_ceil(WRITTEN).max(1)) {
                let text = number(value).map_or_else(|| (*value).to_owned(), compact);
                canvas.label("tick halo", (x - 5.0, y + 4.0), Hang::End, &text, (step / LETTER).max(4.0) as usize);
            }
        }
        canvas.line("axis", (right, top), (right, bottom - 12.0));
        let height = 40.0 + 14.0 * (self.axes.len() % 2) as f64;
        canvas.label("name", (width, height), Hang::End, &self.result, 24);
        for (y, text) in results.ticks(5) {
            canvas.text("tick", (right + 6.0, results.at(y) + 4.0), Hang::Start, &text);
        }
        canvas.finish(&format!("{}: {} by settings", self.title, self.result))
    }
}

/// 50k and 1M are read more easily than 50,000 and 1,000,000, and there is little room.
fn compact(x: f64) -> String {
    match x {
        x if (1e6..1e15).contains(&x) && x % 1e5 == 0.0 => format!("{}M", x / 1e6),
        x if (1e4..1e6).contains(&x) && x % 100.0 == 0.0 => format!("{}k", x / 1e3),
        x => tick_text(x, x),
    }
}

/// The values of an axis with their heights.
fn places(axis: &ParallelAxis, (bottom, top): (f64, f64)) -> Vec<(&str, f64)> {
    let numbers: Vec<f64> = axis.values.iter().filter_map(|v| number(v)).collect();
    let height = |i: usize| {
        if axis.numeric && numbers.len() == axis.values.len() {
            Scale::fit(numbers.iter().copied(), bottom, top, 20.0).at(numbers[i])
        } else {
            bottom + (top - bottom) * (i as f64 + 0.5) / axis.values.len() as f64
        }
    };
    axis.values.iter().enumerate().map(|(i, v)| (v.as_str(), height(i))).collect()
}

/// The height of a value; 0.10 and 0.1 are one value.
fn height(places: &[(&str, f64)], value: &str) -> Option<f64> {
    let exact = places.iter().find(|(v, _)| *v == value);
    let same = || places.iter().find(|(v, _)| number(v).is_some() && number(v) == number(value));
    exact.or_else(same).map(|(_, y)| *y)
}
