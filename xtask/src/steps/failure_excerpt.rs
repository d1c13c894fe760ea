//! The part of a failed step's output that says what failed.

/// Some build machines show no more than 8 KiB of a run.
const MAX_BYTES: usize = 6000;

/// Where libtest begins to tell about failed tests.
const FAILED_TESTS: &str = "failures:";

/// From the first failed test on, or the end of what was printed where no test failed. A long report keeps its
/// beginning and its end.
pub(super) fn digest(output: &str) -> String {
    let start = output
        .lines()
        .position(|line| line == FAILED_TESTS)
        .map(|first| first_line_at(output, first));
    match start {
        Some(start) => shortened(&output[start..]),
        None => tail(output, MAX_BYTES).to_owned(),
    }
}

/// Where a line begins.
fn first_line_at(text: &str, line: usize) -> usize {
    text.split_inclusive('\n').take(line).map(str::len).sum()
}

fn shortened(text: &str) -> String {
    if text.len() <= MAX_BYTES {
        return text.to_owned();
    }
    let half = MAX_BYTES / 2;
    let head = &text[..boundary(text, half)];
    format!("{head}\n[...]\n{}", tail(text, half))
}

fn tail(text: &str, bytes: usize) -> &str {
    &text[boundary(text, text.len().saturating_sub(bytes))..]
}

/// The first place from `from` on where no character is cut.
fn boundary(text: &str, from: usize) -> usize {
    (from..=text.len())
        .find(|&at| text.is_char_boundary(at))
        .unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_tests_are_shown_without_those_that_passed() {
        let output = "test one ... ok\ntest two ... FAILED\n\nfailures:\n\n---- two ----\nwhy\n";
        assert_eq!(digest(output), "failures:\n\n---- two ----\nwhy\n");
    }

    #[test]
    fn long_report_keeps_its_beginning_and_its_end() {
        let noise = "noise\n".repeat(MAX_BYTES);
        let shown = digest(&format!("failures:\nfirst\n{noise}last\n"));
        assert!(shown.starts_with("failures:\nfirst\n"));
        assert!(shown.ends_with("noise\nlast\n"));
        assert!(shown.len() < MAX_BYTES + 20);
    }

    #[test]
    fn output_without_tests_is_shown_by_its_end() {
        let noise = "noise é\n".repeat(MAX_BYTES);
        let shown = digest(&format!("{noise}3 runs failed\n"));
        assert!(shown.ends_with("3 runs failed\n"));
        assert!(shown.len() <= MAX_BYTES);
    }
}
