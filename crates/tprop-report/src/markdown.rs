//! A document as Markdown, for a README or a review; plots are links to their files.

use crate::document::{Block, Document, Figure, Section};
use crate::text::{markdown, markdown_code};

/// The text; files of plots and tables lie in `folder`.
pub fn text(document: &Document, folder: &str) -> String {
    let mut out = format!("# {}\n\n{}\n\n", markdown(&document.title), markdown(&document.lead));
    if !document.commands.is_empty() {
        out += &format!("{}\n", markdown_code(&document.commands.join("\n")));
    }
    if !document.problems.is_empty() {
        let problems = document.problems.iter().map(|problem| format!("- {}\n", markdown(problem)));
        out += &format!("## Could not be read\n\n{}\n", problems.collect::<String>());
    }
    let section = |section: &Section| format!("## {}\n\n{}", markdown(&section.title), blocks(&section.blocks, folder));
    out.extend(document.sections.iter().map(section));
    out
}

fn blocks(list: &[Block], folder: &str) -> String {
    let figure = |f: &Figure| format!("![{}]({folder}/{}.svg)\n\n", markdown(&f.caption), f.name);
    let each = list.iter().map(|block| match block {
        Block::Heading(text) => format!("### {}\n\n", markdown(text)),
        Block::Text(text) => format!("{}\n\n", markdown(text)),
        Block::Table(table) if table.title.is_empty() => format!("{}\n", table.markdown()),
        Block::Table(table) => format!("{}\n{}\n\n", table.markdown(), markdown(&table.title)),
        Block::Figures(figures) => figures.iter().map(figure).collect(),
        Block::Code(title, text) => format!("### {}\n\n{}\n", markdown(title), markdown_code(text)),
        Block::Folded(title, inner) => {
            format!("<details><summary>{}</summary>\n\n{}</details>\n\n", markdown(title), blocks(inner, folder))
        }
    });
    each.collect()
}
