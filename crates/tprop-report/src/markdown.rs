//! A document as Markdown, for a README or a review; plots are links to their files.

use std::fmt::Write as _;

use crate::document::{Block, Document};
use crate::text::{markdown, markdown_code};

/// The text; files of plots and tables lie in `folder`.
pub fn text(document: &Document, folder: &str) -> String {
    let mut out = format!("# {}\n\n{}\n\n", markdown(&document.title), markdown(&document.lead));
    if !document.commands.is_empty() {
        let _ = writeln!(out, "{}", markdown_code(&document.commands.join("\n")));
    }
    if !document.problems.is_empty() {
        out.push_str("## Could not be read\n\n");
        for problem in &document.problems {
            let _ = writeln!(out, "- {}", markdown(problem));
        }
        out.push('\n');
    }
    for section in &document.sections {
        let _ = writeln!(out, "## {}\n", markdown(&section.title));
        blocks(&mut out, &section.blocks, folder);
    }
    out
}

fn blocks(out: &mut String, list: &[Block], folder: &str) {
    for block in list {
        match block {
            Block::Heading(text) => {
                let _ = writeln!(out, "### {}\n", markdown(text));
            }
            Block::Text(text) => {
                let _ = writeln!(out, "{}\n", markdown(text));
            }
            Block::Table(table) => {
                let _ = writeln!(out, "{}", table.markdown());
                if !table.title.is_empty() {
                    let _ = writeln!(out, "{}\n", markdown(&table.title));
                }
            }
            Block::Figures(figures) => {
                for figure in figures {
                    let _ = writeln!(out, "![{}]({folder}/{}.svg)\n", markdown(&figure.caption), figure.name);
                }
            }
            Block::Code(title, text) => {
                let _ = writeln!(out, "### {}\n\n{}", markdown(title), markdown_code(text));
            }
            Block::Folded(title, inner) => {
                let _ = writeln!(out, "<details><summary>{}</summary>\n", markdown(title));
                blocks(out, inner, folder);
                out.push_str("</details>\n\n");
            }
        }
    }
}
