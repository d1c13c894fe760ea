//! The library exports what its table says, and the table says what rdma-core exports.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use rocinante_c::symbols::{OPERATIONS, Status, Symbol, libibverbs, librdmacm};

use crate::releases::{self, RELEASES};
use crate::support;

/// The versioned symbols that a library defines, as `name@@node`; nothing without binutils.
fn exported(library: &Path) -> Option<BTreeSet<String>> {
    let output = Command::new("nm")
        .args(["--dynamic", "--defined-only", "--with-symbol-versions"])
        .arg(library)
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).expect("names are ASCII");
    let names = text
        .lines()
        .filter_map(|line| line.split_whitespace().last());
    // A node is a symbol too, in its own version.
    let is_function = |name: &&str| {
        name.split_once('@')
            .is_some_and(|(name, node)| name != node.trim_start_matches('@'))
    };
    Some(names.filter(is_function).map(str::to_owned).collect())
}

/// Each symbol in each of its nodes, as `name@node`.
fn ours() -> BTreeSet<String> {
    let symbols = libibverbs().iter().chain(librdmacm());
    symbols.flat_map(full_names).collect()
}

fn full_names(symbol: &Symbol) -> impl Iterator<Item = String> {
    let nodes = symbol.nodes.iter();
    nodes.map(|node| format!("{}@{node}", symbol.name))
}

/// The same without the mark of the version that programs are linked with today.
fn without_mark(names: &BTreeSet<String>) -> BTreeSet<String> {
    names.iter().map(|name| name.replace("@@", "@")).collect()
}

#[test]
fn the_library_exports_its_table() {
    let Some(exported) = exported(&support::library()) else {
        return println!("left out: needs nm of binutils");
    };
    let marked = |symbol: &&Symbol| symbol.is_default;
    for symbol in libibverbs().iter().chain(librdmacm()).filter(marked) {
        let node = symbol.nodes.last().expect("each has a node");
        let name = format!("{}@@{node}", symbol.name);
        assert!(exported.contains(&name), "{name} is in the table only");
    }
    let exported = without_mark(&exported);
    for name in ours() {
        assert!(exported.contains(&name), "{name} is in the table only");
    }
}

#[test]
fn every_symbol_of_every_release_of_rdma_core_is_there() {
    let ours = ours();
    let exports = releases::exports();
    for release in RELEASES {
        let missing: Vec<String> = exports
            .iter()
            .filter(|export| (export.first..=export.last).contains(&release))
            .map(|export| format!("{}@{}", export.name, export.node))
            .filter(|name| !ours.contains(name))
            .collect();
        assert!(missing.is_empty(), "release {release} exports {missing:?}");
    }
}

#[test]
fn no_symbol_is_unknown_to_every_release() {
    let known = releases::spans();
    for symbol in libibverbs().iter().chain(librdmacm()) {
        let family = releases::family(symbol.nodes[0]).to_owned();
        let name = (symbol.name.to_owned(), family);
        assert!(known.contains_key(&name), "{name:?} is ours only");
    }
}

#[test]
fn nothing_that_the_distribution_exports_is_missing() {
    let ours = ours();
    let directory = format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    for name in ["libibverbs.so.1", "librdmacm.so.1"] {
        let library = Path::new(&directory).join(name);
        let theirs = match exported(&library) {
            Some(theirs) if library.exists() => without_mark(&theirs),
            _ => return println!("left out: needs {name} and nm of binutils"),
        };
        let missing: Vec<_> = theirs.difference(&ours).collect();
        assert!(missing.is_empty(), "{name} exports {missing:?}");
    }
}

#[test]
fn every_node_of_the_table_is_in_the_version_script() {
    let script = include_str!("../../versions.map");
    for symbol in libibverbs().iter().chain(librdmacm()) {
        for node in symbol.nodes {
            assert!(script.contains(&format!("{node} {{")), "{node} is missing");
        }
    }
}

fn describe(status: Status) -> (&'static str, &'static str) {
    match status {
        Status::Real => ("real", ""),
        Status::Unsupported(why) => ("unsupported", why),
        Status::Stub(why) => ("stub", why),
    }
}

fn table(title: &str, symbols: &[Symbol]) -> String {
    let mut rows: Vec<&Symbol> = symbols.iter().collect();
    rows.sort_by_key(|symbol| (symbol.name, !symbol.is_default, symbol.nodes));
    let releases = releases::spans();
    let mut text = format!(
        "\n## {title}\n\n| symbol | version | in rdma-core | is | why |\n|---|---|---|---|---|\n"
    );
    for symbol in rows {
        let family = releases::family(symbol.nodes[0]);
        let (first, last) = releases[&(symbol.name.to_owned(), family.to_owned())];
        let (is, why) = describe(symbol.status);
        let name = symbol.name;
        writeln!(
            text,
            "| `{name}` | {family} | {first}–{last} | {is} | {why} |"
        )
        .expect("a string");
    }
    text
}

fn matrix() -> String {
    let mut text = String::from(
        "# What of libibverbs and librdmacm is there\n\n\
         Made from the table in `src/symbols`; do not edit. `ROCI_BLESS=1 cargo test -p capi --test \
         capi` makes it anew.\n\n\
         *Real* does what it does in rdma-core. *Unsupported* fails, with EOPNOTSUPP or as stated. A *stub* \
         exists for the loader and is never of use without the kernel's device file.\n\n\
         The releases are those from 25 to 65 that export the symbol, and all of them have the same of us. \
         rdma-core renames the node IBVERBS_PRIVATE from time to time: it has the number 25 in releases 25 to 32, \
         33 in 33, 34 in 34 to 56, 57 in 57 and 58, 59 in 59 to 63, 64 in 64, and 65 in 65. Each private \
         symbol is in all of these nodes.\n",
    );
    text += &table("libibverbs.so.1", libibverbs());
    text += &table("librdmacm.so.1", librdmacm());
    text += "\n## Functions of the header that have no symbol\n\n| function | is | why |\n|---|---|---|\n";
    for operation in OPERATIONS {
        let (is, why) = describe(operation.status);
        writeln!(text, "| `{}` | {is} | {why} |", operation.name).expect("a string");
    }
    text
}

#[test]
fn the_matrix_is_that_of_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("MATRIX.md");
    let matrix = matrix();
    if std::env::var_os("ROCI_BLESS").is_some() {
        std::fs::write(&path, &matrix).expect("the directory can be written");
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == matrix,
        "MATRIX.md is out of date: run ROCI_BLESS=1 cargo test -p capi --test capi"
    );
}
