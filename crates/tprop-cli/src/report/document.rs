//! What a report says, before it is known whether it becomes a page, Markdown or CSV. All text is as it came from outside;
//! whoever renders it escapes it.

use super::plot::Plot;

/// A whole report.
#[derive(Clone, Debug)]
pub struct Document {
    /// Its title.
    pub title: String,
    /// One sentence below it.
    pub lead: String,
    /// What made it.
    pub commands: Vec<String>,
    /// What could not be read.
    pub problems: Vec<String>,
    /// Its parts.
    pub sections: Vec<Section>,
    /// Tables that only stand as files.
    pub data: Vec<Table>,
}

/// A part with a heading.
#[derive(Clone, Debug)]
pub struct Section {
    /// For links.
    pub id: &'static str,
    /// The heading.
    pub title: String,
    /// What stands in it.
    pub blocks: Vec<Block>,
}

/// Something in a section.
#[derive(Clone, Debug)]
pub enum Block {
    /// A heading inside a section.
    Heading(String),
    /// A paragraph.
    Text(String),
    /// A table.
    Table(Table),
    /// Plots that belong together.
    Figures(Vec<Figure>),
    /// A heading with lines to be read or copied as they are.
    Code(String, String),
    /// Shown when asked for.
    Folded(String, Vec<Block>),
}

/// A plot with its words.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Its file, without ending.
    pub name: String,
    /// What to look at.
    pub caption: String,
    /// The drawing.
    pub plot: Plot,
}

/// A table.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// Its file, without ending.
    pub name: String,
    /// What its columns mean.
    pub caption: String,
    /// From left to right.
    pub columns: Vec<Column>,
    /// From above.
    pub rows: Vec<Vec<Cell>>,
}

/// A column of a table.
#[derive(Clone, Debug)]
pub struct Column {
    /// For people.
    pub title: String,
    /// For programs that read the CSV file.
    pub key: String,
    /// Numbers stand at the right.
    pub numeric: bool,
}

impl Column {
    /// Of words.
    pub fn words(title: &str, key: &str) -> Self {
        Self { title: title.to_owned(), key: key.to_owned(), numeric: false }
    }

    /// Of numbers.
    pub fn numbers(title: &str, key: &str) -> Self {
        Self { title: title.to_owned(), key: key.to_owned(), numeric: true }
    }
}

/// One value of a table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cell {
    /// For people.
    pub text: String,
    /// For programs, where it differs: all digits.
    pub exact: Option<String>,
    /// The best of its column.
    pub best: bool,
}

impl Cell {
    /// A word.
    pub fn word(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// A number as people read it by `show`, with all its digits for programs; empty where there is none.
    pub fn number(x: Option<f64>, show: impl Fn(f64) -> String) -> Self {
        x.map_or_else(Self::default, |x| Self { text: show(x), exact: Some(x.to_string()), best: false })
    }
}

impl Table {
    /// Marks the smallest number of a column, by what `of` says for each row.
    pub fn mark_best(&mut self, column: usize, of: &[Option<f64>]) {
        let best = of.iter().flatten().copied().fold(f64::INFINITY, f64::min);
        for (row, x) in self.rows.iter_mut().zip(of) {
            row[column].best = *x == Some(best) && of.iter().flatten().count() > 1;
        }
    }

    /// Without columns that have nothing in them.
    pub fn without_empty_columns(mut self) -> Self {
        let kept: Vec<bool> =
            (0..self.columns.len()).map(|c| self.rows.iter().any(|r| !r[c].text.is_empty())).collect();
        let mut keep = kept.iter();
        self.columns.retain(|_| *keep.next().unwrap_or(&true));
        for row in &mut self.rows {
            let mut keep = kept.iter();
            row.retain(|_| *keep.next().unwrap_or(&true));
        }
        self
    }
}

impl Document {
    /// All plots, wherever they stand.
    pub fn figures(&self) -> Vec<&Figure> {
        let mut found = Vec::new();
        each(&self.sections, &mut |block| {
            if let Block::Figures(figures) = block {
                found.extend(figures);
            }
        });
        found
    }

    /// All tables, wherever they stand.
    pub fn tables(&self) -> Vec<&Table> {
        let mut found = Vec::new();
        each(&self.sections, &mut |block| {
            if let Block::Table(table) = block {
                found.push(table);
            }
        });
        found.extend(&self.data);
        found
    }
}

fn each<'a>(sections: &'a [Section], see: &mut impl FnMut(&'a Block)) {
    fn walk<'a>(blocks: &'a [Block], see: &mut impl FnMut(&'a Block)) {
        for block in blocks {
            see(block);
            if let Block::Folded(_, inner) = block {
                walk(inner, see);
            }
        }
    }
    for section in sections {
        walk(&section.blocks, see);
    }
}
