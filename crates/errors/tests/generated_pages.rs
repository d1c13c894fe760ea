//! The pages in `docs/` are the catalogue's.

use std::path::Path;

use errors::Language;

#[track_caller]
fn assert_up_to_date(page: &str, language: Language) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs")
        .join(page);
    let made = errors::page(language);
    if std::env::var_os("ROCI_BLESS").is_some() {
        std::fs::write(&path, &made).expect("the page can be written");
    }
    let there = std::fs::read_to_string(&path).expect("the page is there");
    assert!(
        there == made,
        "docs/{page} is out of date: run ROCI_BLESS=1 cargo test -p rocinante-errors"
    );
}

#[test]
fn the_page_is_up_to_date() {
    assert_up_to_date("errors.md", Language::English);
}

#[test]
fn the_chinese_page_is_up_to_date() {
    assert_up_to_date("zh-CN/errors.md", Language::Chinese);
}
