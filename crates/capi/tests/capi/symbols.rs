//! The library exports what its table says, and the table says what rdma-core exports.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use rocinante_c::symbols::{OPERATIONS, Status, Symbol, libibverbs, librdmacm};

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

fn full_name(symbol: &Symbol) -> String {
    let at = if symbol.is_default { "@@" } else { "@" };
    format!("{}{at}{}", symbol.name, symbol.node)
}

#[test]
fn the_library_exports_its_table() {
    let Some(exported) = exported(&support::library()) else {
        return println!("left out: needs nm of binutils");
    };
    for symbol in libibverbs().iter().chain(librdmacm()) {
        let name = full_name(symbol);
        assert!(exported.contains(&name), "{name} is in the table only");
    }
}

#[test]
fn nothing_that_the_distribution_exports_is_missing() {
    let ours: BTreeSet<String> = libibverbs()
        .iter()
        .chain(librdmacm())
        .map(full_name)
        .collect();
    let folder = Path::new("/usr/lib/x86_64-linux-gnu");
    for name in ["libibverbs.so.1", "librdmacm.so.1"] {
        let library = folder.join(name);
        let theirs = match exported(&library) {
            Some(theirs) if library.exists() => theirs,
            _ => return println!("left out: needs {name} and nm of binutils"),
        };
        let missing: Vec<_> = theirs
            .iter()
            .filter(|name| name.contains("@@"))
            .filter(|name| !ours.contains(*name))
            .collect();
        assert!(missing.is_empty(), "{name} exports {missing:?}");
    }
}

#[test]
fn every_node_of_the_table_is_in_the_version_script() {
    let script = include_str!("../../versions.map");
    for symbol in libibverbs().iter().chain(librdmacm()) {
        let node = format!("{} {{", symbol.node);
        assert!(script.contains(&node), "{} is missing", symbol.node);
    }
}

fn describe(status: Status) -> (&'static str, &'static str) {
    match status {
        Status::Real => ("real", ""),
        Status::Refused(why) => ("refused", why),
        Status::Stub(why) => ("stub", why),
    }
}

fn table(title: &str, symbols: &[Symbol]) -> String {
    let mut rows: Vec<&Symbol> = symbols.iter().collect();
    rows.sort_by_key(|symbol| (symbol.name, !symbol.is_default, symbol.node));
    let mut text = format!("\n## {title}\n\n| symbol | version | is | why |\n|---|---|---|---|\n");
    for symbol in rows {
        let (is, why) = describe(symbol.status);
        writeln!(
            text,
            "| `{}` | {} | {is} | {why} |",
            symbol.name, symbol.node
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
         *Real* does what it does in rdma-core. *Refused* fails, with EOPNOTSUPP or as stated. A *stub* \
         exists for the loader and is never of use without the kernel's device file.\n",
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
        std::fs::write(&path, &matrix).expect("the folder can be written");
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == matrix,
        "MATRIX.md is out of date: run ROCI_BLESS=1 cargo test -p capi --test capi"
    );
}
