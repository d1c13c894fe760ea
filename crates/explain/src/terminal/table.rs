//! Columns that fit the terminal, and paragraphs.

use anstyle::Style;

use super::colours::{STRONG, paint};

/// One cell: text and style.
pub(super) struct Cell {
    text: String,
    style: Style,
}

impl Cell {
    pub(super) fn new(text: impl Into<String>) -> Self {
        Self::styled(Style::new(), text)
    }

    pub(super) fn styled(style: Style, text: impl Into<String>) -> Self {
        Cell {
            text: text.into(),
            style,
        }
    }
}

/// The alignment of a column.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Edge {
    Left,
    Right,
}

/// Rows in columns of the needed width. Nothing is cut: if the terminal is too narrow, the columns move closer together,
/// and what still does not fit continues on the next line.
pub(super) struct Table {
    columns: Vec<(&'static str, Edge)>,
    rows: Vec<Vec<Cell>>,
}

/// The margin of a table.
const MARGIN: usize = 2;

/// How far the columns are apart if the terminal is wide enough.
const WIDE_GAP: usize = 2;

/// The margin of lines that continue a row.
const INNER_MARGIN: usize = 6;

/// A text of the last column wraps in its column if the column has at least this number of characters.
const LEAST_WRAPPED: usize = 24;

impl Table {
    pub(super) fn new(columns: impl Into<Vec<(&'static str, Edge)>>) -> Self {
        Table {
            columns: columns.into(),
            rows: Vec::new(),
        }
    }

    pub(super) fn push(&mut self, row: impl Into<Vec<Cell>>) {
        let row = row.into();
        debug_assert_eq!(row.len(), self.columns.len(), "a cell for each column");
        self.rows.push(row);
    }

    pub(super) fn render(&self, width: usize) -> String {
        let widths: Vec<usize> = (0..self.columns.len()).map(|at| self.width(at)).collect();
        let (last, others) = widths.split_last().unwrap_or((&0, &[]));
        let others: usize = others.iter().map(|width| width + WIDE_GAP).sum();
        let needed = MARGIN + others + *last.min(&LEAST_WRAPPED);
        let gap = if needed > width { 1 } else { WIDE_GAP };
        let titles: Vec<Cell> = (self.columns.iter())
            .map(|(title, _)| Cell::styled(STRONG, *title))
            .collect();
        let rows = std::iter::once(&titles).chain(&self.rows);
        rows.map(|row| self.line(row, &widths, gap, width))
            .collect()
    }

    fn width(&self, column: usize) -> usize {
        let cells = self.rows.iter().map(|row| row[column].text.chars().count());
        let title = self.columns[column].0.chars().count();
        cells.fold(title, usize::max)
    }

    /// A row, in as many lines as it needs.
    fn line(&self, row: &[Cell], widths: &[usize], gap: usize, limit: usize) -> String {
        let mut text = " ".repeat(MARGIN);
        let mut used = MARGIN;
        for (index, cell) in row.iter().enumerate() {
            let length = cell.text.chars().count();
            let room = limit.saturating_sub(used);
            let edge = self.columns[index].1;
            if edge == Edge::Left && index + 1 == row.len() {
                if length > room && room < LEAST_WRAPPED {
                    used = limit.saturating_sub(length).max(INNER_MARGIN);
                    break_line(&mut text, used);
                }
                text.push_str(&wrapped(cell, used, limit));
                break;
            }
            if widths[index] > room {
                used = INNER_MARGIN;
                break_line(&mut text, used);
            }
            let padding = " ".repeat(widths[index] - length);
            let painted = paint_unless_plain(cell.style, &cell.text);
            text.push_str(&match edge {
                Edge::Left => painted + &padding,
                Edge::Right => padding + &painted,
            });
            text.push_str(&" ".repeat(gap));
            used += widths[index] + gap;
        }
        text.truncate(text.trim_end().len());
        text + "\n"
    }
}

fn break_line(text: &mut String, margin: usize) {
    text.truncate(text.trim_end().len());
    text.push('\n');
    text.push_str(&" ".repeat(margin));
}

/// A text that begins in the column `from`, in as many lines as it needs.
fn wrapped(cell: &Cell, from: usize, limit: usize) -> String {
    let margin = " ".repeat(from);
    let lines = paragraph(&cell.text, &margin, &margin, limit);
    let lines = lines
        .lines()
        .map(|line| paint_unless_plain(cell.style, line.trim_start()));
    lines.collect::<Vec<_>>().join(&format!("\n{margin}"))
}

fn paint_unless_plain(style: Style, text: &str) -> String {
    if style == Style::new() {
        text.to_owned()
    } else {
        paint(style, text)
    }
}

/// A text of at most `room` characters.
pub(super) fn cut(text: &str, room: usize) -> String {
    if text.chars().count() <= room {
        return text.to_owned();
    }
    let kept: String = text.chars().take(room.saturating_sub(1)).collect();
    if room == 0 { kept } else { kept + "…" }
}

/// A paragraph with lines of at most `width` characters, each after `margin`.
pub(super) fn paragraph(text: &str, first: &str, margin: &str, width: usize) -> String {
    let mut lines = String::new();
    let mut line = first.to_owned();
    let mut empty = true;
    for word in text.split_whitespace() {
        let longer = line.chars().count() + 1 + word.chars().count();
        if !empty && longer > width {
            lines.push_str(line.trim_end());
            lines.push('\n');
            line = margin.to_owned();
            empty = true;
        }
        if !empty {
            line.push(' ');
        }
        line.push_str(word);
        empty = false;
    }
    lines.push_str(line.trim_end());
    lines.push('\n');
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(table: &Table, width: usize) -> String {
        anstream::adapter::strip_str(&table.render(width)).to_string()
    }

    #[test]
    fn columns_keep_their_edges_and_a_long_text_wraps_in_its_column() {
        let mut table = Table::new([("a", Edge::Right), ("long title", Edge::Left)]);
        table.push([Cell::new("22"), Cell::new("a text that goes on and on")]);
        table.push([Cell::new("3"), Cell::new("short")]);
        let wide = "   a  long title\n  22  a text that goes on and on\n   3  short\n";
        assert_eq!(plain(&table, 32), wide);
        let narrower = "   a  long title\n  22  a text that goes on and\n      on\n   3  short\n";
        assert_eq!(plain(&table, 31), narrower);
    }

    #[test]
    fn what_does_not_fit_continues_on_the_next_line_and_is_not_cut() {
        let mut table = Table::new([
            ("time", Edge::Right),
            ("number", Edge::Right),
            ("outcome", Edge::Left),
        ]);
        table.push([Cell::new("1"), Cell::new("2"), Cell::new("done")]);
        table.push([Cell::new("1"), Cell::new("2"), Cell::new("not finished")]);
        let below =
            "  time number outcome\n     1      2 done\n     1      2\n           not finished\n";
        assert_eq!(plain(&table, 23), below);
        let narrowest = "  time number\n      outcome\n     1      2\n         done\n     1      2\n      not\n      finished\n";
        assert_eq!(plain(&table, 13), narrowest);
    }

    #[test]
    fn paragraphs_wrap_between_words() {
        let text = paragraph("one two three four", "- ", "  ", 11);
        assert_eq!(text, "- one two\n  three\n  four\n");
    }
}
