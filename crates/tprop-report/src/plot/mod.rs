//! Plots as plain SVG: axes, labels, units, and a `<title>` for each value, which the page's script turns into a readout.
//!
//! Colours are classes, given in `plot.css` for light and dark. Each plot is drawn twice, wide and narrow, so that its letters keep
//! their size on a phone.

mod dots;
mod heat;
mod lines;
mod parallel;
mod scale;

pub use dots::{Dot, Dots};
pub use heat::{Heat, Tile};
pub use lines::{Lines, Point, Series};
pub use parallel::{Parallel, ParallelAxis, Thread};

use std::fmt::Write as _;

use crate::text::{cut, html, html_lines};

/// Colours and lines of all plots.
pub const STYLE: &str = include_str!("plot.css");

/// So many colours are told apart; beyond them lines are dashed.
const COLOURS: usize = 8;

/// For which screen a plot is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A desk.
    Wide,
    /// A phone.
    Narrow,
}

impl Shape {
    fn width(self) -> f64 {
        match self {
            Shape::Wide => 560.0,
            Shape::Narrow => 360.0,
        }
    }
}

/// Anything that can be drawn.
pub trait Plot: std::fmt::Debug {
    /// The drawing, to stand inside a page.
    fn draw(&self, shape: Shape) -> String;

    /// The drawing as a file of its own.
    fn file(&self) -> String {
        let svg = self.draw(Shape::Wide);
        let (head, body) = svg.split_once('>').unwrap_or((&svg, ""));
        format!("{head}>\n<style>{STYLE}\n.plot {{ background: var(--paper); }}</style>\n{body}\n")
    }
}

/// What is drawn so far.
struct Canvas {
    width: f64,
    height: f64,
    body: String,
}

/// Where a text hangs on its place.
#[derive(Clone, Copy)]
enum Hang {
    Start,
    Middle,
    End,
}

impl Canvas {
    fn new(width: f64, height: f64) -> Self {
        Self { width, height, body: String::new() }
    }

    fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let ((x1, y1), (x2, y2)) = (from, to);
        let _ = writeln!(self.body, r#"<line class="{class}" x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}"/>"#);
    }

    fn text(&mut self, class: &str, at: (f64, f64), hang: Hang, content: &str) {
        self.label(class, at, hang, content, usize::MAX);
    }

    /// A text that may be too long for its place: at most `most` characters of it, the whole in its title.
    fn label(&mut self, class: &str, (x, y): (f64, f64), hang: Hang, content: &str, most: usize) {
        // Escapes count as what they are shown as.
        let content = tprop::vocab::printable(content);
        let short = cut(&content, most);
        let title = if short == content { String::new() } else { format!("<title>{}</title>", html(&content)) };
        let hang = match hang {
            Hang::Start if title.is_empty() => "",
            Hang::Start => r#" text-anchor="start""#,
            Hang::Middle => r#" text-anchor="middle""#,
            Hang::End => r#" text-anchor="end""#,
        };
        let short = html(&short);
        let _ = writeln!(self.body, r#"<text class="{class}" x="{x:.1}" y="{y:.1}"{hang}>{short}{title}</text>"#);
    }

    fn path(&mut self, class: &str, points: &[(f64, f64)], rest: &str, title: &str) {
        let mut d = String::new();
        for (i, (x, y)) in points.iter().enumerate() {
            let _ = write!(d, "{}{x:.1} {y:.1}", if i == 0 { "M" } else { "L" });
        }
        let title = if title.is_empty() { String::new() } else { format!("<title>{}</title>", html_lines(title)) };
        let _ = writeln!(self.body, r#"<path class="{class}" d="{d}"{rest}>{title}</path>"#);
    }

    /// A value that can be pointed at.
    fn point(&mut self, class: &str, at: (f64, f64), radius: f64, tip: &str) {
        let (x, y) = at;
        let _ = writeln!(
            self.body,
            r#"<circle class="pt {class}" cx="{x:.1}" cy="{y:.1}" r="{radius}"><title>{}</title></circle>"#,
            html_lines(tip)
        );
    }

    fn raw(&mut self, svg: &str) {
        self.body.push_str(svg);
        self.body.push('\n');
    }

    /// Title and the meaning of the vertical axis, at the upper left.
    fn head(&mut self, title: &str, unit: &str) {
        let most = (self.width / (LETTER * 1.2)) as usize;
        self.label("title", (0.0, 15.0), Hang::Start, title, most);
        self.label("unit", (0.0, 33.0), Hang::Start, unit, most);
    }

    fn finish(self, label: &str) -> String {
        format!(
            "<svg class=\"plot\" xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {:.0} {:.0}\" role=\"img\" aria-label=\"{}\">\n{}</svg>",
            self.width,
            self.height,
            html(label),
            self.body
        )
    }
}

/// Colour and dashes of the `i`-th series.
fn style(i: usize) -> String {
    let (colour, dash) = (i % COLOURS, i / COLOURS % 4);
    if dash == 0 { format!("c{colour}") } else { format!("c{colour} d{dash}") }
}

/// Width of a letter, at most about; fonts differ, and nothing may leave its plot.
const LETTER: f64 = 7.5;

/// Width of a text in our letters, at most about.
fn text_width(text: &str) -> f64 {
    text.chars().count() as f64 * LETTER
}
