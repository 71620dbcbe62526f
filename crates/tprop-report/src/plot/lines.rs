//! Curves, with deviations where they are known, and horizontal lines to compare with.

use super::scale::{Scale, tick_text};
use super::{Canvas, Hang, LETTER, Plot, Shape, style, text_width};

/// A value of a curve.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Where.
    pub x: f64,
    /// What.
    pub y: f64,
    /// Over seeds.
    pub deviation: Option<f64>,
    /// What is read when it is pointed at.
    pub tip: String,
}

/// A curve.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Beside it.
    pub name: String,
    /// Its colour; the same run has the same in all plots.
    pub style: usize,
    /// From left to right.
    pub points: Vec<Point>,
}

/// Curves over one axis.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lines {
    /// What is seen.
    pub title: String,
    /// The horizontal axis with its unit.
    pub x: String,
    /// Only whole numbers below it.
    pub whole: bool,
    /// The horizontal axis is logarithmic where its ends are further apart than this; never without it.
    pub x_ratio: Option<f64>,
    /// Numbers to write below it, if not round ones.
    pub ticks: Vec<f64>,
    /// The vertical axis with its unit.
    pub y: String,
    /// The curves.
    pub series: Vec<Series>,
    /// Heights to compare with, and what they are.
    pub rules: Vec<(f64, String)>,
}

/// Beyond so many points a curve has no marks.
const MARKS: usize = 30;
/// Beyond so many curves their names stand below instead of beside them.
const BESIDE: usize = 14;
/// Letters of a name beside its curve.
const LETTERS: usize = 22;
/// A thin line leads from a curve to its name over at most this distance.
const NEAR: f64 = 24.0;
const LINE: f64 = 15.0;

impl Plot for Lines {
    fn draw(&self, shape: Shape) -> String {
        let width = shape.width();
        let one = self.series.iter().all(|s| s.name.is_empty());
        // Names that would have to be cut stand below, where there is room for them.
        let fit = self.series.iter().all(|s| tprop::vocab::printable(&s.name).chars().count() <= LETTERS);
        let beside = shape == Shape::Wide && self.series.len() <= BESIDE && fit && !one;
        let longest = self.series.iter().map(|s| text_width(&tprop::vocab::printable(&s.name))).fold(0.0, f64::max);
        let right = if beside { longest + 28.0 } else { 12.0 };
        let columns = if shape == Shape::Wide { 2 } else { 1 };
        let legend = if beside || one { 0 } else { self.series.len().div_ceil(columns) };
        let plot_height = if shape == Shape::Wide { 250.0 } else { 220.0 };
        let (left, top) = (52.0, 46.0);
        let bottom = top + plot_height;
        let mut canvas = Canvas::new(width, bottom + 42.0 + legend as f64 * LINE + if legend > 0 { 8.0 } else { 0.0 });

        let all = || self.series.iter().flat_map(|s| &s.points);
        let mut xs =
            Scale::fit(all().map(|p| p.x), left, width - right, self.x_ratio.unwrap_or(f64::INFINITY)).padded(0.02);
        xs.whole = self.whole;
        let heights = all().flat_map(|p| {
            let d = p.deviation.unwrap_or(0.0);
            [p.y - d, p.y, p.y + d]
        });
        let heights = heights.chain(self.rules.iter().map(|r| r.0));
        let ys = Scale::fit(heights, bottom, top, 3.0).padded(0.05);

        let unit = if ys.log { format!("{}, logarithmic", self.y) } else { self.y.clone() };
        canvas.head(&self.title, &unit);
        for (y, text) in ys.ticks(5) {
            let at = ys.at(y);
            canvas.line("grid", (left, at), (width - right, at));
            canvas.text("tick", (left - 7.0, at + 4.0), Hang::End, &text);
        }
        let ticks = match &self.ticks[..] {
            [] => xs.ticks(if shape == Shape::Wide { 8 } else { 5 }),
            own => own.iter().map(|&x| (x, tick_text(x, x))).collect(),
        };
        for (x, text) in ticks {
            let at = xs.at(x);
            canvas.line("axis", (at, bottom), (at, bottom + 4.0));
            canvas.text("tick", (at, bottom + 17.0), Hang::Middle, &text);
        }
        canvas.line("axis", (left, bottom), (width - right, bottom));
        canvas.text("unit", (width - right, bottom + 34.0), Hang::End, &self.x);
        self.draw_rules(&mut canvas, &ys, left, width - right);
        for (number, series) in self.series.iter().enumerate() {
            self.draw_series(&mut canvas, number, series, &xs, &ys);
        }
        if beside {
            self.names_beside(&mut canvas, &xs, &ys, (top, bottom), width - right);
        } else if legend > 0 {
            self.names_below(&mut canvas, bottom + 52.0, columns);
        }
        canvas.finish(&format!("{}: {} against {}", self.title, self.y, self.x))
    }
}

impl Lines {
    fn draw_rules(&self, canvas: &mut Canvas, ys: &Scale, left: f64, right: f64) {
        for (y, name) in &self.rules {
            let at = ys.at(*y);
            canvas.line("rule", (left, at), (right, at));
            canvas.label("note", (right - 4.0, at - 5.0), Hang::End, name, ((right - left) / LETTER) as usize);
        }
    }

    fn draw_series(&self, canvas: &mut Canvas, number: usize, series: &Series, xs: &Scale, ys: &Scale) {
        let class = style(series.style);
        canvas.raw(&format!(r#"<g class="series {class}" data-s="{number}">"#));
        let places: Vec<_> = series.points.iter().map(|p| (xs.at(p.x), ys.at(p.y))).collect();
        canvas.path("curve", &places, "", "");
        let marks = series.points.len() <= MARKS;
        for (point, &(x, y)) in series.points.iter().zip(&places) {
            if let Some(d) = point.deviation.filter(|_| marks) {
                let (low, high) = (ys.at(point.y - d), ys.at(point.y + d));
                canvas.line("bar", (x, low), (x, high));
                canvas.line("bar", (x - 3.0, low), (x + 3.0, low));
                canvas.line("bar", (x - 3.0, high), (x + 3.0, high));
            }
            canvas.point(if marks { "" } else { "hidden" }, (x, y), 3.0, &point.tip);
        }
        canvas.raw("</g>");
    }

    /// Each name at the height of its curve's end, pushed apart where they would overlap.
    fn names_beside(&self, canvas: &mut Canvas, xs: &Scale, ys: &Scale, (top, bottom): (f64, f64), x: f64) {
        let numbered = self.series.iter().enumerate();
        let ends = numbered.filter_map(|(number, series)| Some((number, series, series.points.last()?)));
        let mut ends: Vec<_> =
            ends.map(|(n, series, last)| (n, series, (xs.at(last.x) + 4.0, ys.at(last.y)))).collect();
        ends.sort_by(|a, b| a.2.1.total_cmp(&b.2.1));
        let wanted: Vec<f64> = ends.iter().map(|(_, _, end)| end.1).collect();
        for ((number, series, end), at) in ends.into_iter().zip(spread(&wanted, LINE, top, bottom)) {
            let class = style(series.style);
            canvas.raw(&format!(r#"<g class="series {class}" data-s="{number}">"#));
            // A curve that ends far from its name has only its colour in common with it.
            if end.0 > x - NEAR {
                canvas.path("lead", &[end, (x + 4.0, at)], "", "");
            }
            canvas.path("curve", &[(x + 4.0, at), (x + 18.0, at)], "", "");
            canvas.label("name", (x + 22.0, at + 4.0), Hang::Start, &series.name, LETTERS);
            canvas.raw("</g>");
        }
    }

    fn names_below(&self, canvas: &mut Canvas, top: f64, columns: usize) {
        let rows = self.series.len().div_ceil(columns);
        let wide = canvas.width / columns as f64;
        for (number, series) in self.series.iter().enumerate() {
            let (x, y) = ((number / rows) as f64 * wide, top + (number % rows) as f64 * LINE);
            canvas.raw(&format!(r#"<g class="series {}" data-s="{number}">"#, style(series.style)));
            canvas.path("curve", &[(x, y), (x + 22.0, y)], "", "");
            canvas.label("name", (x + 28.0, y + 4.0), Hang::Start, &series.name, (wide / LETTER) as usize - 4);
            canvas.raw("</g>");
        }
    }
}

/// Heights near the wanted ones (in rising order), at least `gap` apart and inside the limits where there is room.
fn spread(wanted: &[f64], gap: f64, top: f64, bottom: f64) -> Vec<f64> {
    let mut at = wanted.to_vec();
    for i in 0..at.len() {
        let least = if i == 0 { top } else { at[i - 1] + gap };
        at[i] = at[i].max(least);
    }
    let mut most = bottom;
    for place in at.iter_mut().rev() {
        *place = place.min(most);
        most = *place - gap;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::spread;

    #[test]
    fn names_keep_their_distance() {
        assert_eq!(spread(&[10.0, 50.0], 15.0, 0.0, 100.0), [10.0, 50.0]);
        assert_eq!(spread(&[10.0, 11.0, 12.0], 15.0, 0.0, 100.0), [10.0, 25.0, 40.0]);
        assert_eq!(spread(&[98.0, 99.0, 99.5], 15.0, 0.0, 100.0), [70.0, 85.0, 100.0]);
    }
}
