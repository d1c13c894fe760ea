//! The rules of style that a program can check.
//!
//! A source is read as tokens, so a word inside a comment or a string is never mistaken for code.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use proc_macro2::{Delimiter, Ident, TokenStream, TokenTree};

/// Folders with source of ours.
const SOURCE_FOLDERS: [&str; 4] = ["crates", "xtask", "fuzz", "examples"];

/// What tools leave behind in them.
const BUILT_FOLDERS: [&str; 3] = ["target", "corpus", "artifacts"];

/// Where raw memory and system calls are dealt with: paths that begin like this.
const UNSAFE_ROOMS: [&str; 4] = [
    "crates/engine/src/memory",
    "crates/net/src/sys",
    "crates/capi/",
    "crates/preload/",
];

/// Crates whose `clippy.toml` keeps clock, threads and I/O out: no exceptions inside.
const SEALED_SOURCES: [&str; 2] = ["crates/engine/src/", "crates/cm/src/"];

const LONGEST_FILE: usize = 900;
const LONGEST_FUNCTION: usize = 90;

/// A broken rule and where.
#[derive(Debug)]
struct Finding {
    path: String,
    line: usize,
    complaint: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.complaint)
    }
}

/// Checks every source of the project; the error lists what was found, a line each.
pub(crate) fn check(root: &Path) -> Result<(), String> {
    let findings = findings_below(root).map_err(|error| error.to_string())?;
    if findings.is_empty() {
        return Ok(());
    }
    let lines: Vec<_> = findings.iter().map(Finding::to_string).collect();
    Err(lines.join("\n"))
}

fn findings_below(root: &Path) -> io::Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for path in sources(root)? {
        let text = fs::read_to_string(&path)?;
        let relative = path.strip_prefix(root).unwrap_or(&path);
        findings.extend(findings_in(&relative.to_string_lossy(), &text));
    }
    Ok(findings)
}

/// The sources of the project, sorted.
pub(crate) fn sources(root: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders: Vec<_> = SOURCE_FOLDERS.iter().map(|name| root.join(name)).collect();
    folders.retain(|folder| folder.is_dir());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() && !is_built(&path) {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

fn is_built(folder: &Path) -> bool {
    folder
        .file_name()
        .is_some_and(|name| BUILT_FOLDERS.iter().any(|built| name == *built))
}

fn findings_in(path: &str, text: &str) -> Vec<Finding> {
    let mut reader = Reader {
        path,
        findings: Vec::new(),
    };
    reader.measure_file(text);
    match TokenStream::from_str(text) {
        Ok(tokens) => reader.read(tokens),
        Err(error) => reader.complain(error.span().start().line, "this is not Rust".into()),
    }
    reader.findings
}

/// Reads one file and collects what it finds.
struct Reader<'a> {
    path: &'a str,
    findings: Vec<Finding>,
}

impl Reader<'_> {
    fn complain(&mut self, line: usize, complaint: String) {
        self.findings.push(Finding {
            path: self.path.to_owned(),
            line,
            complaint,
        });
    }

    fn measure_file(&mut self, text: &str) {
        let lines = text.lines().count();
        if lines > LONGEST_FILE {
            self.complain(lines, format!("{lines} lines: split it at {LONGEST_FILE}"));
        }
    }

    fn read(&mut self, tokens: TokenStream) {
        let tokens: Vec<_> = tokens.into_iter().collect();
        for (index, token) in tokens.iter().enumerate() {
            match token {
                TokenTree::Group(group) => self.read(group.stream()),
                TokenTree::Ident(word) => self.read_word(word, &tokens[index + 1..]),
                TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
        }
    }

    fn read_word(&mut self, word: &Ident, following: &[TokenTree]) {
        let line = word.span().start().line;
        match word.to_string().as_str() {
            "unsafe" if !lies_in(self.path, &UNSAFE_ROOMS) => {
                self.complain(line, "unsafe code outside of its rooms".into());
            }
            "disallowed_methods" | "disallowed_types" if lies_in(self.path, &SEALED_SOURCES) => {
                self.complain(line, "no exception from clippy.toml in this crate".into());
            }
            name @ ("todo" | "unimplemented") if is_macro_call(following) => {
                self.complain(line, format!("{name}! is left in the code"));
            }
            "fn" => self.measure_function(line, following),
            _ => {}
        }
    }

    fn measure_function(&mut self, first_line: usize, following: &[TokenTree]) {
        let Some(last_line) = end_of_function(following) else {
            return;
        };
        let lines = last_line - first_line + 1;
        if lines > LONGEST_FUNCTION && self.path.contains("/src/") {
            let name = &following[0];
            self.complain(
                first_line,
                format!("`{name}` has {lines} lines: split it at {LONGEST_FUNCTION}"),
            );
        }
    }
}

fn lies_in(path: &str, beginnings: &[&str]) -> bool {
    beginnings
        .iter()
        .any(|beginning| path.starts_with(beginning))
}

/// The line of the closing brace, given what follows the word `fn`.
fn end_of_function(following: &[TokenTree]) -> Option<usize> {
    // A name, or `$name` in a macro; a parenthesis would make it the type of a function pointer.
    if matches!(following.first()?, TokenTree::Group(_)) {
        return None;
    }
    following
        .iter()
        .take_while(|token| !is(';')(token))
        .find_map(|token| match token {
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
                Some(group.span_close().end().line)
            }
            _ => None,
        })
}

/// `!` alone could begin a comparison.
fn is_macro_call(following: &[TokenTree]) -> bool {
    matches!(following, [sign, TokenTree::Group(_), ..] if is('!')(sign))
}

fn is(sign: char) -> impl Fn(&TokenTree) -> bool {
    move |token| matches!(token, TokenTree::Punct(punct) if punct.as_char() == sign)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The findings as `line: message`.
    fn found(path: &str, text: &str) -> Vec<String> {
        findings_in(path, text)
            .iter()
            .map(|finding| format!("{}: {}", finding.line, finding.complaint))
            .collect()
    }

    fn function_of(lines: usize) -> String {
        format!("fn long() {{\n{}}}\n", "    step();\n".repeat(lines - 2))
    }

    #[test]
    fn unsafe_code_is_found_outside_of_its_modules() {
        let text = "fn f() {\n    unsafe { g() }\n}\n";
        let complaint = ["2: unsafe code outside of its rooms"];
        assert_eq!(found("crates/engine/src/queue.rs", text), complaint);
        assert_eq!(found("crates/net/tests/sys.rs", text), complaint);
        for path in ["crates/engine/src/memory/raw.rs", "crates/capi/src/lib.rs"] {
            assert!(found(path, text).is_empty());
        }
    }

    #[test]
    fn unsafe_is_found_in_attributes_and_macros_too() {
        assert_eq!(found("a.rs", "#[unsafe(no_mangle)] fn f() {}").len(), 1);
        assert_eq!(
            found("a.rs", "macro_rules! m { () => { unsafe {} } }").len(),
            1
        );
    }

    #[test]
    fn the_word_alone_is_no_offence() {
        let text = r##"
            #![forbid(unsafe_code)]
            #![deny(clippy::undocumented_unsafe_blocks)]
            //! unsafe in a document, todo!() as well
            // unsafe in a comment /* todo!() */
            const A: &str = "unsafe"; const B: &str = r#"todo!() " unsafe"#; const C: char = '"';
            fn f<'unsafe_lifetime>(todo: bool) -> bool { todo != true }
        "##;
        assert_eq!(found("crates/wire/src/lib.rs", text), [""; 0]);
    }

    #[test]
    fn unfinished_work_is_found() {
        let text = "fn f() { todo!() }\nfn g() { unimplemented!(\"later\") }";
        assert_eq!(
            found("crates/wire/src/lib.rs", text),
            [
                "1: todo! is left in the code",
                "2: unimplemented! is left in the code"
            ]
        );
    }

    #[test]
    fn a_function_may_have_ninety_lines_and_no_more() {
        assert_eq!(found("crates/wire/src/a.rs", &function_of(90)), [""; 0]);
        assert_eq!(
            found("crates/wire/src/a.rs", &function_of(91)),
            ["1: `long` has 91 lines: split it at 90"]
        );
        // Only in sources: a test may tell a long story.
        assert_eq!(found("crates/wire/tests/a.rs", &function_of(91)), [""; 0]);
    }

    #[test]
    fn a_function_inside_an_impl_is_measured_and_the_impl_is_not() {
        let text = format!("impl A {{\n{}{}}}", function_of(60), function_of(100));
        assert_eq!(
            found("crates/wire/src/a.rs", &text),
            ["62: `long` has 100 lines: split it at 90"]
        );
    }

    #[test]
    fn a_function_pointer_or_a_declaration_has_no_length() {
        let padding = "\n".repeat(100);
        let text = format!("impl T for fn(u8) {{{padding}}}\ntrait A {{ fn f(); {padding} }}");
        assert_eq!(found("crates/wire/src/a.rs", &text), [""; 0]);
    }

    #[test]
    fn a_file_may_have_nine_hundred_lines_and_no_more() {
        assert_eq!(found("crates/wire/tests/a.rs", &"\n".repeat(900)), [""; 0]);
        assert_eq!(
            found("crates/wire/tests/a.rs", &"\n".repeat(901)),
            ["901: 901 lines: split it at 900"]
        );
    }

    #[test]
    fn a_sealed_crate_cannot_excuse_itself() {
        let text = "#[allow(clippy::disallowed_methods)]\nfn f() {}";
        assert_eq!(
            found("crates/engine/src/lib.rs", text),
            ["1: no exception from clippy.toml in this crate"]
        );
        assert_eq!(found("crates/engine/benches/datapath.rs", text), [""; 0]);
    }

    #[test]
    fn what_is_not_rust_is_reported() {
        assert_eq!(found("a.rs", "fn f() {\n(\n}").len(), 1);
    }
}
