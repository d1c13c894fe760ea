//! Which lines are shown.

/// Words that a line must contain, and words that it must not.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Filter {
    wanted: Vec<String>,
    unwanted: Vec<String>,
}

impl Filter {
    /// A filter from words that are separated by spaces. A word after `!` is unwanted.
    pub(super) fn new(words: &str) -> Self {
        let mut filter = Self::default();
        for word in words.to_lowercase().split_whitespace() {
            match word.strip_prefix('!') {
                Some("") => {}
                Some(unwanted) => filter.unwanted.push(unwanted.to_owned()),
                None => filter.wanted.push(word.to_owned()),
            }
        }
        filter
    }

    /// Whether a line with this text is shown. Capital and small letters are the same.
    pub(super) fn admits(&self, line: &str) -> bool {
        let line = line.to_lowercase();
        self.wanted.iter().all(|word| line.contains(word))
            && !self.unwanted.iter().any(|word| line.contains(word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_all_wanted_words_and_no_unwanted_one() {
        let line = "17 perf RC RTS 127.0.0.1";
        for admitted in ["", "perf", "rts PERF", "!err", "17 !ud", "!"] {
            assert!(Filter::new(admitted).admits(line), "{admitted}");
        }
        for rejected in ["ud", "perf !rc", "perf err"] {
            assert!(!Filter::new(rejected).admits(line), "{rejected}");
        }
    }
}
