//! What each release of rdma-core exports, as facts that the library's table is compared with.

use std::collections::BTreeMap;

/// The releases that `releases.txt` knows.
pub(crate) const RELEASES: std::ops::RangeInclusive<u32> = 25..=65;

/// A symbol in one node, and the releases that have it there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Export {
    pub(crate) name: String,
    pub(crate) node: String,
    pub(crate) first: u32,
    pub(crate) last: u32,
}

/// A row of the file: a node and the releases for which it holds.
struct Span<'a> {
    node: &'a str,
    first: u32,
    last: u32,
}

impl<'a> Span<'a> {
    fn parse(words: &str) -> Option<Span<'_>> {
        let mut words = words.split(' ');
        Some(Span {
            node: words.next()?,
            first: words.next()?.parse().ok()?,
            last: words.next()?.parse().ok()?,
        })
    }

    /// The releases that both have.
    fn and(&self, other: &Span<'_>) -> Option<(u32, u32)> {
        let (first, last) = (self.first.max(other.first), self.last.min(other.last));
        (first <= last).then_some((first, last))
    }
}

/// Every symbol in every node.
pub(crate) fn exports() -> Vec<Export> {
    let lines = include_str!("releases.txt").lines();
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let mut private = Vec::new();
    let mut exports = Vec::new();
    let mut group = None;
    for line in lines {
        if let Some(node) = line.strip_prefix("node ") {
            let node = Span::parse(node).expect("a node and two releases");
            exports.push(register_driver(&node));
            private.push(node);
        } else if let Some(names) = line.strip_prefix("    ") {
            let group: &Span<'_> = group.as_ref().expect("a node is above its symbols");
            for name in names.split_whitespace() {
                exports.extend(in_nodes(name, group, &private));
            }
        } else {
            group = Some(Span::parse(line).expect("a node and two releases"));
        }
    }
    exports
}

/// The function with which a driver of these releases registers itself.
fn register_driver(node: &Span<'_>) -> Export {
    let number = node.node.trim_start_matches("IBVERBS_PRIVATE_");
    Export {
        name: format!("verbs_register_driver_{number}"),
        node: node.node.to_owned(),
        first: node.first,
        last: node.last,
    }
}

fn in_nodes(name: &str, group: &Span<'_>, private: &[Span<'_>]) -> Vec<Export> {
    let export = |node: &str, (first, last)| Export {
        name: name.to_owned(),
        node: node.to_owned(),
        first,
        last,
    };
    if group.node != "private" {
        return vec![export(group.node, (group.first, group.last))];
    }
    private
        .iter()
        .filter_map(|node| Some(export(node.node, node.and(group)?)))
        .collect()
}

/// For each symbol, the releases that have it in one of these nodes: "36–65".
pub(crate) fn spans() -> BTreeMap<(String, String), (u32, u32)> {
    let mut spans = BTreeMap::new();
    for export in exports() {
        let family = family(&export.node).to_owned();
        let span = spans
            .entry((export.name, family))
            .or_insert((export.first, export.last));
        *span = (span.0.min(export.first), span.1.max(export.last));
    }
    spans
}

/// A node, or what all private nodes have in common.
pub(crate) fn family(node: &str) -> &str {
    if node.starts_with("IBVERBS_PRIVATE_") {
        return "IBVERBS_PRIVATE";
    }
    node
}
