//! The table of the matrix, for the terminal and for the docs.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::cell::Cell;
use super::release::Release;
use super::{Matrix, library_tests};

/// A row with both directions.
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) as_client: Cell,
    pub(crate) as_server: Cell,
}

impl Line {
    pub(crate) fn is_good(&self) -> bool {
        self.complaints().is_empty()
    }

    pub(crate) fn is_left_out(&self) -> bool {
        matches!(self.as_client, Cell::LeftOut)
    }

    /// One line for each failure.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let cells = [("client", &self.as_client), ("server", &self.as_server)];
        let complaints = cells.iter().filter_map(|(role, cell)| match cell {
            Cell::Good(_) | Cell::LeftOut => None,
            Cell::Bad(reason) => Some(format!("{}, we are the {role}: {reason}", self.name)),
        });
        complaints.collect()
    }
}

const NAME_WIDTH: usize = 38;

/// The head of the table, as it is printed before the first row.
pub(crate) fn head() -> String {
    format!(
        "{:<NAME_WIDTH$} {:>14} {:>14}",
        "", "we are client", "we are server"
    )
}

/// A row as it is printed.
pub(crate) fn line(line: &Line) -> String {
    let (client, server) = (short(&line.as_client), short(&line.as_server));
    format!("{:<NAME_WIDTH$} {client:>14} {server:>14}", line.name)
}

fn short(cell: &Cell) -> String {
    match cell {
        Cell::Good(took) => format!("ok {:.1} s", took.as_secs_f32()),
        Cell::Bad(_) => "FAILED".into(),
        Cell::LeftOut => "no time".into(),
    }
}

/// The line of the document above a kernel's table.
fn begin(kernel: Release) -> String {
    let version = kernel.kernel();
    format!(
        "<!-- Linux {version}: written by `cargo xtask interop --kernel {version} --record` -->"
    )
}

/// The line below it.
const END: &str = "<!-- the end of the table -->";

/// Writes the table into the docs.
pub(crate) fn record(document: &Path, matrix: &Matrix, remarks: &[String]) -> Result<(), String> {
    let unusable = |error: std::io::Error| format!("{}: {error}", document.display());
    let text = fs::read_to_string(document).map_err(unusable)?;
    let mut table = markdown(&matrix.lines, remarks);
    if !matrix.tests.is_empty() {
        table.push_str(&tests_as_markdown(&matrix.tests));
        for line in library_tests::known_differences() {
            write!(table, "\n- {line}").expect("a string accepts all text");
        }
        table.push('\n');
    }
    let replaced = replaced(&text, &begin(matrix.options.kernel()), &table);
    let text =
        replaced.ok_or_else(|| format!("{} has no table of this kernel", document.display()))?;
    fs::write(document, text).map_err(unusable)
}

fn replaced(document: &str, begin: &str, table: &str) -> Option<String> {
    let (before, rest) = document.split_once(begin)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{begin}\n\n{table}\n{END}{after}"))
}

fn markdown(lines: &[Line], remarks: &[String]) -> String {
    let mut text = String::from("| row | we are client | we are server |\n|---|---|---|\n");
    for line in lines {
        let (client, server) = (plain(&line.as_client), plain(&line.as_server));
        writeln!(text, "| {} | {client} | {server} |", line.name)
            .expect("a string accepts all text");
    }
    for remark in remarks {
        write!(text, "\n- {remark}").expect("a string accepts all text");
    }
    text.push('\n');
    text
}

/// The tests of our C libraries, as they are printed.
pub(crate) fn tests(tests: &[library_tests::Line]) -> String {
    let head = format!(
        "{:<NAME_WIDTH$} {:>14} {:>14}\n",
        "tests of the C libraries", "ours", "rdma-core's"
    );
    tests.iter().fold(head, |mut text, test| {
        let (ours, kernels) = (short(&test.ours), short(&test.kernels));
        let (name, tally) = (test.name, test.summary());
        writeln!(
            text,
            "{name:<NAME_WIDTH$} {ours:>14} {kernels:>14}  {tally}"
        )
        .expect("a string accepts all text");
        for line in complaints_of_test(test) {
            writeln!(text, "    {line}").expect("a string accepts all text");
        }
        text
    })
}

/// One line for each failure of a test.
pub(crate) fn complaints_of_test(test: &library_tests::Line) -> Vec<String> {
    let cells = [("ours", &test.ours), ("rdma-core's", &test.kernels)];
    let bad = cells.iter().filter_map(|(whose, cell)| match cell {
        Cell::Bad(reason) => Some(format!("{} with {whose}: {reason}", test.name)),
        Cell::Good(_) | Cell::LeftOut => None,
    });
    bad.collect()
}

fn tests_as_markdown(tests: &[library_tests::Line]) -> String {
    let head = "\n| test of our C libraries | ours | rdma-core's on rxe |\n|---|---|---|\n";
    tests.iter().fold(head.to_owned(), |mut text, test| {
        let (ours, kernels) = (plain(&test.ours), plain(&test.kernels));
        let tally = test.summary();
        writeln!(text, "| {} | {ours} | {kernels} {tally} |", test.name)
            .expect("a string accepts all text");
        text
    })
}

/// The result without its time, so that the document changes only when a result changes.
fn plain(cell: &Cell) -> &'static str {
    match cell {
        Cell::Good(_) => "ok",
        Cell::Bad(_) => "FAILED",
        Cell::LeftOut => "not run",
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn example() -> Line {
        Line {
            name: "rping".into(),
            as_client: Cell::Good(Duration::from_millis(1250)),
            as_server: Cell::Bad("no answer".into()),
        }
    }

    #[test]
    fn a_failed_cell_is_marked_and_explained() {
        assert!(!example().is_good());
        assert!(line(&example()).ends_with("ok 1.2 s         FAILED"));
        assert_eq!(
            example().complaints(),
            ["rping, we are the server: no answer"]
        );
    }

    #[test]
    fn the_document_keeps_what_is_around_a_kernels_table() {
        let (older, newer) = (begin(Release::Bookworm), begin(Release::Trixie));
        let document = format!("above\n{older}\nfirst\n{END}\n{newer}\nold\n{END}\nbelow\n");
        let table = markdown(&[example()], &["a remark".into()]);
        let new = replaced(&document, &newer, &table).expect("it has such a table");
        assert!(new.starts_with(&format!("above\n{older}\nfirst\n{END}\n")));
        assert!(new.ends_with("\nbelow\n"));
        assert!(new.contains("| rping | ok | FAILED |\n\n- a remark\n"));
        assert!(!new.contains("old"));
    }
}
