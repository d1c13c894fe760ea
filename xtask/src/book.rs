//! The documentation as a book in two languages, and its links.
//!
//! The pages stay where they are, so that they can be read on a web page of the repository. Their copies, with links as the book needs
//! them, are in `target/book/sources`; `target/book/en` and `target/book/zh-CN` are the books.

mod assemble;
mod html;
mod links;
mod page;
mod search;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use xtask::command::{self, CommandLine};

use crate::test_steps;

/// A book: the directory of its `SUMMARY.md` and `book.toml` in `docs/book`, and of its pages in `target/book`.
const LANGUAGES: [&str; 2] = ["en", "zh-CN"];

const PLANS: &str = "docs/book";
const OUTPUT: &str = "target/book";

/// The page that leads to the books.
const CHOICE: &str = "docs/book/index.html";

const PROGRAM: &str = "mdbook";
/// Not optimised: compiling takes longer than the books do.
const INSTALL: &str = "install --debug --quiet --locked mdbook";

/// Checks the links of all pages. Then builds the books and checks theirs, if mdBook is installed.
pub(crate) fn check(root: &Path) -> Result<(), String> {
    let count = links::check(root)?;
    println!("{count} links in Markdown pages lead somewhere");
    let books = assemble::books(root)?;
    if !is_installed() {
        // A machine that only checks changes gets the tool; a person's own is left as it is.
        if !test_steps::on_ci() {
            println!(
                "left out: the book itself, because mdBook is not installed (`cargo install --locked mdbook`)"
            );
            return Ok(());
        }
        let install = CommandLine::cargo(INSTALL).env("CARGO_PROFILE_DEV_DEBUG", "0");
        println!("$ {install}");
        if !install.run(root).map_err(|error| error.to_string())? {
            println!("left out: the book itself, because `{install}` failed");
            return Ok(());
        }
    }
    let output = root.join(OUTPUT);
    for book in &books {
        let sources = output.join("sources").join(book.language);
        book.write(root, &books, &sources)?;
        let built = output.join(book.language);
        command::call(
            Command::new(PROGRAM)
                .arg("build")
                .arg(&sources)
                .arg("--dest-dir")
                .arg(&built),
        )?;
        html::check_search_index(&built)?;
    }
    let choice = output.join("index.html");
    fs::copy(root.join(CHOICE), &choice).map_err(|error| format!("{CHOICE}: {error}"))?;
    let count = html::check_links(&output, &LANGUAGES)?;
    println!(
        "{count} links in the books lead somewhere: {}",
        choice.display()
    );
    match search::missing() {
        None => search::check(&output),
        Some(missing) => {
            println!("left out: the search of the books, because {missing}");
            Ok(())
        }
    }
}

fn is_installed() -> bool {
    let version = Command::new(PROGRAM).arg("--version").output();
    version.is_ok_and(|output| output.status.success())
}

/// The path without `.` and `..`.
fn normalized(path: &Path) -> PathBuf {
    let mut result = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::CurDir => {}
            std::path::Component::ParentDir => {
                result.pop();
            }
            other => result.push(other),
        }
    }
    result
}
