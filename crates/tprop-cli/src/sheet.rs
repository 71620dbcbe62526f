//! A table of texts, written as Markdown, CSV or LaTeX. Whatever the texts are, they stay inside their places.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

/// A heading, rows of equal length, and sentences below.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Sheet {
    /// Above it.
    pub title: String,
    /// Headings of the columns.
    pub header: Vec<String>,
    /// Texts; each row is as long as the header.
    pub rows: Vec<Vec<String>>,
    /// Below it.
    pub notes: Vec<String>,
}

impl Sheet {
    /// With these headings.
    pub fn new(title: impl Into<String>, header: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let header = header.into_iter().map(Into::into).collect();
        Self { title: title.into(), header, rows: Vec::new(), notes: Vec::new() }
    }

    /// Markdown, padded so that it also reads well as plain text.
    pub fn markdown(&self) -> String {
        let escape = |text: &String| one_line(text).replace('|', "\\|");
        let all: Vec<Vec<String>> =
            std::iter::once(&self.header).chain(&self.rows).map(|row| row.iter().map(escape).collect()).collect();
        let width = |j: usize| all.iter().map(|row| row[j].chars().count()).max().unwrap_or(0).max(3);
        let widths: Vec<usize> = (0..self.header.len()).map(width).collect();
        let mut text = format!("## {}\n\n", one_line(&self.title));
        for (i, row) in all.iter().enumerate() {
            let cells: Vec<String> = row
                .iter()
                .zip(&widths)
                .enumerate()
                // Figures to the right, names to the left.
                .map(|(j, (cell, &w))| if j == 0 { format!("{cell:<w$}") } else { format!("{cell:>w$}") })
                .collect();
            let _ = writeln!(text, "| {} |", cells.join(" | "));
            if i == 0 {
                let rules = widths.iter().enumerate();
                let rules: Vec<String> = rules
                    .map(|(j, &w)| if j == 0 { "-".repeat(w) } else { format!("{}:", "-".repeat(w - 1)) })
                    .collect();
                let _ = writeln!(text, "| {} |", rules.join(" | "));
            }
        }
        for note in &self.notes {
            let _ = write!(text, "\n{}\n", one_line(note));
        }
        text
    }

    /// CSV as in RFC 4180.
    pub fn csv(&self) -> String {
        let mut text = String::new();
        for row in std::iter::once(&self.header).chain(&self.rows) {
            let cells: Vec<String> = row.iter().map(|cell| csv_cell(cell)).collect();
            let _ = write!(text, "{}\r\n", cells.join(","));
        }
        text
    }

    /// A LaTeX table that needs no package.
    pub fn latex(&self) -> String {
        let mut text = String::from("\\begin{table}\n\\centering\n");
        let _ = writeln!(text, "\\begin{{tabular}}{{l{}}}\n\\hline", "r".repeat(self.header.len().saturating_sub(1)));
        for (i, row) in std::iter::once(&self.header).chain(&self.rows).enumerate() {
            let cells: Vec<String> = row.iter().map(|cell| latex(cell)).collect();
            let _ = writeln!(text, "{} \\\\", cells.join(" & "));
            if i == 0 {
                text += "\\hline\n";
            }
        }
        let _ = writeln!(text, "\\hline\n\\end{{tabular}}\n\\caption{{{}}}\n\\end{{table}}", latex(&self.title));
        text
    }
}

/// Without line ends and without anything that a terminal would obey.
fn one_line(text: &str) -> String {
    tprop::vocab::printable(text)
}

/// A cell of a CSV file that a spreadsheet takes as it is: no break, and no formula.
pub fn csv_cell(text: &str) -> String {
    let text = one_line(text);
    let formula = text.starts_with(['=', '+', '-', '@']) && text.parse::<f64>().is_err();
    let text = if formula { format!("'{text}") } else { text };
    let quoted = text.contains([',', '"', ';']) || text.starts_with(' ') || text.ends_with(' ');
    if quoted { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}

fn latex(text: &str) -> String {
    let mut out = String::new();
    for c in one_line(text).chars() {
        match c {
            '&' | '%' | '$' | '#' | '_' | '{' | '}' => {
                out.push('\\');
                out.push(c);
            }
            '\\' => out += "\\textbackslash{}",
            '~' => out += "\\textasciitilde{}",
            '^' => out += "\\textasciicircum{}",
            '±' => out += "$\\pm$",
            '×' => out += "$\\times$",
            '−' => out += "$-$",
            'λ' => out += "$\\lambda$",
            '·' => out += "$\\cdot$",
            '–' => out += "--",
            '✓' => out += "$\\surd$",
            '<' | '>' => {
                let _ = write!(out, "${c}$");
            }
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sheet(cell: &str) -> Sheet {
        let mut sheet = Sheet::new("title", ["name", "figure"]);
        sheet.rows.push(vec![cell.to_owned(), "1.5 ± 0.1".to_owned()]);
        sheet
    }

    #[test]
    fn a_sheet_in_three_languages() {
        let sheet = sheet("a");
        let markdown = "## title\n\n| name |    figure |\n| ---- | --------: |\n| a    | 1.5 ± 0.1 |\n";
        assert_eq!(sheet.markdown(), markdown);
        assert_eq!(sheet.csv(), "name,figure\r\na,1.5 ± 0.1\r\n");
        assert!(
            sheet
                .latex()
                .contains("\\begin{tabular}{lr}\n\\hline\nname & figure \\\\\n\\hline\na & 1.5 $\\pm$ 0.1 \\\\")
        );
    }

    #[test]
    fn hostile_texts_stay_in_their_place() {
        let text = sheet("a|b\n## x \u{1b}[31m \u{202e}").markdown();
        assert_eq!(text.lines().count(), 5, "{text}");
        assert!(text.contains("a\\|b") && !text.contains('\u{1b}') && !text.contains('\u{202e}'), "{text}");
        let text = sheet("=1+1,\"x\"").csv();
        assert!(text.contains("\r\n\"'=1+1,\"\"x\"\"\",1.5"), "{text}");
        assert!(sheet("-0.40").csv().contains("\r\n-0.40,"));
        let text = sheet("\\input{x} 5 % of_a $ ^ ~").latex();
        let expected = "\\textbackslash{}input\\{x\\} 5 \\% of\\_a \\$ \\textasciicircum{} \\textasciitilde{}";
        assert!(text.contains(expected), "{text}");
    }
}
