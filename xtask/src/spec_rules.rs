//! `cargo xtask rules`: which rule of the InfiniBand specification is obeyed where, and tested where.
//!
//! The page is made from comments that cite a rule: by its compliance statement (`C9-92`, `CA17-22`), by
//! its section (`IBA 12.9.8.2`, `Annex A17.4.5.2`), or by the title of its section or table
//! (`IBA "Encoding for RNR NAK Timer Field"`).

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use crate::style;

/// From the workspace's root.
const PAGE: &str = "docs/rules.md";

/// The translated pages. What they say is written by hand, and where rules are cited is filled in here.
const TRANSLATIONS: [&str; 1] = ["docs/zh-CN/rules.md"];

/// The end of a page's head.
const TABLE: &str = "|---|---|---|---|\n";

const HEAD: &str = "\
# Rules of the specification

<!-- Made from comments in the code; do not edit. `cargo xtask rules` rewrites it. -->

Rules of the InfiniBand Architecture Specification, volume 1, that comments in the code cite. Each row says in our words what
the rule requires, which code obeys it, and which tests check it. A rule has one of these names:

- `C9-92`, `o10-37.2.30`: a compliance statement of a chapter. `C` is required of every device, `o` of devices with an option;
- `CA17-22`, `oA19-28`: the same, of an annex. A14 is XRC, A17 RoCEv2, A19 FLUSH and ATOMIC WRITE;
- `IBA 10.3.1`, `Annex A17.4.5.2`: a section, where the rule has no statement of its own or we know no number for it;
- `IBA \"Title\"`: a table or section, whose number differs between releases of the specification.

Sections are numbered as in release 1.2.1; A17 is a supplement to it, A19 came with release 1.5. What a row says is our reading
of the rule; the text of the specification decides. Checks without a number follow the Linux kernel (`rxe`, `ib_cm`); their comments say so.
The simulator counts as a test.
[interop.md](interop.md) and [conformance.md](conformance.md) list what was tested with other implementations.

| rule | what it requires | code | tests |
|---|---|---|---|
";

/// What introduces a citation by title.
const TITLE: &str = "IBA \"";

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

/// Writes the page and its translations.
pub(crate) fn write(root: &Path) -> Result<(), String> {
    for (path, text) in pages(root).map_err(|error| error.to_string())? {
        fs::write(root.join(path), text).map_err(|error| format!("{path}: {error}"))?;
    }
    Ok(())
}

/// The path and the text of each page.
fn pages(root: &Path) -> io::Result<Vec<(&'static str, String)>> {
    let mut rules = rules(root)?;
    let mut pages = vec![(PAGE, format!("{HEAD}{}", rows(&rules)))];
    for path in TRANSLATIONS {
        let old = fs::read_to_string(root.join(path))?;
        pages.push((path, translated(&old, &mut rules)));
    }
    Ok(pages)
}

/// A translated page, with its own head and meanings. A rule that it doesn't have yet keeps its meaning.
fn translated(old: &str, rules: &mut Rules) -> String {
    let (head, old_rows) = old.split_once(TABLE).unwrap_or((old, ""));
    for row in old_rows.lines() {
        let mut cells = row.trim_start_matches("| ").split(" | ");
        if let (Some(name), Some(meaning)) = (cells.next(), cells.next())
            && let Some(rule) = rules.get_mut(&sort_key(name))
        {
            rule.meaning = Some(meaning.to_owned());
        }
    }
    format!("{head}{TABLE}{}", rows(rules))
}

fn rows(rules: &Rules) -> String {
    rules.iter().map(|(key, rule)| row(&key[1], rule)).collect()
}

fn rules(root: &Path) -> io::Result<Rules> {
    let mut rules = Rules::new();
    for path in style::sources(root)? {
        let relative = path.strip_prefix(root).unwrap_or(&path).to_string_lossy();
        // Only the crates obey rules; here they are examples.
        if relative.starts_with("crates/") {
            collect(&relative, &fs::read_to_string(&path)?, &mut rules);
        }
    }
    Ok(rules)
}

fn row(name: &str, rule: &Rule) -> String {
    let meaning = capitalized(rule.meaning.as_deref().unwrap_or_default());
    let (code, tests) = (rule.code.join("<br>"), rule.tests.join("<br>"));
    format!("| {name} | {meaning} | {code} | {tests} |\n")
}

fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| {
        format!("{}{}", first.to_uppercase(), letters.as_str())
    })
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
            let place = match item(&lines, index) {
                Some(item) => format!("`{path}`: `{item}`"),
                None => format!("`{path}`"),
            };
            if is_test(path, &lines, index) {
                push_once(&mut rule.tests, place);
                continue;
            }
            push_once(&mut rule.code, place);
            if rule.meaning.is_none() {
                rule.meaning = if comment.starts_with(&name) {
                    meaning(rest, &lines[index + 1..])
                } else {
                    sentence_with(&format!(" ({name})"), &lines, index)
                };
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
    for (start, marker) in comment.match_indices(TITLE) {
        if let Some((title, rest)) = comment[start + marker.len()..].split_once('"') {
            found.push((format!("{TITLE}{title}\""), rest));
        }
    }
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

/// Whether it is a compliance statement of a chapter or an annex, such as `C9-92` or `oA19-28`.
fn is_statement(word: &str) -> bool {
    let number = word.strip_prefix(['C', 'o']);
    let parts = number.and_then(|number| number.split_once('-'));
    parts.is_some_and(|(part, rest)| {
        let chapter = part.strip_prefix('A').unwrap_or(part);
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

/// The sentence that cites a rule in parentheses, without them.
fn sentence_with(citation: &str, lines: &[&str], index: usize) -> Option<String> {
    let is_text = |line: &&&str| comment(line).is_some_and(|text| !text.is_empty());
    let before = lines[..index].iter().rev().take_while(is_text).count();
    let block = lines[index - before..].iter().take_while(is_text);
    let text: Vec<_> = block.filter_map(|line| comment(line)).collect();
    let text = text.join(" ");
    let at = text.find(citation)?;
    let start = text[..at].rfind(". ").map_or(0, |end| end + 2);
    let end = text[at..].find(". ").map_or(text.len(), |end| at + end + 1);
    Some(text[start..end].replace(citation, "").replace('|', "\\|"))
}

/// The name of the item that the comment stands before, or else of the function, type or table that it
/// is in, with the variant if that is an enum.
fn item(lines: &[&str], index: usize) -> Option<String> {
    let next = lines[index..]
        .iter()
        .find(|line| comment(line).is_none() && !line.trim_start().starts_with("#["));
    if let Some(name) = next.and_then(|line| item_name(line)) {
        return Some(name.to_owned());
    }
    let indent = |line: &str| line.len() - line.trim_start().len();
    let mut above = lines[..index].iter().rev();
    let outer = above.find(|line| {
        comment(line).is_none() && item_name(line).is_some() && indent(line) < indent(lines[index])
    });
    let (line, name) = outer.and_then(|line| Some((line, item_name(line)?)))?;
    let is_enum = without_visibility(line.trim_start()).starts_with("enum ");
    let variant = next.and_then(|line| variant(line)).filter(|_| is_enum);
    Some(match variant {
        Some(variant) => format!("{name}::{variant}"),
        None => name.to_owned(),
    })
}

/// The variant of an enum that a line declares.
fn variant(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let end = line.find(|c: char| !c.is_alphanumeric())?;
    line.starts_with(|c: char| c.is_ascii_uppercase())
        .then(|| &line[..end])
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
        || path.ends_with("/tests.rs")
        || path.starts_with("crates/sim/")
        || lines[..index]
            .iter()
            .any(|line| line.trim() == "#[cfg(test)]")
}

/// Chapters, annexes and titles in this order. Statements precede sections, and each is sorted by its
/// numbers.
fn sort_key(name: &str) -> Vec<String> {
    let kind = match name.split_once(' ') {
        None if name[1..].starts_with('A') => "3",
        None => "1",
        Some(("Annex", _)) => "4",
        Some(_) if name.starts_with(TITLE) => return vec![format!("5{name}"), name.to_owned()],
        Some(_) => "2",
    };
    let numbers = name.split(|c: char| !c.is_ascii_digit());
    let padded: String = numbers.map(|number| format!("{number:0>5}")).collect();
    vec![format!("{kind}{padded}"), name.to_owned()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pages_are_current() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for (path, expected) in pages(&root).expect("the sources can be read") {
            let found = fs::read_to_string(root.join(path)).expect("the page can be read");
            assert!(
                found == expected,
                "{path} is out of date: run cargo xtask rules"
            );
        }
    }

    #[test]
    fn a_translated_page_keeps_its_words_and_names_new_places() {
        let mut rules = Rules::new();
        let code = "/// C9-1: one.\nfn a() {}\n/// C9-2: two.\nfn b() {}\n";
        collect("crates/engine/src/a.rs", code, &mut rules);
        let old = format!("Kopf\n{TABLE}| C9-0 | null | `x` | |\n| C9-1 | Eins | `old` | |\n");
        let expected = "\
| C9-1 | Eins | `crates/engine/src/a.rs`: `a` |  |
| C9-2 | Two. | `crates/engine/src/a.rs`: `b` |  |
";
        assert_eq!(
            translated(&old, &mut rules),
            format!("Kopf\n{TABLE}{expected}")
        );
    }

    #[test]
    fn every_rule_has_a_meaning_and_a_test() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let rules = rules(&root).expect("the sources can be read");
        for (key, rule) in &rules {
            let name = &key[1];
            assert!(
                rule.meaning.is_some(),
                "a comment in the code begins with `{name}:` and its meaning"
            );
            assert!(!rule.code.is_empty(), "no code cites {name}");
            assert!(!rule.tests.is_empty(), "no test cites {name}");
        }
    }

    #[test]
    fn rules_are_recognized_in_comments() {
        let names = |text| -> Vec<_> { citations(text).into_iter().map(|it| it.0).collect() };
        assert_eq!(names("C9-92: one path MTU"), ["C9-92"]);
        assert_eq!(names("(C9-222.1.1) and o9-5."), ["C9-222.1.1", "o9-5"]);
        assert_eq!(names("as IBA 12.9.8.2: says"), ["IBA 12.9.8.2"]);
        assert_eq!(names("Annex A17.4.5.1 requires"), ["Annex A17.4.5.1"]);
        assert_eq!(names("CA17-22, and oA19-28:"), ["CA17-22", "oA19-28"]);
        assert_eq!(
            names("IBA \"RNR NAK Timer\": 10 µs"),
            ["IBA \"RNR NAK Timer\""]
        );
        assert!(names("C11 and x9-1, 12.9 or C9- or CA-1").is_empty());
    }

    #[test]
    fn comment_inside_a_table_or_an_enum_names_it() {
        let lines: Vec<_> = "\
static ROWS: &[Row] = &[
    // C9-1: one.
    row(),
];
pub enum State {
    /// C9-2: two.
    Reset = 0,
}
"
        .lines()
        .collect();
        assert_eq!(item(&lines, 1).as_deref(), Some("ROWS"));
        assert_eq!(item(&lines, 5).as_deref(), Some("State::Reset"));
    }

    #[test]
    fn meaning_is_the_sentence_that_cites_the_rule() {
        let code = "\
/// First. RESET (IBA 10.3.1): the state
/// after creation. More.
Reset = 0,
";
        let mut rules = Rules::new();
        collect("crates/engine/src/a.rs", code, &mut rules);
        let meaning = rules.values().find_map(|rule| rule.meaning.clone());
        assert_eq!(meaning.as_deref(), Some("RESET: the state after creation."));
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
        let expected = "\
| C9-88 |  | `crates/engine/src/a.rs`: `fits` |  |
| C9-92 | Exactly one path MTU. | `crates/engine/src/a.rs`: `fits` | `crates/engine/tests/a.rs`: `it_fits` |
";
        assert_eq!(rows(&rules), expected);
    }
}
