//! Whether the crates can be published: they are packaged, and their dependencies and their API are
//! checked by tools, where these are installed.
//!
//! Nothing here uses the network, so that a step of the test never fails because of it.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use xtask::command::{CommandLine, cargo};

/// What a page of the registry shows, and what its search uses.
const REQUIRED: [&str; 8] = [
    "description",
    "keywords",
    "categories",
    "readme",
    "include.workspace",
    "license.workspace",
    "repository.workspace",
    "homepage.workspace",
];

/// What cargo-deny checks without a database from the network.
const DENY: &str =
    "deny --offline --all-features check --hide-inclusion-graph licenses bans sources";

/// Which crates cargo-deny reads; it fails if one of them is not on this machine.
const METADATA: &str = "metadata --offline --locked --all-features --format-version 1";

/// The step has no needs: it prints what it leaves out.
pub(crate) fn missing() -> Option<String> {
    None
}

/// Packages and checks everything that is published.
///
/// Cargo takes an unpacked crate of the same version for unchanged, also when it verifies a package. So
/// only `cargo publish` builds the packages; a second run here would build old ones.
pub(crate) fn check(root: &Path) -> Result<(), String> {
    let packages = published(root)?;
    let names: Vec<_> = packages.iter().map(|name| format!("-p {name}")).collect();
    let names = names.join(" ");
    cargo(
        root,
        &format!("package --offline --allow-dirty --quiet --no-verify {names}"),
    )?;
    check_dependencies(root)?;
    check_api(root, &names)
}

/// The names of the packages that are published; fails if one of them lacks something.
fn published(root: &Path) -> Result<Vec<String>, String> {
    let directory = root.join("crates");
    let entries = fs::read_dir(&directory).map_err(|error| format!("crates: {error}"))?;
    let mut names = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| error.to_string())?.path();
        names.extend(published_package(&path.join("Cargo.toml"))?);
    }
    names.sort_unstable();
    Ok(names)
}

fn published_package(manifest: &Path) -> Result<Option<String>, String> {
    let complaint = |what: &str| format!("{}: {what}", manifest.display());
    let text = fs::read_to_string(manifest).map_err(|error| complaint(&error.to_string()))?;
    if has(&text, "publish") {
        return Ok(None);
    }
    if let Some(key) = REQUIRED.iter().find(|key| !has(&text, key)) {
        return Err(complaint(&format!(
            "add `{key}`, or `publish = false` if this crate is only for the repository"
        )));
    }
    let name = value(&text, "name").ok_or_else(|| complaint("no name"))?;
    Ok(Some(name.trim_matches('"').to_owned()))
}

fn has(manifest: &str, key: &str) -> bool {
    value(manifest, key).is_some()
}

/// The first value of a key, as it is written.
fn value<'a>(manifest: &'a str, key: &str) -> Option<&'a str> {
    let mut values = manifest
        .lines()
        .filter_map(|line| line.strip_prefix(key)?.strip_prefix(" = "));
    values.next()
}

/// Licences, sources and versions of the dependencies, as `deny.toml` allows them.
fn check_dependencies(root: &Path) -> Result<(), String> {
    if !CommandLine::cargo("deny --version").works(root) {
        println!("left out: cargo-deny is not installed (`cargo install --locked cargo-deny`)");
        return Ok(());
    }
    if !CommandLine::cargo(METADATA).works(root) {
        println!("left out: cargo-deny reads crates that are not here (`cargo fetch`)");
        return Ok(());
    }
    cargo(root, DENY)?;
    if !advisories().is_some_and(|directory| directory.is_dir()) {
        println!("left out: no database of advisories (`cargo deny fetch`)");
        return Ok(());
    }
    cargo(
        root,
        "deny --offline --all-features check --disable-fetch advisories",
    )
}

/// Where cargo-deny keeps its database.
fn advisories() -> Option<PathBuf> {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(Path::new(&env::var_os("HOME")?).join(".cargo")))?;
    Some(home.join("advisory-dbs"))
}

/// Fails if the API lacks something that the last release had, unless the version allows that.
fn check_api(root: &Path, names: &str) -> Result<(), String> {
    if !CommandLine::cargo("semver-checks --version").works(root) {
        let install = "cargo install --locked cargo-semver-checks";
        println!("left out: cargo-semver-checks is not installed (`{install}`)");
        return Ok(());
    }
    let Some(release) = last_release(root) else {
        println!("left out: cargo-semver-checks needs the tag of a release, such as v0.1.0");
        return Ok(());
    };
    // It reads libraries only, and `roci` is a program.
    let names = names.replace("-p roci ", "");
    let check = format!("semver-checks --all-features --baseline-rev {release} {names}");
    let command = CommandLine::cargo(&check).env("CARGO_NET_OFFLINE", "true");
    println!("$ {command}");
    match command.run(root) {
        Ok(true) => Ok(()),
        Ok(false) => Err(format!("`{command}` failed")),
        Err(error) => Err(format!("`{command}` can't be started: {error}")),
    }
}

/// The newest tag that names a version.
fn last_release(root: &Path) -> Option<String> {
    let asked = std::process::Command::new("git")
        .args(["describe", "--tags", "--abbrev=0", "--match", "v[0-9]*"])
        .current_dir(root)
        .output();
    let output = asked.ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_the_api_and_the_command_need_is_published() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let names = published(&root).expect("the manifests are complete");
        let expected = [
            "roci",
            "rocinante",
            "rocinante-abi",
            "rocinante-check",
            "rocinante-cm",
            "rocinante-driver",
            "rocinante-engine",
            "rocinante-errors",
            "rocinante-explain",
            "rocinante-host",
            "rocinante-macros",
            "rocinante-net",
            "rocinante-statistics",
            "rocinante-system",
            "rocinante-wire",
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn every_published_crate_has_a_readme_and_both_licences() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
        for entry in fs::read_dir(root).expect("the directory is there") {
            let directory = entry.expect("it can be read").path();
            let package = published_package(&directory.join("Cargo.toml")).expect("complete");
            for file in ["README.md", "LICENSE-MIT", "LICENSE-APACHE"] {
                let there = directory.join(file).is_file();
                assert!(
                    there || package.is_none(),
                    "{}: {file}",
                    directory.display()
                );
            }
        }
    }

    #[test]
    fn a_manifest_that_lacks_a_field_is_rejected() {
        let directory = env::temp_dir().join(format!("roci-manifest-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("a directory can be made");
        let manifest = directory.join("Cargo.toml");
        let text = "[package]\nname = \"new\"\ndescription = \"x\"\n";
        fs::write(&manifest, text).expect("a file can be written");
        let complaint = published_package(&manifest).expect_err("keywords are missing");
        assert!(complaint.contains("add `keywords`"), "{complaint}");
        fs::write(&manifest, format!("{text}publish = false\n")).expect("a file can be written");
        assert_eq!(published_package(&manifest), Ok(None));
        fs::remove_dir_all(&directory).expect("the directory can be removed");
    }
}
