//! A document as one page: no network, no fonts, no libraries. A content policy forbids the page to load anything.

use crate::document::{Block, Document, Figure};
use crate::plot::{self, Shape};
use crate::text::{html, html_lines};

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// How a page of ours is told from others.
pub const GENERATOR: &str = "<meta name=\"generator\" content=\"tprop ";

/// The page.
pub fn page(document: &Document) -> String {
    let (title, lead) = (html(&document.title), html(&document.lead));
    let commands = match &document.commands[..] {
        [] => String::new(),
        lines => format!("<pre class=\"command\">{}</pre>\n", html_lines(&lines.join("\n"))),
    };
    let links = document.sections.iter().map(|s| format!("<a href=\"#{}\">{}</a> ", s.id, html(&s.title)));
    let problems: String = document.problems.iter().map(|problem| format!("<li>{}</li>\n", html(problem))).collect();
    let problems = match problems.is_empty() {
        true => problems,
        false => format!(
            "<section id=\"problems\" class=\"problems\">\n<h2>Could not be read</h2>\n<ul>\n{problems}</ul>\n</section>\n"
        ),
    };
    let sections = document.sections.iter().map(|section| {
        let (id, title, blocks) = (section.id, html(&section.title), blocks(&section.blocks));
        format!("<section id=\"{id}\">\n<h2>{title}</h2>\n{blocks}</section>\n")
    });
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         {GENERATOR}{}\">\n\
         <link rel=\"icon\" href=\"data:,\">\n<title>{title}</title>\n<style>\n{STYLE}{}</style>\n</head>\n<body>\n\
         <header>\n<h1>{title}</h1>\n<p class=\"lead\">{lead}</p>\n{commands}</header>\n\
         <nav aria-label=\"Contents\">{}</nav>\n<main>\n{problems}{}</main>\n\
         <div id=\"readout\" role=\"status\" hidden></div>\n<script>\n{SCRIPT}</script>\n</body>\n</html>\n",
        env!("CARGO_PKG_VERSION"),
        plot::STYLE,
        links.collect::<String>(),
        sections.collect::<String>(),
    )
}

fn blocks(list: &[Block]) -> String {
    let each = list.iter().map(|block| match block {
        Block::Heading(text) => format!("<h3 class=\"part\">{}</h3>\n", html(text)),
        Block::Text(text) => format!("<p>{}</p>\n", html(text)),
        Block::Table(table) => table.html(),
        Block::Figures(figures) => {
            let alone = if figures.len() == 1 { " alone" } else { "" };
            format!("<div class=\"figures{alone}\">\n{}</div>\n", figures.iter().map(figure).collect::<String>())
        }
        Block::Code(title, text) => format!("<h3>{}</h3>\n<pre>{}</pre>\n", html(title), html_lines(text)),
        Block::Folded(title, inner) => {
            format!("<details>\n<summary>{}</summary>\n{}</details>\n", html(title), blocks(inner))
        }
    });
    each.collect()
}

fn figure(figure: &Figure) -> String {
    let (wide, narrow) = (figure.plot.draw(Shape::Wide), figure.plot.draw(Shape::Narrow));
    let caption = match figure.caption.as_str() {
        "" => String::new(),
        text => format!("<figcaption>{}</figcaption>\n", html(text)),
    };
    let drawn = format!("<div class=\"wide\">{wide}</div>\n<div class=\"narrow\">{narrow}</div>\n");
    format!("<figure id=\"plot-{}\">\n{drawn}{caption}</figure>\n", html(&figure.name))
}
