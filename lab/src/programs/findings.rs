//! What the check finds in programs of others: each finding must be known.

use std::collections::BTreeSet;

use super::session::Session;

/// A line of `roci run --check-json`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    /// The name of the rule.
    rule: String,
    line: String,
}

impl Finding {
    pub(super) fn parse(line: &str) -> Option<Self> {
        // A quotation mark inside of a text has a backslash before it.
        let (_, rest) = line.split_once("\"rule\":\"")?;
        let (rule, _) = rest.split_once('"')?;
        Some(Self {
            rule: rule.to_owned(),
            line: line.to_owned(),
        })
    }
}

/// The findings of programs, by the beginning of their names. docs/check.md says why they are reported.
const KNOWN: &[(&str, &[&str])] = &[
    ("ib_", &["buffer-changed", "shared-target", "leak"]),
    ("ibv_", &["shared-target"]),
    ("ibv_srq", SHARED_BUFFER),
    ("ibv_xsrq", SHARED_BUFFER),
    ("ucmatose", &["shared-target"]),
    ("udaddy", &["shared-target"]),
    ("qperf", &["leak", "never-polled", "shared-target"]),
    ("cmtime", &["leak"]),
    ("rdma_xserver", &["leak"]),
    ("mckey", &["never-polled", "shared-target"]),
    ("rstream", &["never-polled"]),
    ("riostream", &["never-polled"]),
    ("ucp_", OF_UCX),
    ("ucx_", OF_UCX),
    ("ucx_perftest", &["buffer-changed"]),
    ("NIXL", OF_UCX),
    ("ring.", OF_UCX),
    ("ring.openmpi", &["destroyed-with-sends"]),
    ("shmem.", OF_UCX),
    ("NetPIPE", OF_UCX),
    ("HPC Challenge", OF_UCX),
    ("ScaLAPACK", OF_UCX),
    ("Open MPI of PyPI", OF_UCX),
    ("MPICH of PyPI", OF_UCX),
    ("mpi", OF_UCX),
    ("R, Rmpi", OF_UCX),
    ("fi_pingpong", &["shared-target"]),
    ("DLSlime", &["leak", "shared-target"]),
    ("qemu", &["buffer-changed"]),
    ("tgtd", &["leak"]),
    ("dtest", &["too-many-receives"]),
    ("rrddmma", &["region-in-use", "never-polled"]),
    ("sideway", &["shared-target", "leak"]),
    ("rdma-sys", &["leak"]),
    ("rdma-mummy-sys", &["leak"]),
];

/// The findings of programs whose queue pairs send from and receive into the same memory.
const SHARED_BUFFER: &[&str] = &[
    "overlapping-requests",
    "destroyed-with-sends",
    "never-polled",
];

/// The findings of UCX, in every program that uses it.
const OF_UCX: &[&str] = &["memory-unmapped", "never-polled"];

/// Shows the findings of a run. Returns those that are not known.
pub(crate) fn judge(session: &Session<'_>) -> Option<String> {
    let findings = session.findings();
    let rules: BTreeSet<_> = findings.iter().map(|it| &it.rule).collect();
    rules
        .iter()
        .for_each(|rule| println!("                  found: {rule}"));
    let mut unknown: Vec<&str> = Vec::new();
    for rule in rules {
        if !is_known(session.row.program, rule) {
            let of_rule = findings.iter().find(|it| it.rule == *rule);
            unknown.extend(of_rule.map(|it| it.line.as_str()));
        }
    }
    let listed = "the check found what docs/check.md does not list";
    (!unknown.is_empty()).then(|| format!("{listed}:\n{}", unknown.join("\n")))
}

fn is_known(program: &str, rule: &str) -> bool {
    let mut of_program = KNOWN.iter().filter(|(name, _)| program.starts_with(name));
    of_program.any(|(_, rules)| rules.contains(&rule))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_of_another_rule_is_not_known() {
        assert!(is_known("ib_send_bw", "shared-target"));
        assert!(!is_known("ib_send_bw", "missing-fence"));
        assert!(!is_known("rping", "shared-target"));
    }

    #[test]
    fn the_rule_of_a_line_is_found() {
        let line = r#"{"about":"a \"rule\":\"x\"","level":"note","rule":"leak","what":""}"#;
        assert_eq!(Finding::parse(line).expect("a finding").rule, "leak");
        assert_eq!(Finding::parse("{"), None);
    }

    /// The docs name each rule that is known.
    #[test]
    fn the_docs_list_every_known_rule() {
        let docs = include_str!("../../../docs/check.md");
        let (_, table) = docs.split_once("| program | finding |").expect("the table");
        for rule in KNOWN.iter().flat_map(|(_, rules)| *rules) {
            assert!(table.contains(&format!("`{rule}`")), "{rule}");
        }
    }
}
