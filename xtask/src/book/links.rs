//! Every relative link of the documentation leads to a file, and its anchor to a heading.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::page;

/// Directories with pages; those of the root itself are read, too.
const DIRECTORIES: [&str; 4] = ["docs", "crates", "examples", "fuzz"];

/// Directories that tools write.
const BUILT: [&str; 4] = ["target", "corpus", "artifacts", "node_modules"];

/// Checks all pages. The error has one line for each link that leads nowhere.
pub(super) fn check(root: &Path) -> Result<usize, String> {
    let pages = pages(root).map_err(|error| error.to_string())?;
    let mut findings = Vec::new();
    let mut count = 0;
    for path in pages {
        let text = read(&path)?;
        let name = path.strip_prefix(root).unwrap_or(&path).display();
        for link in page::links(&text) {
            count += 1;
            if let Err(why) = resolve(&path, link.target) {
                findings.push(format!(
                    "{name}:{}: [{}]({}): {why}",
                    link.line, link.text, link.target
                ));
            }
        }
    }
    if findings.is_empty() {
        Ok(count)
    } else {
        Err(findings.join("\n"))
    }
}

/// The file or directory that a relative link of a page leads to; `None` for the web.
pub(super) fn target_of(page: &Path, target: &str) -> Option<PathBuf> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let path = target.split('#').next().unwrap_or_default();
    if path.is_empty() {
        return Some(page.to_owned());
    }
    Some(page.parent()?.join(path))
}

fn resolve(page: &Path, target: &str) -> Result<(), String> {
    let Some(path) = target_of(page, target) else {
        return Ok(());
    };
    if !path.exists() {
        return Err("there is no such file".into());
    }
    let Some((_, anchor)) = target.split_once('#') else {
        return Ok(());
    };
    if path.extension().is_none_or(|extension| extension != "md") {
        return Ok(());
    }
    let anchors = page::anchors(&read(&path)?);
    if anchors.iter().any(|known| known == anchor) {
        Ok(())
    } else {
        Err(format!("no heading there has the anchor `{anchor}`"))
    }
}

fn pages(root: &Path) -> io::Result<Vec<PathBuf>> {
    let is_page = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "md");
    let in_root = fs::read_dir(root)?.flatten().map(|entry| entry.path());
    let mut found: Vec<_> = in_root.filter(is_page).collect();
    let mut directories: Vec<_> = DIRECTORIES.map(|name| root.join(name)).into();
    directories.retain(|directory| directory.is_dir());
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            if path.is_dir() && !BUILT.iter().any(|built| path.ends_with(built)) {
                directories.push(path);
            } else if is_page(&path) {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use xtask::scratch::Scratch;

    #[test]
    fn a_link_that_leads_nowhere_is_found() {
        let root = Scratch::new("links").expect("a directory");
        let write = |name: &str, text: &str| {
            let path = root.0.join(name);
            fs::create_dir_all(path.parent().expect("a directory")).expect("it can be made");
            fs::write(path, text).expect("it can be written");
        };
        write("docs/a.md", "# One\n");
        write(
            "README.md",
            "[a](docs/a.md#one) [b](https://example.org) [c](#two)\n\n## Two\n",
        );
        assert_eq!(check(&root.0), Ok(3));
        write("README.md", "\n[a](docs/b.md) [b](docs/a.md#three)\n");
        let findings = check(&root.0).expect_err("two links are wrong");
        assert_eq!(
            findings,
            "README.md:2: [a](docs/b.md): there is no such file\n\
             README.md:2: [b](docs/a.md#three): no heading there has the anchor `three`"
        );
    }
}
