//! The page that `roci explain` writes, in a real browser.

use std::path::Path;

use xtask::command::CommandLine;
use xtask::debian::{self, Package};

/// The packages of a browser, its driver and fonts.
const PACKAGES: [Package; 3] = [
    ("chromium", "/usr/bin/chromium"),
    ("chromium-driver", "/usr/bin/chromedriver"),
    (
        "fonts-dejavu-core",
        "/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf",
    ),
];

/// Built with the features of the whole workspace, as the earlier steps did, so that nothing is compiled again. The tests
/// run one after the other, because one of them measures how long the page takes to open.
const TESTS: &str =
    "test --workspace --all-features --test browser -- --ignored --test-threads 1 --show-output";

/// Why the browser can't be used here; `None` if it can.
pub(crate) fn missing() -> Option<String> {
    debian::missing(&PACKAGES)
}

/// Installs the browser if it is missing, and runs the tests in it.
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
