//! Two settings against a result: the stronger the colour, the better.

use super::{Canvas, Hang, LETTER, Plot, Shape, text_width};
use crate::numbers::ppl;
use crate::text::html_lines;

/// A place of the grid.
#[derive(Clone, Debug, PartialEq)]
pub struct Tile {
    /// The result; lower is better.
    pub value: f64,
    /// What is read when it is pointed at.
    pub tip: String,
}

/// A grid of results.
#[derive(Clone, Debug, PartialEq)]
pub struct Heat {
    /// What is seen.
    pub title: String,
    /// The horizontal setting.
    pub x: String,
    /// Its values.
    pub columns: Vec<String>,
    /// The vertical setting.
    pub y: String,
    /// Its values, from below.
    pub rows: Vec<String>,
    /// By row, then by column; nothing where no run was.
    pub tiles: Vec<Vec<Option<Tile>>>,
}

/// A result so many times the best one has the faintest colour; diverged runs do not wash out the rest.
const FAINT: f64 = 2.0;

impl Plot for Heat {
    fn draw(&self, shape: Shape) -> String {
        let width = shape.width();
        let (left, top) = (72.0, 46.0);
        let wide = ((width - left - 8.0) / self.columns.len() as f64).min(110.0);
        let high = (wide * 0.62).clamp(26.0, 46.0);
        let bottom = top + high * self.rows.len() as f64;
        let mut canvas = Canvas::new(width, bottom + 42.0);
        canvas.head(&self.title, &format!("{} ↑", self.y));
        let results = || self.tiles.iter().flatten().flatten().map(|c| c.value);
        let best = results().fold(f64::INFINITY, f64::min);
        let worst = results().fold(best, f64::max).min(best * FAINT);
        for (i, row) in self.tiles.iter().enumerate() {
            let y = bottom - high * (i as f64 + 1.0);
            canvas.label("tick", (left - 7.0, y + high / 2.0 + 4.0), Hang::End, &self.rows[i], 8);
            for (j, tile) in row.iter().enumerate() {
                draw_tile(&mut canvas, tile.as_ref(), (left + wide * j as f64, y), (wide, high), (best, worst));
            }
        }
        for (j, text) in self.columns.iter().enumerate() {
            let at = (left + wide * (j as f64 + 0.5), bottom + 17.0);
            canvas.label("tick", at, Hang::Middle, text, (wide / LETTER) as usize);
        }
        let end = left + wide * self.columns.len() as f64;
        canvas.label("unit", (end.max(left + 120.0), bottom + 34.0), Hang::End, &format!("{} →", self.x), 60);
        canvas.finish(&format!("{}: {} against {}", self.title, self.y, self.x))
    }
}

fn draw_tile(canvas: &mut Canvas, tile: Option<&Tile>, at: (f64, f64), size: (f64, f64), (best, worst): (f64, f64)) {
    let ((x, y), (wide, high)) = (at, size);
    let place =
        format!(r#"x="{:.1}" y="{:.1}" width="{:.1}" height="{:.1}" rx="3""#, x + 1.0, y + 1.0, wide - 2.0, high - 2.0);
    let Some(tile) = tile else {
        return canvas.raw(&format!(r#"<rect class="empty" {place}/>"#));
    };
    let share = if worst > best { ((tile.value / best).ln() / (worst / best).ln()).clamp(0.0, 1.0) } else { 0.0 };
    let strength = 0.95 - 0.87 * share;
    let class = if tile.value == best { "cell top" } else { "cell" };
    canvas.raw(&format!(
        r#"<rect class="pt {class}" {place} fill-opacity="{strength:.2}"><title>{}</title></rect>"#,
        html_lines(&tile.tip)
    ));
    let class = if strength > 0.55 { "value strong" } else { "value" };
    let text = ppl(tile.value);
    if text_width(&text) < wide {
        canvas.text(class, (x + wide / 2.0, y + high / 2.0 + 4.0), Hang::Middle, &text);
    }
}
