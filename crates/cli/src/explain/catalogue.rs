//! `roci explain wc 12`: explains a code.

use std::fmt::Write;

use anyhow::bail;
use errors::{Entry, Topic, entries, find};

use crate::output;

/// Whether `word` is a type of code and not the name of a capture.
pub(crate) fn is_topic(word: &str) -> bool {
    word.parse::<Topic>().is_ok()
}

/// Prints the catalogue entry of a code, by its number or name; without one, all codes of this type.
pub(crate) fn print(kind: &str, code: Option<&str>) -> anyhow::Result<()> {
    let topic: Topic = kind.parse()?;
    output::print(match code {
        Some(code) => format!("{}\n", wrapped(find(topic, code)?)),
        None => list(topic),
    })
}

/// The entries of the codes with this name, of any kind. A number that is a code of several kinds is
/// an error that names them.
pub(crate) fn of_any_kind(word: &str) -> anyhow::Result<Option<String>> {
    let kinds = Topic::ALL.into_iter();
    let found: Vec<&Entry> = kinds.filter_map(|kind| find(kind, word).ok()).collect();
    let is_number = word.starts_with(|first: char| first.is_ascii_digit());
    if is_number && found.len() > 1 {
        let commands = found
            .iter()
            .map(|entry| format!("`roci explain {}` ({})", entry.reference(), entry.c_name));
        let commands: Vec<String> = commands.collect();
        bail!(
            "{word} is a code of several kinds: run {}",
            commands.join(", or ")
        );
    }
    let texts = found.into_iter().map(|entry| wrapped(entry) + "\n");
    let texts: Vec<String> = texts.collect();
    Ok((!texts.is_empty()).then(|| texts.join("\n")))
}

/// All codes of a type, one per line.
fn list(topic: Topic) -> String {
    let mut text = format!("{}:\n", topic.title());
    let widest = |length: fn(&Entry) -> usize| entries(topic).map(length).max().unwrap_or(0);
    let code = widest(|entry| entry.reference().len());
    let name = widest(|entry| entry.c_name.len());
    for entry in entries(topic) {
        let reference = entry.reference();
        let first = entry.meaning.split_inclusive(". ").next();
        let first = first.unwrap_or(entry.meaning).trim_end();
        let _ = writeln!(text, "  {reference:code$}  {:name$}  {first}", entry.c_name);
    }
    text
}

/// An entry, wrapped for a terminal.
fn wrapped(entry: &Entry) -> String {
    let lines = entry.to_string();
    let lines: Vec<String> = lines.lines().map(wrap).collect();
    lines.join("\n")
}

/// Wraps a line at the last space that fits; the rest has the same indentation.
fn wrap(line: &str) -> String {
    const WIDTH: usize = 96;
    let indent = if line.starts_with("- ") || line.starts_with("  ") {
        "  "
    } else {
        ""
    };
    let mut wrapped = String::new();
    let mut column = 0;
    for (index, word) in line.split_inclusive(' ').enumerate() {
        if index > 0 && column + word.trim_end().chars().count() > WIDTH {
            wrapped.truncate(wrapped.trim_end().len());
            wrapped.push('\n');
            wrapped.push_str(indent);
            column = indent.len();
        }
        wrapped.push_str(word);
        column += word.chars().count();
    }
    wrapped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_printed_in_lines_that_fit() {
        let entry = find(Topic::Completion, "12").expect("there is one");
        let text = wrapped(entry);
        assert!(text.starts_with("wc 12  IBV_WC_RETRY_EXC_ERR  (Status::RetriesExhausted)\n"));
        let longest = text.lines().map(|line| line.chars().count()).max();
        assert!(longest.is_some_and(|longest| longest <= 96), "{text}");
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(words(&text), words(&entry.to_string()));
    }

    #[test]
    fn every_code_of_a_kind_has_a_line() {
        let text = list(Topic::Event);
        assert_eq!(text.lines().count(), 21);
        assert!(text.contains("event 3   IBV_EVENT_QP_ACCESS_ERR"), "{text}");
    }
}
