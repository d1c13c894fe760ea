//! `roci explain wc 12`: explains a code.

use std::fmt::Write;

use anyhow::bail;
use errors::{CodeKind, Entry, entries, find};
use serde_json::{Value, json};

use crate::output;

/// What the words of the command line name.
pub(crate) enum Found {
    /// No words: the kinds of codes.
    Kinds,
    /// All codes of a kind.
    All(CodeKind),
    /// Codes with this name.
    Entries(Vec<&'static Entry>),
}

/// Finds the codes that words name; `None` if no code has this name, so that it may be a file.
pub(crate) fn find_words(words: &[impl AsRef<str>]) -> anyhow::Result<Option<Found>> {
    let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    let named = of_any_kind(&words.join(" "))?;
    Ok(match (words.as_slice(), named) {
        ([], _) => Some(Found::Kinds),
        (_, Some(entries)) => Some(Found::Entries(entries)),
        ([kind], None) => kind.parse().ok().map(Found::All),
        ([kind, code], None) => Some(Found::Entries(vec![find(kind.parse()?, code)?])),
        ([kind, _, more, ..], None) if kind.parse::<CodeKind>().is_ok() => {
            bail!("one code is explained at a time, so `{more}` is too much")
        }
        (_, None) => bail!(
            "no code has the text `{}`; the kinds of codes are {}",
            words.join(" "),
            kinds()
        ),
    })
}

/// Prints what was found, as text or as JSON.
pub(crate) fn print(found: &Found, as_json: bool) -> anyhow::Result<()> {
    let text = match found {
        _ if as_json => format!("{:#}\n", document(found)),
        Found::Kinds => list_kinds(),
        Found::All(topic) => list(*topic),
        Found::Entries(found) => {
            let texts = found.iter().map(|entry| wrapped(entry) + "\n");
            texts.collect::<Vec<_>>().join("\n")
        }
    };
    output::print(text)
}

/// The words for the kinds of codes.
pub(crate) fn kinds() -> String {
    CodeKind::ALL.map(CodeKind::word).join(", ")
}

fn list_kinds() -> String {
    let mut text = "The kinds of codes:\n".to_owned();
    for topic in CodeKind::ALL {
        let command = format!("roci explain {topic}");
        let _ = writeln!(text, "  {command:20}  {}", topic.title());
    }
    text.push_str(
        "`roci explain wc 12` explains one of them, `roci explain trace.pcapng` a capture.\n",
    );
    text
}

/// The version increases when a field changes its name or meaning.
fn document(found: &Found) -> Value {
    let entries: Vec<&Entry> = match found {
        Found::Kinds => {
            let kinds = CodeKind::ALL.map(|it| json!({ "kind": it.word(), "title": it.title() }));
            return json!({ "version": 1, "kinds": kinds });
        }
        Found::All(topic) => entries(*topic).collect(),
        Found::Entries(found) => found.clone(),
    };
    let entries = entries.into_iter().map(|entry| {
        let causes = entry.causes.iter();
        let causes = causes.map(|it| json!({ "reason": it.reason, "remedy": it.remedy }));
        json!({
            "kind": entry.topic.word(),
            "code": entry.code,
            "name": entry.c_name,
            "rust_name": entry.rust_name,
            "meaning": entry.meaning,
            "causes": causes.collect::<Vec<_>>(),
        })
    });
    json!({ "version": 1, "entries": entries.collect::<Vec<_>>() })
}

/// The codes with this name, of any kind. A number that is a code of several kinds is an error that names them.
fn of_any_kind(word: &str) -> anyhow::Result<Option<Vec<&'static Entry>>> {
    let kinds = CodeKind::ALL.into_iter();
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
    Ok((!found.is_empty()).then_some(found))
}

/// All codes of a type, one per line.
fn list(topic: CodeKind) -> String {
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
        let entry = find(CodeKind::Completion, "12").expect("there is one");
        let text = wrapped(entry);
        assert!(text.starts_with("wc 12  IBV_WC_RETRY_EXC_ERR  (Status::RetriesExhausted)\n"));
        let longest = text.lines().map(|line| line.chars().count()).max();
        assert!(longest.is_some_and(|longest| longest <= 96), "{text}");
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(words(&text), words(&entry.to_string()));
    }

    #[test]
    fn every_code_of_a_kind_has_a_line() {
        let text = list(CodeKind::Event);
        assert_eq!(text.lines().count(), 21);
        assert!(text.contains("event 3   IBV_EVENT_QP_ACCESS_ERR"), "{text}");
    }
}
