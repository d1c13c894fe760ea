//! The pages of the books.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::normalized;

/// Words that the search of each book must find. It finds no part of a Chinese sentence by itself, see `chinese-search.js`.
const FOUND: [&str; 2] = ["ibv_post_send", "rnr_retry"];

/// Pages that mdBook makes by itself: the whole book on one page, for which anchors repeat.
const NOT_CHECKED: [&str; 3] = ["print.html", "404.html", "toc.html"];

/// Fails if the index of the search is missing or lacks words that the pages have.
pub(super) fn check_search_index(book: &Path) -> Result<(), String> {
    let files = files_below(book)?;
    let is_index = |path: &&PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("searchindex") && name.ends_with(".js")
    };
    let index = files
        .iter()
        .find(is_index)
        .ok_or("the book has no search index")?;
    let text = fs::read_to_string(index).map_err(|error| error.to_string())?;
    match FOUND.iter().find(|word| !text.contains(**word)) {
        None => Ok(()),
        Some(word) => Err(format!(
            "{}: the search does not find `{word}`",
            index.display()
        )),
    }
}

/// Fails if a link of a page leads nowhere. Returns how many links there are.
pub(super) fn check_links(output: &Path, languages: &[&str]) -> Result<usize, String> {
    let mut pages = HashMap::new();
    for language in languages {
        for path in files_below(&output.join(language))? {
            if path
                .extension()
                .is_some_and(|extension| extension == "html")
            {
                let text = fs::read_to_string(&path).map_err(|error| error.to_string())?;
                pages.insert(path, text);
            }
        }
    }
    let mut findings = Vec::new();
    let mut count = 0;
    for (path, text) in &pages {
        if NOT_CHECKED.iter().any(|name| path.ends_with(name)) {
            continue;
        }
        for target in attributes(text) {
            count += 1;
            if let Err(why) = resolve(path, target, &pages) {
                let page = path.strip_prefix(output).unwrap_or(path).display();
                findings.push(format!("{page}: {target}: {why}"));
            }
        }
    }
    findings.sort();
    findings.dedup();
    if findings.is_empty() {
        Ok(count)
    } else {
        Err(findings.join("\n"))
    }
}

fn resolve(page: &Path, target: &str, pages: &HashMap<PathBuf, String>) -> Result<(), String> {
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let directory = page.parent().expect("a page is in a directory");
    let path = match path {
        "" => page.to_owned(),
        path => normalized(&directory.join(path)),
    };
    if !path.is_file() {
        return Err("there is no such file".into());
    }
    match pages.get(&path) {
        Some(text)
            if !anchor.is_empty() && !text.contains(&format!("id=\"{}\"", decoded(anchor))) =>
        {
            Err("the page has no such anchor".into())
        }
        _ => Ok(()),
    }
}

/// Relative values of `href` and `src`.
fn attributes(text: &str) -> impl Iterator<Item = &str> {
    let begins = [" href=\"", " src=\""];
    let values = begins.into_iter().flat_map(move |begin| {
        (text.match_indices(begin))
            .filter_map(move |(at, _)| text[at + begin.len()..].split('"').next())
    });
    values.filter(|value| {
        !value.is_empty()
            && !value.contains("://")
            && !value.starts_with("data:")
            && !value.starts_with("mailto:")
    })
}

/// Replaces `%e4` by the byte that it means.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let digits = after.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        let byte = digits.and_then(|two| u8::from_str_radix(two, 16).ok());
        match (first, byte) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            (byte, _) => {
                bytes.push(*byte);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn files_below(directory: &Path) -> Result<Vec<PathBuf>, String> {
    let mut directories = vec![directory.to_owned()];
    let mut files = Vec::new();
    while let Some(directory) = directories.pop() {
        let entries = fs::read_dir(&directory);
        for entry in entries
            .map_err(|error| format!("{}: {error}", directory.display()))?
            .flatten()
        {
            let path = entry.path();
            if path.is_dir() {
                directories.push(path);
            } else {
                files.push(path);
            }
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;
    use xtask::scratch::Scratch;

    #[test]
    fn a_link_of_a_built_page_that_leads_nowhere_is_found() {
        let output = Scratch::new("html").expect("a directory");
        let book = output.0.join("en");
        fs::create_dir(&book).expect("a directory");
        fs::write(book.join("a.html"), r#"<h1 id="错">x</h1>"#).expect("a page");
        let good = r#"<a href="a.html#%e9%94%99">x</a> <a href="https://example.org">y</a>"#;
        fs::write(book.join("b.html"), good).expect("a page");
        assert_eq!(check_links(&output.0, &["en"]), Ok(1));
        let bad = r#"<a href="c.html">x</a> <img src="a.html#other">"#;
        fs::write(book.join("b.html"), bad).expect("a page");
        let findings = check_links(&output.0, &["en"]).expect_err("two are wrong");
        assert_eq!(
            findings,
            "en/b.html: a.html#other: the page has no such anchor\nen/b.html: c.html: there is no such file"
        );
    }

    #[test]
    fn a_book_without_its_search_fails() {
        let book = Scratch::new("search").expect("a directory");
        assert!(check_search_index(&book.0).is_err());
        fs::write(book.0.join("searchindex-1.js"), "ibv_post_send").expect("a file");
        assert!(
            check_search_index(&book.0)
                .expect_err("a word")
                .contains("rnr_retry")
        );
        fs::write(book.0.join("searchindex-1.js"), "ibv_post_send rnr_retry").expect("a file");
        assert_eq!(check_search_index(&book.0), Ok(()));
    }
}
