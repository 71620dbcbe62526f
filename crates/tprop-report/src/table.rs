//! A table, and its writers: Markdown, CSV, LaTeX, HTML, a terminal, JSON. Whatever its texts are, they stay inside their places.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use tprop::vocab::printable;

use crate::text::{csv, html, latex, markdown};

/// Columns, rows of equal length, and sentences below. As JSON it has only what people see: title, header, rows, notes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(into = "Plain", try_from = "Plain")]
pub struct Table {
    /// Its file, without ending.
    pub name: String,
    /// What it shows, or what its columns mean.
    pub title: String,
    /// From left to right.
    pub columns: Vec<Column>,
    /// From above. A row whose first text begins with [`BESIDE`] belongs to the one above it.
    pub rows: Vec<Vec<Item>>,
    /// Below it.
    pub notes: Vec<String>,
}

/// How the first text of a row begins that says more about the row above.
pub const BESIDE: &str = "· ";

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

/// What stands in one row of one column.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Item {
    /// For people: a word, a number, or a number with its deviation.
    pub text: String,
    /// For programs, where it differs: all digits.
    pub exact: Option<String>,
    /// The best of its column.
    pub best: bool,
}

impl Item {
    /// A word.
    pub fn word(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// A number as people read it by `show`, with all its digits for programs; empty where there is none.
    pub fn number(x: Option<f64>, show: impl Fn(f64) -> String) -> Self {
        x.map_or_else(Self::default, |x| Self { text: show(x), exact: Some(x.to_string()), best: false })
    }
}

/// A column together with what it says about each `T`.
pub struct Field<'a, T: ?Sized> {
    column: Column,
    of: Box<dyn Fn(&T) -> Item + 'a>,
}

/// A column of words.
pub fn words<'a, T: ?Sized>(title: &str, key: &str, of: impl Fn(&T) -> String + 'a) -> Field<'a, T> {
    let column = Column { title: title.to_owned(), key: key.to_owned(), numeric: false };
    Field { column, of: Box::new(move |x| Item::word(of(x))) }
}

/// A column of numbers, as `show` writes them.
pub fn numbers<'a, T: ?Sized>(
    title: &str,
    key: &str,
    of: impl Fn(&T) -> Option<f64> + 'a,
    show: impl Fn(f64) -> String + 'a,
) -> Field<'a, T> {
    let column = Column { title: title.to_owned(), key: key.to_owned(), numeric: true };
    Field { column, of: Box::new(move |x| Item::number(of(x), &show)) }
}

impl Table {
    /// A table of texts that is still to be filled: names at the left, all others at the right.
    pub fn new(title: impl Into<String>, header: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let columns = header.into_iter().enumerate().map(|(i, title)| {
            let title = title.into();
            Column { key: if i == 0 { "name".to_owned() } else { title.clone() }, title, numeric: i > 0 }
        });
        Self { title: title.into(), columns: columns.collect(), ..Self::default() }
    }

    /// A row for each thing, a column for each field.
    pub fn of<'t, T: ?Sized + 't>(
        name: &str,
        title: &str,
        fields: Vec<Field<'_, T>>,
        things: impl IntoIterator<Item = &'t T>,
    ) -> Self {
        let rows = things.into_iter().map(|x| fields.iter().map(|field| (field.of)(x)).collect()).collect();
        let columns = fields.into_iter().map(|field| field.column).collect();
        Self { name: name.to_owned(), title: title.to_owned(), columns, rows, notes: Vec::new() }
    }

    /// Adds a row of texts.
    pub fn row(&mut self, name: impl Into<String>, texts: impl IntoIterator<Item = String>) {
        self.rows.push(std::iter::once(name.into()).chain(texts).map(Item::word).collect());
    }

    /// Marks the smallest number of a column, if it has several.
    pub fn mark_best(&mut self, column: usize) {
        let of = |row: &Vec<Item>| row[column].exact.as_ref().and_then(|text| text.parse::<f64>().ok());
        let all: Vec<Option<f64>> = self.rows.iter().map(of).collect();
        let best = all.iter().flatten().copied().fold(f64::INFINITY, f64::min);
        for (row, x) in self.rows.iter_mut().zip(&all) {
            row[column].best = *x == Some(best) && all.iter().flatten().count() > 1;
        }
    }

    /// Without columns that have nothing in them.
    pub fn without_empty_columns(mut self) -> Self {
        let kept: Vec<bool> =
            (0..self.columns.len()).map(|c| self.rows.iter().any(|r| !r[c].text.is_empty())).collect();
        fn keep<T>(list: &mut Vec<T>, kept: &[bool]) {
            let mut kept = kept.iter();
            list.retain(|_| *kept.next().unwrap_or(&true));
        }
        keep(&mut self.columns, &kept);
        self.rows.iter_mut().for_each(|row| keep(row, &kept));
        self
    }

    /// The texts, titles first, as `escape` writes them.
    fn texts(&self, escape: impl Fn(&str) -> String, best: impl Fn(String) -> String) -> Vec<Vec<String>> {
        let item = |item: &Item| if item.best { best(escape(&item.text)) } else { escape(&item.text) };
        let titles = self.columns.iter().map(|column| escape(&column.title)).collect();
        std::iter::once(titles).chain(self.rows.iter().map(|row| row.iter().map(item).collect())).collect()
    }

    /// Each column as wide as its longest text.
    fn padded(&self, texts: &[Vec<String>], least: usize) -> Vec<Vec<String>> {
        let width = |j: usize| texts.iter().map(|row| row[j].chars().count()).max().unwrap_or(0).max(least);
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let pad = |(j, text): (usize, &String)| match (self.columns[j].numeric, widths[j]) {
            (true, w) => format!("{text:>w$}"),
            (false, w) => format!("{text:<w$}"),
        };
        texts.iter().map(|row| row.iter().enumerate().map(pad).collect()).collect()
    }

    /// A page's worth of Markdown, with title and notes; padded, so that it also reads well as plain text.
    pub fn markdown_page(&self) -> String {
        let texts = self.texts(|text| printable(text).replace('|', "\\|"), |text| format!("**{text}**"));
        let mut rows = self.padded(&texts, 3).into_iter();
        let titles = rows.next().unwrap_or_default();
        let rule = |(column, title): (&Column, &String)| match title.chars().count() {
            w if column.numeric => format!("{}:", "-".repeat(w - 1)),
            w => "-".repeat(w),
        };
        let rules: Vec<String> = self.columns.iter().zip(&titles).map(rule).collect();
        let mut text = format!("## {}\n\n", printable(&self.title));
        for row in [titles, rules].into_iter().chain(rows) {
            let _ = writeln!(text, "| {} |", row.join(" | "));
        }
        for note in &self.notes {
            let _ = write!(text, "\n{}\n", printable(note));
        }
        text
    }

    /// As part of a Markdown page whose renderer obeys whatever is not escaped.
    pub fn markdown(&self) -> String {
        let rules: Vec<_> = self.columns.iter().map(|c| if c.numeric { "---:" } else { "---" }).collect();
        let mut text = String::new();
        for (i, row) in self.texts(markdown, |text| format!("**{text}**")).iter().enumerate() {
            let _ = writeln!(text, "| {} |", row.join(" | "));
            if i == 0 {
                let _ = writeln!(text, "|{}|", rules.join("|"));
            }
        }
        text
    }

    /// CSV as in RFC 4180, with all digits; lines end as the reader expects.
    pub fn csv(&self, line_end: &str) -> String {
        let titles: Vec<String> = self.columns.iter().map(|column| csv(&column.key)).collect();
        let mut text = titles.join(",") + line_end;
        for row in &self.rows {
            let items: Vec<String> = row.iter().map(|x| csv(x.exact.as_ref().unwrap_or(&x.text))).collect();
            let _ = write!(text, "{}{line_end}", items.join(","));
        }
        text
    }

    /// A LaTeX table that needs no package.
    pub fn latex(&self) -> String {
        let sides: String = self.columns.iter().map(|column| if column.numeric { 'r' } else { 'l' }).collect();
        let mut text = format!("\\begin{{table}}\n\\centering\n\\begin{{tabular}}{{{sides}}}\n\\hline\n");
        for (i, row) in self.texts(latex, |text| format!("\\textbf{{{text}}}")).iter().enumerate() {
            let _ = writeln!(text, "{} \\\\", row.join(" & "));
            if i == 0 {
                text += "\\hline\n";
            }
        }
        let _ = writeln!(text, "\\hline\n\\end{{tabular}}\n\\caption{{{}}}\n\\end{{table}}", latex(&self.title));
        text
    }

    /// HTML that scrolls where it is too wide.
    pub fn html(&self) -> String {
        let class = |j: usize| if self.columns[j].numeric { " class=\"n\"" } else { "" };
        let mut text = format!(
            "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{}\">\n<table>\n<thead><tr>\n",
            html(&self.name)
        );
        let mut rows = self.texts(html, |text| format!("<strong>{text}</strong>")).into_iter();
        for (j, title) in rows.next().unwrap_or_default().iter().enumerate() {
            let _ = write!(text, "<th scope=\"col\"{}>{title}</th>", class(j));
        }
        text.push_str("</tr></thead>\n<tbody>\n");
        for row in rows {
            let beside = row.first().is_some_and(|name| name.starts_with(BESIDE));
            text.push_str(if beside { "<tr class=\"of\">" } else { "<tr>" });
            for (j, item) in row.iter().enumerate() {
                let _ = match j {
                    0 => write!(text, "<th scope=\"row\"{}>{item}</th>", class(j)),
                    _ => write!(text, "<td{}>{item}</td>", class(j)),
                };
            }
            text.push_str("</tr>\n");
        }
        text.push_str("</tbody>\n</table>\n</div>\n");
        if !self.title.is_empty() {
            let _ = writeln!(text, "<p class=\"caption\">{}</p>", html(&self.title));
        }
        text
    }

    /// Plain lines for a terminal, columns two spaces apart.
    pub fn terminal(&self) -> String {
        let texts = self.texts(printable, |text| text);
        let lines = self.padded(&texts, 0).into_iter().map(|row| row.join("  ").trim_end().to_owned() + "\n");
        lines.collect()
    }
}

/// A table as JSON has it.
#[derive(Serialize, Deserialize)]
struct Plain {
    title: String,
    header: Vec<String>,
    rows: Vec<Vec<String>>,
    notes: Vec<String>,
}

impl From<Table> for Plain {
    fn from(table: Table) -> Self {
        let header = table.columns.into_iter().map(|column| column.title).collect();
        let rows = table.rows.into_iter().map(|row| row.into_iter().map(|item| item.text).collect()).collect();
        Self { title: table.title, header, rows, notes: table.notes }
    }
}

impl TryFrom<Plain> for Table {
    type Error = &'static str;

    fn try_from(plain: Plain) -> Result<Self, Self::Error> {
        if plain.rows.iter().any(|row| row.len() != plain.header.len()) {
            return Err("a row of a table is not as long as its heading");
        }
        let rows = plain.rows.into_iter().map(|row| row.into_iter().map(Item::word).collect()).collect();
        Ok(Self { rows, notes: plain.notes, ..Table::new(plain.title, plain.header) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(name: &str) -> Table {
        let mut table = Table::new("title", ["name", "figure"]);
        table.row(name, ["1.5 ± 0.1".to_owned()]);
        table
    }

    #[test]
    fn a_table_in_all_languages() {
        let table = table("a");
        let page = "## title\n\n| name |    figure |\n| ---- | --------: |\n| a    | 1.5 ± 0.1 |\n";
        assert_eq!(table.markdown_page(), page);
        assert_eq!(table.markdown(), "| name | figure |\n|---|---:|\n| a | 1.5 ± 0.1 |\n");
        assert_eq!(table.csv("\r\n"), "name,figure\r\na,1.5 ± 0.1\r\n");
        let latex = "\\begin{tabular}{lr}\n\\hline\nname & figure \\\\\n\\hline\na & 1.5 $\\pm$ 0.1 \\\\";
        assert!(table.latex().contains(latex));
        assert!(table.html().contains("<tr><th scope=\"row\">a</th><td class=\"n\">1.5 ± 0.1</td></tr>"));
        assert_eq!(table.terminal(), "name     figure\na     1.5 ± 0.1\n");
        let json = serde_json::to_string(&table).unwrap();
        assert_eq!(json, r#"{"title":"title","header":["name","figure"],"rows":[["a","1.5 ± 0.1"]],"notes":[]}"#);
        let back: Table = serde_json::from_str(&json).unwrap();
        assert_eq!((back.markdown_page(), back.csv("\n")), (table.markdown_page(), table.csv("\n")));
    }

    #[test]
    fn fields_make_columns_and_the_best_is_marked() {
        let halves = |x: &f64| Some(x / 2.0).filter(|x| *x < 2.0);
        let fields =
            vec![words("n", "n", |x: &f64| x.to_string()), numbers("½", "half", halves, |x| format!("{x:.1}"))];
        let mut table = Table::of("t", "", fields, &[2.0, 1.0, 9.0]);
        table.mark_best(1);
        assert_eq!(table.markdown(), "| n | ½ |\n|---|---:|\n| 2 | 1.0 |\n| 1 | **0.5** |\n| 9 |  |\n");
        assert_eq!(table.csv("\n"), "n,half\n2,1\n1,0.5\n9,\n");
        table.rows.truncate(1);
        table.mark_best(1);
        assert!(!table.rows[0][1].best, "nothing to be better than");
        table.rows[0][1].text.clear();
        assert_eq!(table.without_empty_columns().columns.len(), 1);
    }

    #[test]
    fn hostile_texts_stay_in_their_place() {
        let text = table("a|b\n## x \u{1b}[31m \u{202e}").markdown_page();
        assert_eq!(text.lines().count(), 5, "{text}");
        assert!(text.contains("a\\|b") && !text.contains('\u{1b}') && !text.contains('\u{202e}'), "{text}");
        let text = table("=1+1,\"x\"").csv("\r\n");
        assert!(text.contains("\r\n\"'=1+1,\"\"x\"\"\",1.5"), "{text}");
        assert!(table("-0.40").csv("\r\n").contains("\r\n-0.40,"));
        let text = table("\\input{x} 5 % of_a $ ^ ~").latex();
        let expected = "\\textbackslash{}input\\{x\\} 5 \\% of\\_a \\$ \\textasciicircum{} \\textasciitilde{}";
        assert!(text.contains(expected), "{text}");
    }
}
