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

impl Document {
    /// All plots, wherever they stand.
    pub fn figures<'a>(&'a self) -> Vec<&'a Figure> {
        let of = |block: &'a Block| if let Block::Figures(figures) = block { &figures[..] } else { &[] };
        self.blocks().into_iter().flat_map(of).collect()
    }

    /// All tables, wherever they stand.
    pub fn tables<'a>(&'a self) -> Vec<&'a Table> {
        let of = |block: &'a Block| if let Block::Table(table) = block { Some(table) } else { None };
        self.blocks().into_iter().filter_map(of).chain(&self.data).collect()
    }

    /// All blocks, those that are folded included.
    fn blocks(&self) -> Vec<&Block> {
        fn walk<'a>(blocks: &'a [Block], found: &mut Vec<&'a Block>) {
            for block in blocks {
                found.push(block);
                if let Block::Folded(_, inner) = block {
                    walk(inner, found);
                }
            }
        }
        let mut found = Vec::new();
        self.sections.iter().for_each(|section| walk(&section.blocks, &mut found));
        found
    }
}
