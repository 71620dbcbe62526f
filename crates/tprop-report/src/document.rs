//! What a report says, before it is known whether it becomes a page, Markdown or CSV. All text is as it came from outside;
//! whoever renders it escapes it.

use crate::plot::Plot;
use crate::table::Table;

/// A whole report.
#[derive(Debug)]
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
#[derive(Debug)]
pub struct Section {
    /// For links.
    pub id: &'static str,
    /// The heading.
    pub title: String,
    /// What stands in it.
    pub blocks: Vec<Block>,
}

/// Something in a section.
#[derive(Debug)]
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
#[derive(Debug)]
pub struct Figure {
    /// Its file, without ending.
    pub name: String,
    /// What to look at.
    pub caption: String,
    /// The drawing.
    pub plot: Box<dyn Plot>,
}

impl Figure {
    /// A plot with its words.
    pub fn new(name: impl Into<String>, caption: impl Into<String>, plot: impl Plot + 'static) -> Self {
        Self { name: name.into(), caption: caption.into(), plot: Box::new(plot) }
    }
}

impl Document {
    /// All plots, wherever they stand.
    pub fn figures(&self) -> impl Iterator<Item = &Figure> {
        self.blocks().flat_map(|block| if let Block::Figures(figures) = block { &figures[..] } else { &[] })
    }

    /// All tables, wherever they stand.
    pub fn tables(&self) -> impl Iterator<Item = &Table> {
        let tables = self.blocks().filter_map(|block| if let Block::Table(table) = block { Some(table) } else { None });
        tables.chain(&self.data)
    }

    fn blocks(&self) -> impl Iterator<Item = &Block> {
        self.sections.iter().flat_map(|section| unfolded(&section.blocks))
    }
}

/// Blocks with those that are folded in their places.
fn unfolded(blocks: &[Block]) -> Vec<&Block> {
    let each = blocks.iter().flat_map(|block| match block {
        Block::Folded(_, inner) => unfolded(inner),
        block => vec![block],
    });
    each.collect()
}
