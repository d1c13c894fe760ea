//! The page that `roci explain` writes, in a real browser.

use std::path::Path;

use crate::command::CommandLine;
use crate::debian::{self, Package};

/// A browser, what drives it, and letters to draw with.
const PACKAGES: [Package; 3] = [
    ("chromium", "/usr/bin/chromium"),
    ("chromium-driver", "/usr/bin/chromedriver"),
    (
        "fonts-dejavu-core",
        "/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf",
    ),
];

/// As the tests have built them before: with the features of all, nothing is compiled again. One after
/// the other, because one of them measures how long the page takes to open.
const TESTS: &str =
    "test --workspace --all-features --test browser -- --ignored --test-threads 1 --show-output";

/// Why there is no browser here, if there is none.
pub(crate) fn missing() -> Option<String> {
    debian::missing(&PACKAGES)
}

/// Installs the browser where it is not there yet, and opens the page in it.
pub(crate) fn check(root: &Path) -> Result<(), String> {
    debian::install(&PACKAGES)?;
    let tests = CommandLine::cargo(TESTS);
    println!("$ {tests}");
    match tests.run(root) {
        Ok(true) => Ok(()),
        Ok(false) => Err(format!("`{tests}` failed")),
        Err(error) => Err(format!("cargo can't be started: {error}")),
    }
}
