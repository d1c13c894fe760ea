//! `cargo xtask rules`: which rule of the InfiniBand specification is obeyed where, and tested where.
//!
//! The page is made from comments that cite a rule, such as `C9-92` or `IBA 12.9.8.2`.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use crate::style;

/// From the workspace's root.
const PAGE: &str = "docs/rules.md";

const HEAD: &str = "\
# Rules of the specification

<!-- Made from comments in the code; do not edit. `cargo xtask rules` rewrites it. -->

Rules of the InfiniBand Architecture Specification, volume 1, that comments cite: compliance statements (`C9-92`), sections
(`IBA 12.9`) and annexes. The code beside the comment obeys the rule; the tests cite the rule that they check. A rule
without a test may be checked by tests that do not cite it. The simulator counts as a test.

| rule | what it says | code | tests |
|---|---|---|---|
";

/// What introduces the item that a comment stands before.
const ITEMS: [&str; 5] = ["struct ", "enum ", "const ", "static ", "mod "];

/// Where a rule is cited.
#[derive(Debug, Default, PartialEq)]
struct Rule {
    meaning: Option<String>,
    code: Vec<String>,
    tests: Vec<String>,
}

/// Rules in the order of the specification.
type Rules = BTreeMap<Vec<String>, Rule>;

/// Writes the page.
pub(crate) fn write(root: &Path) -> Result<(), String> {
    let text = page(root).map_err(|error| error.to_string())?;
    fs::write(root.join(PAGE), text).map_err(|error| format!("{PAGE}: {error}"))
}

fn page(root: &Path) -> io::Result<String> {
    let mut rules = Rules::new();
    for path in style::sources(root)? {
        let relative = path.strip_prefix(root).unwrap_or(&path).to_string_lossy();
        // Only the crates obey rules; here they are examples.
        if relative.starts_with("crates/") {
            collect(&relative, &fs::read_to_string(&path)?, &mut rules);
        }
    }
    let rows: String = rules.iter().map(|(key, rule)| row(&key[1], rule)).collect();
    Ok(format!("{HEAD}{rows}"))
}

fn row(name: &str, rule: &Rule) -> String {
    let meaning = rule.meaning.as_deref().unwrap_or_default();
    let (code, tests) = (rule.code.join("<br>"), rule.tests.join("<br>"));
    format!("| {name} | {meaning} | {code} | {tests} |\n")
}

/// Adds what the comments of one file cite.
fn collect(path: &str, text: &str, rules: &mut Rules) {
    let lines: Vec<_> = text.lines().collect();
    for (index, line) in lines.iter().enumerate() {
        let Some(comment) = comment(line) else {
            continue;
        };
        for (name, rest) in citations(comment) {
            let rule = rules.entry(sort_key(&name)).or_default();
            let place = format!("`{path}`: `{}`", item(&lines, index));
            if is_test(path, &lines, index) {
                push_once(&mut rule.tests, place);
                continue;
            }
            push_once(&mut rule.code, place);
            if rule.meaning.is_none() && comment.starts_with(&name) {
                rule.meaning = meaning(rest, &lines[index + 1..]);
            }
        }
    }
}

fn push_once(places: &mut Vec<String>, place: String) {
    if !places.contains(&place) {
        places.push(place);
    }
}

fn comment(line: &str) -> Option<&str> {
    let text = line.trim_start().strip_prefix("//")?;
    Some(text.trim_start_matches(['/', '!']).trim())
}

/// The rules that a comment cites, each with the text behind it.
fn citations(comment: &str) -> Vec<(String, &str)> {
    let mut found = Vec::new();
    let mut before = "";
    for word in comment.split_whitespace() {
        let plain = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
        let name = match before {
            "IBA" if is_number(plain) => Some(format!("IBA {plain}")),
            "Annex" if plain.strip_prefix('A').is_some_and(is_number) => {
                Some(format!("Annex {plain}"))
            }
            _ => is_statement(plain).then(|| plain.to_owned()),
        };
        if let Some(name) = name {
            let end = word.as_ptr() as usize - comment.as_ptr() as usize + word.len();
            found.push((name, &comment[end - usize::from(word.ends_with(':'))..]));
        }
        before = plain;
    }
    found
}

/// Whether it is a compliance statement, such as `C9-92` or `o9-5.2.1`.
fn is_statement(word: &str) -> bool {
    let number = word.strip_prefix(['C', 'o']);
    let parts = number.and_then(|number| number.split_once('-'));
    parts.is_some_and(|(chapter, rest)| {
        is_number(rest) && !chapter.is_empty() && chapter.bytes().all(|b| b.is_ascii_digit())
    })
}

/// Whether it is a number with points, such as `12.9.8`.
fn is_number(word: &str) -> bool {
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    word.split('.').all(digits)
}

/// The sentence behind `C9-92:`, which may continue on the next lines.
fn meaning(rest: &str, following: &[&str]) -> Option<String> {
    let mut text = rest.strip_prefix(':')?.trim().to_owned();
    for line in following.iter().map_while(|line| comment(line)) {
        if line.is_empty() {
            break;
        }
        text.push(' ');
        text.push_str(line);
    }
    let end = text.find(". ").map_or(text.len(), |end| end + 1);
    Some(text[..end].replace('|', "\\|"))
}

/// The name of the item that the comment stands before, or else of the function that it is in.
fn item<'a>(lines: &[&'a str], index: usize) -> &'a str {
    let next = lines[index..]
        .iter()
        .find(|line| comment(line).is_none() && !line.trim_start().starts_with("#["));
    if let Some(name) = next.and_then(|line| item_name(line)) {
        return name;
    }
    let indent = |line: &str| line.len() - line.trim_start().len();
    let above = lines[..index].iter().rev();
    let mut functions = above.filter(|line| {
        line.contains("fn ") && comment(line).is_none() && indent(line) < indent(lines[index])
    });
    functions.find_map(|line| item_name(line)).unwrap_or("file")
}

fn item_name(line: &str) -> Option<&str> {
    let line = without_visibility(line.trim_start());
    let is_qualifier = |before: &str| before.chars().all(|c| c.is_alphabetic() || c == ' ');
    let rest = match line.split_once("fn ") {
        Some((before, rest)) if is_qualifier(before) => rest,
        _ => ITEMS.iter().find_map(|item| line.strip_prefix(item))?,
    };
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
    Some(&rest[..end.unwrap_or(rest.len())])
}

fn without_visibility(line: &str) -> &str {
    match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(") ").map_or(rest, |(_, it)| it),
        Some(rest) => rest.trim_start(),
        None => line,
    }
}

fn is_test(path: &str, lines: &[&str], index: usize) -> bool {
    path.contains("/tests/")
        || path.starts_with("crates/sim/")
        || lines[..index]
            .iter()
            .any(|line| line.trim() == "#[cfg(test)]")
}

/// Statements, sections and annexes in this order, and each by its numbers.
fn sort_key(name: &str) -> Vec<String> {
    let kind = match name.split_once(' ') {
        None => "1",
        Some(("IBA", _)) => "2",
        Some(_) => "3",
    };
    let numbers = name.split(|c: char| !c.is_ascii_digit());
    let padded: String = numbers.map(|number| format!("{number:0>5}")).collect();
    vec![format!("{kind}{padded}"), name.to_owned()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_current() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let expected = page(&root).expect("the sources can be read");
        let found = fs::read_to_string(root.join(PAGE)).expect("the page can be read");
        assert!(
            found == expected,
            "{PAGE} is out of date: run cargo xtask rules"
        );
    }

    #[test]
    fn rules_are_recognized_in_comments() {
        let names = |text| -> Vec<_> { citations(text).into_iter().map(|it| it.0).collect() };
        assert_eq!(names("C9-92: one path MTU"), ["C9-92"]);
        assert_eq!(names("(C9-222.1.1) and o9-5."), ["C9-222.1.1", "o9-5"]);
        assert_eq!(names("as IBA 12.9.8.2: says"), ["IBA 12.9.8.2"]);
        assert_eq!(names("Annex A17.4.5.1 requires"), ["Annex A17.4.5.1"]);
        assert!(names("C11 and x9-1, 12.9 or C9-").is_empty());
    }

    #[test]
    fn code_and_tests_are_listed_separately() {
        let mut rules = Rules::new();
        let code = "\
impl It {
    /// C9-92: exactly one
    /// path MTU. More.
    #[must_use]
    pub(in crate::queue_pair) fn fits(&self) {
        // C9-88, too.
        body();
    }
}
";
        collect("crates/engine/src/a.rs", code, &mut rules);
        let test = "// C9-92\n#[test]\nfn it_fits() {}\n";
        collect("crates/engine/tests/a.rs", test, &mut rules);
        let rows: String = rules.iter().map(|(key, rule)| row(&key[1], rule)).collect();
        let expected = "\
| C9-88 |  | `crates/engine/src/a.rs`: `fits` |  |
| C9-92 | exactly one path MTU. | `crates/engine/src/a.rs`: `fits` | `crates/engine/tests/a.rs`: `it_fits` |
";
        assert_eq!(rows, expected);
    }
}
