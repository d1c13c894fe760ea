//! The page in `docs/` is the catalogue's.

use std::path::Path;

#[test]
fn the_page_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/errors.md");
    let made = errors::page();
    if std::env::var_os("ROCI_BLESS").is_some() {
        std::fs::write(&path, &made).expect("the page can be written");
    }
    let there = std::fs::read_to_string(&path).expect("the page is there");
    assert!(
        there == made,
        "docs/errors.md is out of date: run ROCI_BLESS=1 cargo test -p rocinante-errors"
    );
}
