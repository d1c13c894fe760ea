//! The sources of a book: copies of the pages, with links as the book needs them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::{LANGUAGES, PLANS, links, normalized, page};

const SUMMARY: &str = "SUMMARY.md";

/// Files beside the plans that every book gets.
const SCRIPTS: [&str; 1] = ["chinese-search.js"];

/// A book and its pages.
pub(super) struct Book {
    pub(super) language: &'static str,
    /// Relative to the root of the repository.
    pages: BTreeSet<PathBuf>,
}

/// The books as their summaries list them.
pub(super) fn books(root: &Path) -> Result<Vec<Book>, String> {
    let books: Result<Vec<_>, String> = LANGUAGES
        .into_iter()
        .map(|language| {
            let summary = root.join(PLANS).join(language).join(SUMMARY);
            let text = read(&summary)?;
            let pages = page::links(&text).into_iter();
            let pages = pages.filter_map(|link| below(root, &summary, link.target));
            Ok(Book {
                language,
                pages: pages.collect(),
            })
        })
        .collect();
    let books = books?;
    every_page_is_in_a_book(root, &books)?;
    Ok(books)
}

/// A page in `docs` that no summary lists would be forgotten.
fn every_page_is_in_a_book(root: &Path, books: &[Book]) -> Result<(), String> {
    let mut forgotten = Vec::new();
    for directory in ["docs", "docs/tutorial", "docs/zh-CN", "docs/zh-CN/tutorial"] {
        let entries = fs::read_dir(root.join(directory));
        for entry in entries
            .map_err(|error| format!("{directory}: {error}"))?
            .flatten()
        {
            let page = Path::new(directory).join(entry.file_name());
            let is_page = page.extension().is_some_and(|extension| extension == "md");
            if is_page && !books.iter().any(|book| book.pages.contains(&page)) {
                forgotten.push(format!("{}: add it to {PLANS}/*/{SUMMARY}", page.display()));
            }
        }
    }
    if forgotten.is_empty() {
        Ok(())
    } else {
        Err(forgotten.join("\n"))
    }
}

impl Book {
    /// Writes the sources into a directory, which is emptied before.
    pub(super) fn write(&self, root: &Path, books: &[Book], to: &Path) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("{}: {error}", to.display());
        let _ = fs::remove_dir_all(to);
        fs::create_dir_all(to).map_err(failed)?;
        let plan = root.join(PLANS);
        fs::copy(
            plan.join(self.language).join("book.toml"),
            to.join("book.toml"),
        )
        .map_err(failed)?;
        for script in SCRIPTS {
            fs::copy(plan.join(script), to.join(script)).map_err(failed)?;
        }
        let sources = to.join("src");
        let summary = plan.join(self.language).join(SUMMARY);
        let relative = |path: &Path| -> PathBuf { path.strip_prefix(root).unwrap_or(path).into() };
        let here = Copy {
            root,
            book: self,
            books,
            sources: &sources,
        };
        here.page(&relative(&summary), Path::new(SUMMARY))?;
        for page in &self.pages {
            here.page(page, page)?;
        }
        Ok(())
    }
}

/// Copying pages into the sources of a book.
struct Copy<'a> {
    root: &'a Path,
    book: &'a Book,
    books: &'a [Book],
    sources: &'a Path,
}

impl Copy<'_> {
    fn page(&self, from: &Path, to: &Path) -> Result<(), String> {
        let text = read(&self.root.join(from))?;
        let mut copy = String::new();
        let mut done = 0;
        for link in page::links(&text) {
            copy += &text[done..link.place.start];
            copy += &self.link(from, to, &text[link.place.clone()], &link)?;
            done = link.place.end;
        }
        copy += &text[done..];
        write(&self.sources.join(to), copy.as_bytes())
    }

    /// A link as the copy of the page needs it.
    fn link(
        &self,
        from: &Path,
        to: &Path,
        whole: &str,
        link: &page::Link<'_>,
    ) -> Result<String, String> {
        let Some(target) = below(self.root, &self.root.join(from), link.target) else {
            return Ok(whole.to_owned());
        };
        let up = "../".repeat(to.components().count() - 1);
        let anchor = link.target.find('#').map_or("", |at| &link.target[at..]);
        let begin = &whole[..whole.rfind("](").expect("a link has a target")];
        let replaced = |target: &str| format!("{begin}]({target}{anchor})");
        if self.book.pages.contains(&target) {
            // The summary names sources, a page the pages that mdBook makes: README.md becomes index.html.
            let name = if to == Path::new(SUMMARY) {
                target.display().to_string()
            } else {
                html_name(&target)
            };
            return Ok(replaced(&format!("{up}{name}")));
        }
        if let Some(other) = self.books.iter().find(|book| book.pages.contains(&target)) {
            return Ok(replaced(&format!(
                "{up}../{}/{}",
                other.language,
                html_name(&target)
            )));
        }
        let file = self.root.join(&target);
        if file.is_dir() {
            // A book has no listings of directories.
            return Ok(link.text.to_owned());
        }
        let bytes = fs::read(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        // A Markdown file that is no page would not be copied: it gets another name.
        let is_page = (target.extension()).is_some_and(|extension| extension == "md");
        let name = format!("{}{}", target.display(), if is_page { ".txt" } else { "" });
        write(&self.sources.join(&name), &bytes)?;
        Ok(format!("{begin}]({up}{name})"))
    }
}

/// What a relative link of a page leads to, relative to the root; `None` for the web.
fn below(root: &Path, page: &Path, target: &str) -> Option<PathBuf> {
    let path = normalized(&links::target_of(page, target)?);
    path.strip_prefix(root).ok().map(Path::to_owned)
}

/// The page that mdBook makes of a Markdown file.
fn html_name(page: &Path) -> String {
    let name = match page.file_name() {
        Some(name) if name == "README.md" => page.with_file_name("index.html"),
        _ => page.with_extension("html"),
    };
    name.display().to_string()
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), String> {
    let directory = path.parent().expect("a file is in a directory");
    fs::create_dir_all(directory)
        .and_then(|()| fs::write(path, bytes))
        .map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use xtask::scratch::Scratch;

    #[test]
    fn links_of_a_copy_lead_to_pages_files_and_the_other_book() {
        let root = xtask::workspace_root();
        let books = books(root).expect("every page is in a book");
        let scratch = Scratch::new("book").expect("a directory");
        for book in &books {
            book.write(root, &books, &scratch.0.join(book.language))
                .expect("sources");
        }
        let text = |name: &str| fs::read_to_string(scratch.0.join(name)).expect(name);
        assert!(text("en/src/SUMMARY.md").contains("](docs/errors.md)"));
        assert!(text("en/src/README.md").contains("[中文](../zh-CN/README.zh-CN.html)"));
        let first = text("en/src/docs/tutorial/1-lo_rc_send.md");
        assert!(
            first.contains("](../../examples/rust/lo_rc_send.rs)"),
            "{first}"
        );
        assert!(
            first.contains("](../../docs/tutorial/2-rc_test.html)"),
            "{first}"
        );
        assert!(text("en/src/examples/rust/lo_rc_send.rs").contains("fn main"));
        let ninth = text("en/src/docs/tutorial/9-datagrams.md");
        assert!(
            ninth.contains("](../../docs/tutorial/index.html)"),
            "{ninth}"
        );
        let chinese = text("zh-CN/src/docs/zh-CN/ci.md");
        assert!(chinese.contains("](../../../en/docs/ci.html)"), "{chinese}");
    }
}
