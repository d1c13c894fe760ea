//! The tests of a Rust project: compiled here, where there is a compiler, and run in the fresh system.

use std::fs;
use std::path::Path;

use xtask::command::CommandLine;

use super::Recipe;

/// The test of the page is one of our own, so that it is compiled and run with all others.
#[cfg(test)]
const OUR_COPY: &str = include_str!("../../../crates/verbs/tests/ci_recipe.rs");

/// Built with the features of the whole workspace, as the earlier steps did, so that nothing else is compiled again.
const BUILD: &str =
    "test --workspace --all-features --test ci_recipe --no-run --message-format json";

/// The name of the program in the job's directory.
const PROGRAM: &str = "rdma-tests";

/// What `cargo test` does in a container, once everything is compiled.
pub(super) fn recipe() -> Recipe {
    Recipe {
        name: "Rust",
        as_root: String::new(),
        as_user: format!(
            "./{PROGRAM}\nROCI_EXPLAIN=1 ROCI_PCAP=trace.pcapng ./{PROGRAM}\ntest -s trace.pcapng\n"
        ),
    }
}

/// Compiles the tests, and puts them into the job's directory.
pub(super) fn prepare(root: &Path, job: &Path) -> Result<(), String> {
    let build = CommandLine::cargo(BUILD);
    println!("$ {build}");
    let output = build.capture(root).map_err(|error| error.to_string())?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        return Err(format!("`{build}` failed: {errors}"));
    }
    let messages = String::from_utf8_lossy(&output.stdout);
    let built =
        executable(&messages).ok_or("cargo names no program for the tests of the recipe")?;
    fs::copy(built, job.join(PROGRAM)).map_err(|error| format!("{built}: {error}"))?;
    Ok(())
}

/// The program of the test in cargo's messages, of which each is a line.
fn executable(messages: &str) -> Option<&str> {
    let mut lines = messages.lines();
    let line = lines.rfind(|line| line.contains(r#""name":"ci_recipe""#))?;
    let (_, path) = line.split_once(r#""executable":""#)?;
    path.split('"').next()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipes::document::Document;

    fn page(name: &str) -> String {
        let path = xtask::workspace_root().join(name);
        fs::read_to_string(path).expect("the page is there")
    }

    #[test]
    fn the_test_on_the_page_is_one_that_we_run() {
        let page = Document::new(page("docs/ci.md"));
        assert_eq!(page.block("A Rust project", "rust"), Ok(OUR_COPY));
    }

    #[test]
    fn the_manifest_on_the_page_names_features_that_we_have() {
        let page_of_recipes = Document::new(page("docs/ci.md"));
        let manifest = page_of_recipes
            .block("A Rust project", "toml")
            .expect("a manifest");
        let ours = page("crates/verbs/Cargo.toml");
        let named: Vec<_> = manifest
            .match_indices("features = [\"")
            .filter_map(|(at, begin)| manifest[at + begin.len()..].split('"').next())
            .collect();
        assert_eq!(named.len(), 2);
        for feature in named {
            assert!(ours.contains(&format!("\n{feature} = [")), "{feature}");
        }
    }

    #[test]
    fn the_program_is_found_in_cargos_messages() {
        let messages = "{\"target\":{\"name\":\"other\"},\"executable\":\"/a\"}\n\
                        {\"target\":{\"name\":\"ci_recipe\"},\"executable\":\"/b/c-1\",\"fresh\":true}\n{}";
        assert_eq!(executable(messages), Some("/b/c-1"));
        assert_eq!(executable("{}"), None);
    }
}
