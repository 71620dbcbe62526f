//! One row per group: its mean, its deviation and each of its seeds.

use super::scale::Scale;
use super::{Canvas, Hang, LETTER, Plot, Shape, style};

/// A row.
#[derive(Clone, Debug, PartialEq)]
pub struct Dot {
    /// The group.
    pub name: String,
    /// Its colour.
    pub style: usize,
    /// Its mean.
    pub mean: f64,
    /// Over seeds.
    pub deviation: Option<f64>,
    /// Each seed with what is read when it is pointed at.
    pub each: Vec<(f64, String)>,
    /// What is read when the mean is pointed at.
    pub tip: String,
}

/// Rows over one axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Dots {
    /// What is seen.
    pub title: String,
    /// The axis with its unit.
    pub x: String,
    /// The rows.
    pub rows: Vec<Dot>,
    /// Values to compare with, and what they are.
    pub rules: Vec<(f64, String)>,
}

const ROW: f64 = 24.0;
/// Longer names are cut.
const MOST: usize = 34;

impl Plot for Dots {
    fn draw(&self, shape: Shape) -> String {
        let width = shape.width();
        // On a phone a name stands above its row.
        let longest = self.rows.iter().map(|r| tprop::vocab::printable(&r.name).chars().count()).max().unwrap_or(0);
        let (left, row, letters) = match shape {
            Shape::Wide => (longest.clamp(12, MOST) as f64 * LETTER + 15.0, ROW, MOST),
            Shape::Narrow => (8.0, 40.0, 44),
        };
        let (top, right) = (if self.rules.is_empty() { 44.0 } else { 56.0 }, width - 12.0);
        let bottom = top + row * self.rows.len() as f64 + 4.0;
        let mut canvas = Canvas::new(width, bottom + 42.0);
        let values = self.rows.iter().flat_map(|r| {
            let d = r.deviation.unwrap_or(0.0);
            r.each.iter().map(|e| e.0).chain([r.mean - d, r.mean + d])
        });
        let xs = Scale::fit(values.chain(self.rules.iter().map(|r| r.0)), left, right, 4.0).padded(0.04);
        canvas.head(&self.title, "");
        for (x, text) in xs.ticks(if shape == Shape::Wide { 7 } else { 5 }) {
            canvas.line("grid", (xs.at(x), top), (xs.at(x), bottom));
            canvas.text("tick", (xs.at(x), bottom + 17.0), Hang::Middle, &text);
        }
        let unit = if xs.log { format!("{}, logarithmic", self.x) } else { self.x.clone() };
        canvas.text("unit", (right, bottom + 34.0), Hang::End, &unit);
        for (x, name) in &self.rules {
            canvas.line("rule", (xs.at(*x), top - 6.0), (xs.at(*x), bottom));
            canvas.label("note", (xs.at(*x), top - 10.0), Hang::Start, name, 40);
        }
        for (i, dot) in self.rows.iter().enumerate() {
            let y = top + row * (i as f64 + 1.0) - 10.0;
            match shape {
                Shape::Wide => canvas.label("name", (left - 12.0, y + 4.0), Hang::End, &dot.name, letters),
                Shape::Narrow => canvas.label("name", (left, y - 14.0), Hang::Start, &dot.name, letters),
            }
            canvas.raw(&format!(r#"<g class="series {}" data-s="{i}">"#, style(dot.style)));
            if let Some(d) = dot.deviation {
                let (low, high) = (xs.at(dot.mean - d), xs.at(dot.mean + d));
                canvas.line("bar", (low, y), (high, y));
                canvas.line("bar", (low, y - 4.0), (low, y + 4.0));
                canvas.line("bar", (high, y - 4.0), (high, y + 4.0));
            }
            if dot.each.len() > 1 {
                for (x, tip) in &dot.each {
                    canvas.point("seed", (xs.at(*x), y), 2.5, tip);
                }
            }
            canvas.point("", (xs.at(dot.mean), y), 4.5, &dot.tip);
            canvas.raw("</g>");
        }
        canvas.finish(&format!("{}: {}", self.title, self.x))
    }
}
