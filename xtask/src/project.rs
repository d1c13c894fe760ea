//! What packages say about the project, from the one place where it is set: `[workspace.package]` of Cargo.toml.

const MANIFEST: &str = include_str!("../../Cargo.toml");

/// What stands in the place of the owner, and how an address ends that nobody has, until the project has a public home.
const PLACEHOLDERS: [&str; 2] = ["/OWNER/", ".invalid>"];

/// The value of a key, such as `repository`.
pub fn value(key: &str) -> &'static str {
    let (_, table) = MANIFEST
        .split_once("\n[workspace.package]\n")
        .expect("the manifest has the table");
    let mut lines = table.lines().take_while(|line| !line.starts_with('['));
    let value = lines.find_map(|line| line.strip_prefix(key)?.strip_prefix(" = "));
    value
        .unwrap_or_else(|| panic!("[workspace.package] has no {key}"))
        .trim_matches(['[', ']', '"'])
}

/// Who answers for the packages, with an address: the first of the authors.
pub fn maintainer() -> &'static str {
    let authors = value("authors");
    authors.split("\", \"").next().unwrap_or(authors)
}

/// Says which values must be set before a package is given to others.
pub fn reminder() -> Option<String> {
    let keys = ["repository", "homepage", "documentation", "authors"];
    let is_unset = |key: &&str| PLACEHOLDERS.iter().any(|it| value(key).contains(it));
    let unset: Vec<_> = keys.into_iter().filter(is_unset).collect();
    (!unset.is_empty()).then(|| {
        format!(
            "before you publish it, set {} in [workspace.package] of Cargo.toml",
            unset.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_that_cargo_reads() {
        assert_eq!(value("version"), env!("CARGO_PKG_VERSION"));
        assert_eq!(value("license"), "MIT OR Apache-2.0");
        assert!(env!("CARGO_PKG_AUTHORS").starts_with(maintainer()));
        assert!(maintainer().ends_with('>'), "{}", maintainer());
    }
}
