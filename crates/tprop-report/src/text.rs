//! Text from outside on its way into a page, a table or a command: it is shown, never obeyed.

use tprop::vocab::printable;

/// For HTML and SVG, as content and inside quoted attributes.
pub fn html(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in printable(text).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// Several lines for HTML; only their ends stay as they are.
pub fn html_lines(text: &str) -> String {
    lines(text).map(html).collect::<Vec<_>>().join("\n")
}

/// The lines of a text, whatever their ends are.
pub fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(|line| line.strip_suffix('\r').unwrap_or(line))
}

/// For Markdown, outside of code; fit for cells of a table.
pub fn markdown(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in printable(text).chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '#' | '~' | '$' => out.extend(['\\', c]),
            c => out.push(c),
        }
    }
    out
}

/// A block of code in Markdown, with a fence that its text cannot close.
pub fn markdown_code(text: &str) -> String {
    let body: Vec<String> = lines(text).map(printable).collect();
    let longest = body.iter().map(|l| l.trim_start().chars().take_while(|c| *c == '`').count()).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}text\n{}\n{fence}\n", body.join("\n"))
}

/// A cell of a CSV file that a spreadsheet takes as it is: no break, and no formula.
pub fn csv(text: &str) -> String {
    let text = printable(text);
    let formula = text.starts_with(['=', '+', '-', '@']) && text.parse::<f64>().is_err();
    let text = if formula { format!("'{text}") } else { text };
    let quoted = text.contains([',', '"', ';']) || text.starts_with(' ') || text.ends_with(' ');
    if quoted { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}

/// For LaTeX without packages.
pub fn latex(text: &str) -> String {
    let mut out = String::new();
    for c in printable(text).chars() {
        match c {
            '&' | '%' | '$' | '#' | '_' | '{' | '}' => out.extend(['\\', c]),
            '<' | '>' => out.extend(['$', c, '$']),
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
            c => out.push(c),
        }
    }
    out
}

/// A word of a shell's command line.
pub fn shell(word: &str) -> String {
    let word = printable(word);
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) { word } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

/// At most `most` characters, the last of which shows that there were more.
pub fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: &str = "<script>alert(\"1\")</script>&'|`_*\u{1b}[31m\u{202e}gpj.exe\u{200f}\r\n#";

    #[test]
    fn nothing_is_obeyed() {
        let page = html(HOSTILE);
        assert!(page.starts_with("&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt;&amp;&#39;|"), "{page}");
        assert!(page.contains("\\u{1b}[31m\\u{202e}gpj.exe\\u{200f}\\r\\n#"), "{page}");
        for text in [html(HOSTILE), markdown(HOSTILE), csv(HOSTILE), shell(HOSTILE), markdown_code(HOSTILE)] {
            assert!(!text.contains(['\u{1b}', '\u{202e}', '\u{200f}', '\r']), "{text}");
        }
        assert!(markdown(HOSTILE).contains("\\|\\`\\_\\*"));
        assert!(!markdown("<b>").contains('<'));
        assert_eq!(html_lines("a<b\r\nc"), "a&lt;b\nc");
    }

    #[test]
    fn fences_cannot_be_closed_from_inside() {
        assert_eq!(markdown_code("a\n````\nb"), "`````text\na\n````\nb\n`````\n");
        assert_eq!(markdown_code("a"), "```text\na\n```\n");
    }

    #[test]
    fn cells_and_words_are_quoted_where_they_must_be() {
        assert_eq!(csv("a,\"b\""), "\"a,\"\"b\"\"\"");
        assert_eq!((csv("=1+1"), csv("-1.5"), csv("@x")), ("'=1+1".into(), "-1.5".into(), "'@x".into()));
        assert_eq!((shell("a/b=1.5"), shell("it's"), shell("")), ("a/b=1.5".into(), r"'it'\''s'".into(), "''".into()));
        assert_eq!((cut("abc", 3), cut("abcd", 3)), ("abc".into(), "ab…".into()));
    }
}
