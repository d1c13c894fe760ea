//! docs/reference.md and its translation list every environment variable of ours, and every name of the fault language.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The page, and its translation.
const PAGES: [&str; 2] = ["docs/reference.md", "docs/zh-CN/reference.md"];

/// The beginning of every name: variables, and the fields in captures.
const PREFIX: &str = "ROCI_";

/// The parser of the fault language, and the constants with its names.
const FAULT_PARSER: &str = "crates/net/src/tap/fault/parse.rs";
const FAULT_LISTS: [&str; 3] = ["CHANCES", "ACTIONS", "CONDITIONS"];

/// Variables between a test and the processes that it starts.
const OF_TESTS: &str = "ROCI_TEST_";

/// Compares the pages with the source code: one line for each difference.
pub(crate) fn findings(root: &Path, sources: &[PathBuf]) -> io::Result<Vec<String>> {
    let code: io::Result<String> = sources.iter().map(fs::read_to_string).collect();
    let code = code?;
    let parser = fs::read_to_string(root.join(FAULT_PARSER))?;
    let mut findings = Vec::new();
    for name in PAGES {
        let page = Page {
            name,
            text: &fs::read_to_string(root.join(name))?,
        };
        findings.extend(page.differences(&code));
        findings.extend(page.missing_fault_names(&parser));
    }
    Ok(findings)
}

struct Page<'t> {
    name: &'static str,
    text: &'t str,
}

impl Page<'_> {
    /// The names in the messages of the parser that are not on the page, alone or with a value.
    fn missing_fault_names(&self, parser: &str) -> Vec<String> {
        let Self { name: page, text } = self;
        let lists = FAULT_LISTS.iter().filter_map(|list| {
            let (_, text) = parser.split_once(&format!("const {list}: &str = \""))?;
            text.split('"').next()
        });
        let names: Vec<_> = lists
            .flat_map(|list| list.split([',', ' ']))
            .filter(|word| !word.is_empty() && *word != "and")
            .collect();
        let is_listed = |name: &&&str| {
            text.contains(&format!("`{name}`")) || text.contains(&format!("`{name}="))
        };
        let missing = names.iter().filter(|name| !is_listed(name));
        let mut findings: Vec<_> = missing
            .map(|name| format!("{page} lacks `{name}` of the fault language"))
            .collect();
        if names.is_empty() {
            findings.push(format!(
                "{FAULT_PARSER} has no lists of names any more: adapt this check"
            ));
        }
        findings
    }

    fn differences(&self, code: &str) -> Vec<String> {
        let Self { name: page, text } = self;
        let (listed, used) = (names(text, '`'), names(code, '"'));
        let missing = used.difference(&listed).map(|name| {
            format!(
                "{page} lacks `{name}`: add a row that says what it means and which values it has"
            )
        });
        let stale = (listed.difference(&used))
            .map(|name| format!("{page} lists `{name}`, which the source code does not have"));
        missing.chain(stale).collect()
    }
}

/// The names of ours that stand between two of these quotes, with nothing else.
fn names(text: &str, quote: char) -> BTreeSet<&str> {
    let is_of_a_name = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    text.match_indices(PREFIX)
        .filter(|(start, _)| text[..*start].ends_with(quote))
        .filter_map(|(start, _)| {
            let end = text[start..].find(|c: char| !is_of_a_name(c))? + start;
            text[end..].starts_with(quote).then_some(&text[start..end])
        })
        .filter(|name| *name != PREFIX && !name.starts_with(OF_TESTS))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn differences(text: &str, code: &str) -> Vec<String> {
        let [name, _] = PAGES;
        Page { name, text }.differences(code)
    }

    fn missing_fault_names(text: &str, parser: &str) -> Vec<String> {
        let [name, _] = PAGES;
        Page { name, text }.missing_fault_names(parser)
    }

    // The literals are split, so that the check does not find them in this file.
    const VARIABLE: &str = concat!("RO", "CI_SHADOW");

    #[test]
    fn a_variable_that_the_page_lacks_is_found() {
        let code = format!("text(\"{VARIABLE}\")");
        let found = differences("| `something` |", &code);
        assert_eq!(found.len(), 1);
        assert!(found[0].contains(&format!("lacks `{VARIABLE}`")));
        assert!(differences(&format!("| `{VARIABLE}` |"), &code).is_empty());
    }

    #[test]
    fn a_row_without_a_variable_is_found() {
        let found = differences(&format!("| `{VARIABLE}` |"), "text(\"other\")");
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("does not have"));
    }

    #[test]
    fn a_name_of_the_fault_language_that_the_page_lacks_is_found() {
        let parser = "const ACTIONS: &str = \"drop, dup and kill\";";
        assert!(missing_fault_names("`drop` `dup=1%` `kill`", parser).is_empty());
        let found = missing_fault_names("`drop` `dup=1%`", parser);
        assert_eq!(
            found,
            ["docs/reference.md lacks `kill` of the fault language"]
        );
        assert_eq!(missing_fault_names("`drop`", "").len(), 1);
    }

    #[test]
    fn only_whole_literals_are_names_of_variables() {
        let code = format!("// {VARIABLE}\n\"{VARIABLE}=1\" \"{VARIABLE}\" c\"{VARIABLE}_2\"");
        let other = format!("{VARIABLE}_2");
        let expected: Vec<&str> = vec![VARIABLE, &other];
        assert_eq!(names(&code, '"').into_iter().collect::<Vec<_>>(), expected);
    }
}
