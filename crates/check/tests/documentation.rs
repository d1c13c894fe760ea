//! The documentation of the rules.

use check::{Level, Rule};

#[test]
fn every_rule_is_documented_with_its_level() {
    let page = include_str!("../../../docs/check.md");
    for rule in Rule::ALL {
        let level = match rule.level() {
            Level::Error => "error",
            Level::Note => "note",
        };
        let row = format!("| `{}` | {level} |", rule.name());
        assert!(page.contains(&row), "docs/check.md lacks {row}");
    }
}
