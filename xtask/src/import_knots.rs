//! Modules that import each other, directly or through others. A reader of one must know all of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// How many modules may import each other.
const MAX_KNOT: usize = 3;

/// The modules of a crate by their paths, and which modules each of them imports. A module and those below it count as one place:
/// imports between them don't count.
#[derive(Default)]
struct Imports(BTreeMap<String, BTreeSet<String>>);

/// One finding for each knot of too many modules.
pub(crate) fn findings(root: &Path, sources: &[PathBuf]) -> io::Result<Vec<String>> {
    let mut crates: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
    for path in sources {
        let relative = path.strip_prefix(root).unwrap_or(path).to_string_lossy();
        if let Some((name, below)) = relative.split_once("/src/")
            && !is_test(below)
        {
            let module = below.trim_end_matches(".rs").replace('/', "::");
            let text = fs::read_to_string(path)?;
            crates
                .entry(name.to_owned())
                .or_default()
                .push((module, text));
        }
    }
    let knots = crates.iter().flat_map(|(name, modules)| {
        let knots = Imports::of(modules).knots().into_iter();
        knots.map(move |knot| (name, knot))
    });
    let too_large = knots.filter(|(_, knot)| knot.len() > MAX_KNOT);
    let finding = |(name, knot): (&String, Vec<String>)| {
        let (count, modules) = (knot.len(), knot.join(", "));
        format!(
            "{name}: {count} modules import each other, more than {MAX_KNOT}: {modules}: move what the lower ones need down, or what they do up"
        )
    };
    Ok(too_large.map(finding).collect())
}

fn is_test(path: &str) -> bool {
    path.contains("tests") || path.contains("model_checks")
}

impl Imports {
    fn of(modules: &[(String, String)]) -> Self {
        let known: BTreeSet<_> = modules.iter().map(|(module, _)| module.as_str()).collect();
        let mut imports = Self::default();
        for (module, text) in modules {
            let targets = paths_in(product_code(text)).into_iter();
            let targets = targets.filter_map(|path| resolve(&known, module, &path));
            let others = targets.filter(|target| !is_same_place(module, target));
            imports.0.insert(module.clone(), others.collect());
        }
        imports
    }

    /// The sets of modules that import each other.
    fn knots(&self) -> Vec<Vec<String>> {
        let reached: BTreeMap<_, _> = (self.0.keys())
            .map(|module| (module, self.reached_from(module)))
            .collect();
        let mut knots = BTreeSet::new();
        for (module, others) in &reached {
            let knot = others
                .iter()
                .filter(|other| reached[*other].contains(*module));
            let knot: Vec<_> = knot.cloned().collect();
            if knot.len() > 1 {
                knots.insert(knot);
            }
        }
        knots.into_iter().collect()
    }

    fn reached_from(&self, module: &str) -> BTreeSet<String> {
        let mut reached = BTreeSet::new();
        let mut waiting = vec![module.to_owned()];
        while let Some(next) = waiting.pop() {
            for target in &self.0[&next] {
                if reached.insert(target.clone()) {
                    waiting.push(target.clone());
                }
            }
        }
        reached
    }
}

/// Whether one of the modules is below the other.
fn is_same_place(one: &str, other: &str) -> bool {
    let is_below = |low: &str, high: &str| {
        low.strip_prefix(high)
            .is_some_and(|rest| rest.starts_with("::"))
    };
    one == other || is_below(one, other) || is_below(other, one)
}

/// What stands before the tests of a file, which come last.
fn product_code(text: &str) -> &str {
    let tests = ["\n#[cfg(test)]", "\n#[cfg(all(test"];
    let end = tests.iter().filter_map(|mark| text.find(mark)).min();
    &text[..end.unwrap_or(text.len())]
}

/// The paths into the own crate: those of imports, with their groups written out, and those that stand in the code.
fn paths_in(text: &str) -> Vec<Vec<String>> {
    let code: String = (text.lines())
        .map(|line| line.split("//").next().unwrap_or_default())
        .collect::<Vec<_>>()
        .join("\n");
    let mut paths = Vec::new();
    for root in ["crate::", "super::", "self::"] {
        for (at, _) in code.match_indices(root) {
            let before = code[..at].chars().next_back();
            let is_start = before.is_none_or(|it| !it.is_alphanumeric() && it != '_' && it != ':');
            if is_start {
                write_out(&code[at..], &mut Vec::new(), &mut paths);
            }
        }
    }
    paths
}

/// Reads one path, or a group of paths behind a common one. Returns the rest of the text.
fn write_out<'t>(text: &'t str, prefix: &mut Vec<String>, paths: &mut Vec<Vec<String>>) -> &'t str {
    let depth = prefix.len();
    let mut rest = text.trim_start();
    loop {
        if let Some(group) = rest.strip_prefix('{') {
            rest = group.trim_start();
            while !rest.is_empty() && !rest.starts_with('}') {
                rest = write_out(rest, prefix, paths).trim_start();
                rest = rest.find([',', '}', ';']).map_or("", |at| &rest[at..]);
                rest = rest.strip_prefix(',').unwrap_or(rest).trim_start();
                if rest.starts_with(';') {
                    rest = "";
                }
            }
            rest = rest.strip_prefix('}').unwrap_or(rest);
            break;
        }
        let end = rest.find(|it: char| !it.is_alphanumeric() && it != '_');
        let (word, behind) = rest.split_at(end.unwrap_or(rest.len()));
        if !word.is_empty() {
            prefix.push(word.to_owned());
        }
        match behind.strip_prefix("::") {
            Some(more) if !word.is_empty() => rest = more,
            _ => {
                paths.push(prefix.clone());
                rest = behind;
                break;
            }
        }
    }
    prefix.truncate(depth);
    rest
}

/// The module that a path leads to, or into.
fn resolve(known: &BTreeSet<&str>, module: &str, path: &[String]) -> Option<String> {
    let mut place: Vec<&str> = match path.first()?.as_str() {
        "crate" => Vec::new(),
        _ if module == "lib" || module == "main" => Vec::new(),
        _ => module.split("::").collect(),
    };
    for word in path {
        match word.as_str() {
            "crate" | "self" => {}
            "super" => {
                place.pop();
            }
            word => place.push(word),
        }
    }
    (1..=place.len())
        .rev()
        .map(|length| place[..length].join("::"))
        .find(|path| known.contains(path.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn knots(modules: &[(&str, &str)]) -> Vec<Vec<String>> {
        let owned = modules
            .iter()
            .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
        Imports::of(&owned.collect::<Vec<_>>()).knots()
    }

    #[test]
    fn modules_that_import_each_other_are_a_knot() {
        let found = knots(&[
            ("a", "use crate::b::{self, c::Thing};"),
            ("b", "use std::io;"),
            ("b::c", "use super::super::d::Other;"),
            ("d", "fn run(a: crate::a::Type) {}"),
            ("e", "use crate::a::Type;"),
        ]);
        assert_eq!(found, [["a", "b::c", "d"]]);
    }

    #[test]
    fn a_module_and_its_parts_are_one_place() {
        let parts = [("a", "use self::b::Part;"), ("a::b", "use super::Whole;")];
        assert!(knots(&parts).is_empty());
    }

    #[test]
    fn tests_and_comments_import_nothing() {
        let tests = "fn it() {}\n#[cfg(test)]\nmod tests { use crate::b::Thing; }\n";
        let comment = "// as in crate::a::it\nuse crate::a::it;";
        assert!(knots(&[("a", tests), ("b", comment)]).is_empty());
    }

    #[test]
    fn groups_are_written_out() {
        let paths = paths_in("use crate::{a::{One, Two}, b as c,\n d::*};\nuse super::e;");
        let joined: Vec<_> = paths.iter().map(|path| path.join("::")).collect();
        let expected = [
            "crate::a::One",
            "crate::a::Two",
            "crate::b",
            "crate::d",
            "super::e",
        ];
        assert_eq!(joined, expected);
    }
}
