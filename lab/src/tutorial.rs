//! The commands of the README, the tutorial and other pages, run as a reader runs them. The step `style` finds translations with
//! other commands.

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

/// Why the commands can't be run here, if they can't.
pub(crate) fn missing() -> Option<String> {
    debian::missing(&PACKAGES)
}

/// Runs every command.
pub(crate) fn check(root: &Path) -> Result<(), String> {
    let pages = pages(root)?;
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

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}
