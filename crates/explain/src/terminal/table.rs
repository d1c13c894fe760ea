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

/// Rows in columns of the needed width, cut at the width of the terminal.
pub(super) struct Table {
    columns: Vec<(&'static str, Edge)>,
    rows: Vec<Vec<Cell>>,
}

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
        let titles: Vec<Cell> = self
            .columns
            .iter()
            .map(|(title, _)| Cell::new(*title))
            .collect();
        let heading = self.line(&titles, &widths, width);
        let mut text = format!("  {}\n", paint(STRONG, heading));
        for row in &self.rows {
            text.push_str("  ");
            text.push_str(&self.line(row, &widths, width));
            text.push('\n');
        }
        text
    }

    fn width(&self, column: usize) -> usize {
        let cells = self.rows.iter().map(|row| row[column].text.chars().count());
        let title = self.columns[column].0.chars().count();
        cells.fold(title, usize::max)
    }

    fn line(&self, row: &[Cell], widths: &[usize], limit: usize) -> String {
        let mut text = String::new();
        let mut used = 2;
        for (index, cell) in row.iter().enumerate() {
            let last = index + 1 == row.len();
            let room = limit.saturating_sub(used);
            if room == 0 {
                break;
            }
            let padded = match self.columns[index].1 {
                Edge::Left if last => cell.text.clone(),
                Edge::Left => format!("{:w$}", cell.text, w = widths[index]),
                Edge::Right => format!("{:>w$}", cell.text, w = widths[index]),
            };
            text.push_str(&paint_unless_plain(cell.style, &cut(&padded, room)));
            if !last {
                text.push_str("  ");
            }
            used += widths[index] + 2;
        }
        text.trim_end().to_owned()
    }
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

    #[test]
    fn columns_keep_their_edges_and_lines_end_at_the_width() {
        let mut table = Table::new([("a", Edge::Right), ("long title", Edge::Left)]);
        table.push([Cell::new("22"), Cell::new("a text that goes on and on")]);
        let plain = anstream::adapter::strip_str(&table.render(20)).to_string();
        assert_eq!(plain, "   a  long title\n  22  a text that g…\n");
    }

    #[test]
    fn paragraphs_wrap_between_words() {
        let text = paragraph("one two three four", "- ", "  ", 11);
        assert_eq!(text, "- one two\n  three\n  four\n");
    }
}
