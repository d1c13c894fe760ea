//! Output for people and for scripts: columns, colours, JSON.

use std::fmt::{self, Display, Write as _};
use std::io::{self, ErrorKind, Write as _};

use anstyle::{AnsiColor, Style};
use serde::Serialize;

/// The style of the most important part of a line.
pub(crate) const STRONG: Style = Style::new().bold();
/// The style of explanations.
pub(crate) const FAINT: Style = Style::new().dimmed();
/// The style of a success.
pub(crate) const GOOD: Style = AnsiColor::Green.on_default().bold();
/// The style of a warning.
pub(crate) const WARNING: Style = AnsiColor::Yellow.on_default().bold();
/// The style of an error.
pub(crate) const BAD: Style = AnsiColor::Red.on_default().bold();

/// A text in a style. [`print()`] removes the style if the output is not a terminal.
pub(crate) fn styled(style: Style, text: impl Display) -> String {
    format!("{style}{text}{style:#}")
}

/// Writes to the standard output. Colours stay only on a terminal, and not with `NO_COLOR`; a reader that
/// stops early, such as `head`, ends the program without an error.
pub(crate) fn print(text: impl Display) -> anyhow::Result<()> {
    let mut out = anstream::stdout().lock();
    match write!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => Err(anyhow::anyhow!("the output can't be written: {error}")),
        Ok(()) => Ok(()),
    }
}

/// As [`print()`], with the end of the line.
pub(crate) fn print_line(text: impl Display) -> anyhow::Result<()> {
    print(format_args!("{text}\n"))
}

/// Prints a value as JSON, for scripts.
pub(crate) fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    print_line(serde_json::to_string_pretty(value)?)
}

/// Prints an error on stderr, in one line.
pub(crate) fn complain(error: &anyhow::Error) {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        // Many errors contain the text of their cause.
        if !text.contains(&cause) {
            let _ = write!(text, ": {cause}");
        }
    }
    let _ = writeln!(
        io::LineWriter::new(anstream::stderr()),
        "{} {text}",
        styled(BAD, "roci:")
    );
}

/// Prints a note on stderr, in one line.
pub(crate) fn remark(text: impl Display) {
    let _ = writeln!(
        io::LineWriter::new(anstream::stderr()),
        "{} {text}",
        styled(STRONG, "roci:")
    );
}

/// A table whose columns are as wide as their contents.
pub(crate) struct Table {
    titles: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these titles above its columns.
    pub(crate) fn new(titles: impl Into<Vec<&'static str>>) -> Self {
        Self {
            titles: titles.into(),
            rows: Vec::new(),
        }
    }

    /// Adds a row.
    pub(crate) fn push(&mut self, row: impl Into<Vec<String>>) {
        let row = row.into();
        debug_assert_eq!(row.len(), self.titles.len(), "a cell for each title");
        self.rows.push(row);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    fn width(&self, column: usize) -> usize {
        let cells = self.rows.iter().map(|row| row[column].chars().count());
        cells
            .chain([self.titles[column].chars().count()])
            .max()
            .unwrap_or(0)
    }
}

impl Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widths: Vec<usize> = (0..self.titles.len()).map(|at| self.width(at)).collect();
        let line = |cells: &mut dyn Iterator<Item = &str>| {
            let padded = cells
                .zip(&widths)
                .map(|(cell, &width)| format!("{cell:width$}"));
            padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        };
        let titles = line(&mut self.titles.iter().copied());
        writeln!(f, "{}", styled(STRONG, titles))?;
        for row in &self.rows {
            writeln!(f, "{}", line(&mut row.iter().map(String::as_str)))?;
        }
        Ok(())
    }
}

/// A number and its noun, singular or plural: `1 address`, `2 addresses`.
pub(crate) fn count(number: usize, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(["a", "long title"]);
        table.push(["wide cell".to_owned(), "x".to_owned()]);
        let plain = anstream::adapter::strip_str(&table.to_string()).to_string();
        assert_eq!(plain, "a          long title\nwide cell  x\n");
    }
}
