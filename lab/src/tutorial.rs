//! The commands of the README, the tutorial and other pages, run as a reader runs them; and their
//! translations, which must have the same commands.

mod block;
mod reader;

use std::fs;
use std::path::Path;

use xtask::debian::{self, Package};

use crate::programs;
use block::Block;
use reader::Reader;

/// What the commands need besides our own programs.
const PACKAGES: [Package; 7] = [
    ("gcc", "/usr/bin/cc"),
    ("ibverbs-utils", "/usr/bin/ibv_devinfo"),
    ("rdmacm-utils", "/usr/bin/rping"),
    ("libibverbs-dev", "/usr/include/infiniband/verbs.h"),
    ("librdmacm-dev", "/usr/include/rdma/rdma_cma.h"),
    ("python3-pyverbs", "/usr/lib/python3/dist-packages/pyverbs"),
    ("tcpdump", "/usr/bin/tcpdump"),
];

const FRONT_PAGE: &str = "README.md";
const TUTORIAL: &str = "docs/tutorial";

/// Other pages whose commands are run.
const OTHER_PAGES: [&str; 2] = ["docs/reference.md", "docs/soft-roce.md"];

/// What translated pages are named after: a page `docs/NAME` has its translation in another directory.
const DOCUMENTS: &str = "docs/";

/// Each language that there is a translation to: its front page and its documents.
const TRANSLATIONS: [(&str, &str); 1] = [("README.zh-CN.md", "docs/zh-CN/")];

/// Why the commands can't be run here, if they can't.
pub(crate) fn missing() -> Option<String> {
    debian::missing(&PACKAGES)
}

/// Runs every command; then compares the translations.
pub(crate) fn check(root: &Path) -> Result<(), String> {
    let pages = pages(root)?;
    compare_translations(root, &pages)?;
    debian::install(&PACKAGES)?;
    programs::build(root)?;
    for page in &pages {
        println!("{}", page.name);
        let reader = Reader::new(root)?;
        reader
            .follow(&page.blocks)
            .map_err(|why| format!("{}: {why}", page.name))?;
    }
    Ok(())
}

/// A page and the commands on it.
struct Page {
    name: String,
    blocks: Vec<Block>,
}

impl Page {
    fn read(root: &Path, name: String) -> Result<Self, String> {
        let text = read(&root.join(&name))?;
        let blocks = block::blocks(&text).map_err(|why| format!("{name}: {why}"))?;
        Ok(Self { name, blocks })
    }
}

/// The front page, then the tutorial in its order, then the others.
fn pages(root: &Path) -> Result<Vec<Page>, String> {
    let directory = root.join(TUTORIAL);
    let files = fs::read_dir(&directory).map_err(|error| format!("{TUTORIAL}: {error}"))?;
    let names = files.flatten().map(|entry| entry.file_name());
    let mut names: Vec<_> = names
        .filter_map(|name| name.into_string().ok())
        .filter(|name| name.ends_with(".md"))
        .collect();
    // The overview before the numbered pages.
    names.sort_by_key(|name| (name != FRONT_PAGE, name.clone()));
    let paths = names.iter().map(|name| format!("{TUTORIAL}/{name}"));
    [FRONT_PAGE.to_owned()]
        .into_iter()
        .chain(paths)
        .chain(OTHER_PAGES.map(str::to_owned))
        .map(|name| Page::read(root, name))
        .collect()
}

fn compare_translations(root: &Path, pages: &[Page]) -> Result<(), String> {
    let pairs = TRANSLATIONS.iter().flat_map(|translation| {
        pages
            .iter()
            .map(move |page| (page, translated(&page.name, *translation)))
    });
    let findings: Vec<_> = pairs
        .filter_map(|(page, name)| compare(root, page, name).err())
        .collect();
    if findings.is_empty() {
        Ok(())
    } else {
        Err(findings.join("\n"))
    }
}

/// Where the translation of a page is.
fn translated(page: &str, (front_page, documents): (&str, &str)) -> String {
    match page.strip_prefix(DOCUMENTS) {
        Some(file) => format!("{documents}{file}"),
        None => front_page.to_owned(),
    }
}

fn compare(root: &Path, page: &Page, translation: String) -> Result<(), String> {
    if !root.join(&translation).exists() {
        println!("left out: {} has no translation {translation}", page.name);
        return Ok(());
    }
    let translation = Page::read(root, translation)?;
    let (ours, theirs) = (&page.blocks, &translation.blocks);
    let differ = |(ours, theirs): &(&Block, &Block)| !ours.has_the_same_commands(theirs);
    if let Some((ours, theirs)) = ours.iter().zip(theirs).find(differ) {
        return Err(format!(
            "{}:{} and {}:{} have other commands: make them the same",
            page.name, ours.line, translation.name, theirs.line
        ));
    }
    if ours.len() == theirs.len() {
        Ok(())
    } else {
        Err(format!(
            "{} has {} command blocks and {} has {}: make them the same",
            page.name,
            ours.len(),
            translation.name,
            theirs.len()
        ))
    }
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}
