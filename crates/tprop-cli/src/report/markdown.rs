//! A document as Markdown, for a README or a review; plots are links to their files.

use std::fmt::Write as _;

use super::document::{Block, Document, Table};
use super::text::{markdown, markdown_code};

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
            Block::Table(one) => table(out, one),
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

fn table(out: &mut String, table: &Table) {
    let titles: Vec<_> = table.columns.iter().map(|c| markdown(&c.title)).collect();
    let marks: Vec<_> = table.columns.iter().map(|c| if c.numeric { "---:" } else { "---" }).collect();
    let _ = writeln!(out, "| {} |\n|{}|", titles.join(" | "), marks.join("|"));
    for row in &table.rows {
        let cells = row.iter().map(|cell| match (markdown(&cell.text), cell.best) {
            (text, true) => format!("**{text}**"),
            (text, false) => text,
        });
        let _ = writeln!(out, "| {} |", cells.collect::<Vec<_>>().join(" | "));
    }
    out.push('\n');
    if !table.caption.is_empty() {
        let _ = writeln!(out, "{}\n", markdown(&table.caption));
    }
}

/// A table as CSV, with all digits.
pub fn csv(table: &Table) -> String {
    let row = |cells: Vec<String>| cells.join(",") + "\n";
    let mut out = row(table.columns.iter().map(|c| crate::sheet::csv_cell(&c.key)).collect());
    for cells in &table.rows {
        out += &row(cells.iter().map(|c| crate::sheet::csv_cell(c.exact.as_deref().unwrap_or(&c.text))).collect());
    }
    out
}
