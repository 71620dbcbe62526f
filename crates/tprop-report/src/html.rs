//! A document as one page: no network, no fonts, no libraries. A content policy forbids the page to load anything.

use std::fmt::Write as _;

use crate::document::{Block, Document, Figure};
use crate::plot::{self, Shape};
use crate::text::{html, html_lines};

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// How a page of ours is told from others.
pub const GENERATOR: &str = "<meta name=\"generator\" content=\"tprop ";

/// The page.
pub fn page(document: &Document) -> String {
    let mut body = String::new();
    let _ =
        writeln!(body, "<header>\n<h1>{}</h1>\n<p class=\"lead\">{}</p>", html(&document.title), html(&document.lead));
    if !document.commands.is_empty() {
        let _ = writeln!(body, "<pre class=\"command\">{}</pre>", html_lines(&document.commands.join("\n")));
    }
    body.push_str("</header>\n<nav aria-label=\"Contents\">");
    for section in &document.sections {
        let _ = write!(body, "<a href=\"#{}\">{}</a> ", section.id, html(&section.title));
    }
    body.push_str("</nav>\n<main>\n");
    if !document.problems.is_empty() {
        body.push_str("<section id=\"problems\" class=\"problems\">\n<h2>Could not be read</h2>\n<ul>\n");
        for problem in &document.problems {
            let _ = writeln!(body, "<li>{}</li>", html(problem));
        }
        body.push_str("</ul>\n</section>\n");
    }
    for section in &document.sections {
        let _ = writeln!(body, "<section id=\"{}\">\n<h2>{}</h2>", section.id, html(&section.title));
        blocks(&mut body, &section.blocks);
        body.push_str("</section>\n");
    }
    body.push_str("</main>\n");
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         {GENERATOR}{}\">\n\
         <link rel=\"icon\" href=\"data:,\">\n<title>{}</title>\n<style>\n{STYLE}{}</style>\n</head>\n<body>\n{body}\
         <div id=\"readout\" role=\"status\" hidden></div>\n<script>\n{SCRIPT}</script>\n</body>\n</html>\n",
        env!("CARGO_PKG_VERSION"),
        html(&document.title),
        plot::STYLE,
    )
}

fn blocks(body: &mut String, list: &[Block]) {
    for block in list {
        match block {
            Block::Heading(text) => {
                let _ = writeln!(body, "<h3 class=\"part\">{}</h3>", html(text));
            }
            Block::Text(text) => {
                let _ = writeln!(body, "<p>{}</p>", html(text));
            }
            Block::Table(table) => body.push_str(&table.html()),
            Block::Figures(figures) => {
                let alone = if figures.len() == 1 { " alone" } else { "" };
                let _ = writeln!(body, "<div class=\"figures{alone}\">");
                figures.iter().for_each(|f| figure(body, f));
                body.push_str("</div>\n");
            }
            Block::Code(title, text) => {
                let _ = writeln!(body, "<h3>{}</h3>\n<pre>{}</pre>", html(title), html_lines(text));
            }
            Block::Folded(title, inner) => {
                let _ = writeln!(body, "<details>\n<summary>{}</summary>", html(title));
                blocks(body, inner);
                body.push_str("</details>\n");
            }
        }
    }
}

fn figure(body: &mut String, figure: &Figure) {
    let _ = writeln!(body, "<figure id=\"plot-{}\">", html(&figure.name));
    let _ = writeln!(body, "<div class=\"wide\">{}</div>", figure.plot.draw(Shape::Wide));
    let _ = writeln!(body, "<div class=\"narrow\">{}</div>", figure.plot.draw(Shape::Narrow));
    if !figure.caption.is_empty() {
        let _ = writeln!(body, "<figcaption>{}</figcaption>", html(&figure.caption));
    }
    body.push_str("</figure>\n");
}
