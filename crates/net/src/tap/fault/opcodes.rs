//! Finds opcodes by the names that people write.

use std::fmt;

use wire::{Opcode, Transport};

/// A set of opcodes that share a name or the beginning of one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpcodePattern {
    name: String,
    opcodes: Vec<Opcode>,
}

impl OpcodePattern {
    /// The opcodes for a name: those with exactly this name, with or without their service in
    /// front; if there are none, those whose name begins with it. `None` if there are none either.
    pub fn find(name: &str) -> Option<Self> {
        let name = canonical(name);
        let opcodes = if name.is_empty() {
            Vec::new()
        } else {
            find(&name)
        };
        (!opcodes.is_empty()).then_some(OpcodePattern { name, opcodes })
    }

    /// The opcodes that match.
    pub fn opcodes(&self) -> &[Opcode] {
        &self.opcodes
    }

    pub(super) fn matches(&self, byte: u8) -> bool {
        self.opcodes.iter().any(|opcode| opcode.byte() == byte)
    }
}

impl fmt::Display for OpcodePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// The known name that is most similar to `wrong`, if one is similar enough.
pub(super) fn nearest(wrong: &str) -> Option<String> {
    let wrong = canonical(wrong);
    let all = Opcode::ALL.iter().copied();
    let names = all.flat_map(|opcode| [full_name(opcode), short_name(opcode)]);
    let (distance, name) = names
        .map(|name| (distance(&wrong, &name), name))
        .min_by_key(|(distance, _)| *distance)?;
    (distance <= 2.max(wrong.len() / 3)).then_some(name)
}

fn find(name: &str) -> Vec<Opcode> {
    let exact = select(|full, short| full == name || short == name);
    if !exact.is_empty() {
        return exact;
    }
    let beginning = format!("{name}_");
    select(|full, short| full.starts_with(&beginning) || short.starts_with(&beginning))
}

fn select(wanted: impl Fn(&str, &str) -> bool) -> Vec<Opcode> {
    let all = Opcode::ALL.iter().copied();
    all.filter(|&opcode| wanted(&full_name(opcode), &short_name(opcode)))
        .collect()
}

/// Converts to upper case, and maps the names of the specification, the kernel and Wireshark to
/// one.
fn canonical(name: &str) -> String {
    let name = name.to_ascii_uppercase().replace(['-', ' '], "_");
    let words = name.split('_').filter_map(|word| match word {
        "ACK" => Some("ACKNOWLEDGE"),
        "CMP" => Some("COMPARE"),
        "IMMEDIATE" => Some("IMM"),
        "INVALIDATE" => Some("INV"),
        "RDMA" | "WITH" => None,
        word => Some(word),
    });
    words.collect::<Vec<_>>().join("_")
}

/// For example `RC_SEND_ONLY`.
pub(super) fn full_name(opcode: Opcode) -> String {
    opcode.to_string().replace(' ', "_")
}

/// For example `SEND_ONLY`.
fn short_name(opcode: Opcode) -> String {
    match opcode.transport() {
        Transport::Cnp => full_name(opcode),
        transport => full_name(opcode)[transport.to_string().len() + 1..].to_owned(),
    }
}

/// How many characters must be added, removed or replaced to change one text into the other.
pub(super) fn distance(from: &str, to: &str) -> usize {
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in to.bytes().enumerate() {
            let replaced = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opcodes(name: &str) -> Vec<Opcode> {
        OpcodePattern::find(name).expect("a name").opcodes
    }

    #[test]
    fn every_opcode_is_found_by_its_full_name() {
        for &opcode in Opcode::ALL {
            assert_eq!(opcodes(&full_name(opcode)), [opcode]);
        }
    }

    #[test]
    fn a_name_without_service_matches_every_service() {
        use Opcode::{RcSendOnly, UcSendOnly, UdSendOnly, XrcSendOnly};
        let expected = [RcSendOnly, UcSendOnly, UdSendOnly, XrcSendOnly];
        assert_eq!(opcodes("send_only"), expected);
    }

    #[test]
    fn an_exact_name_does_not_match_longer_names() {
        assert_eq!(opcodes("RC_SEND_ONLY"), [Opcode::RcSendOnly]);
    }

    #[test]
    fn a_prefix_matches_all_opcodes_that_start_with_it() {
        let responses = opcodes("RC_READ_RESPONSE");
        assert_eq!(responses.len(), 4);
        assert!(responses.iter().all(|opcode| opcode.is_response()));
        let all_uc = opcodes("UC");
        assert!(all_uc.iter().all(|op| op.transport() == Transport::Uc));
    }

    #[test]
    fn other_spellings_are_understood() {
        assert_eq!(
            opcodes("RC_RDMA_WRITE_ONLY_WITH_IMMEDIATE"),
            [Opcode::RcWriteOnlyImmediate]
        );
        assert_eq!(
            opcodes("ack"),
            [Opcode::RcAcknowledge, Opcode::XrcAcknowledge]
        );
        assert_eq!(opcodes("RC_CMP_SWAP"), [Opcode::RcCompareSwap]);
    }

    #[test]
    fn every_opcode_has_a_name() {
        for name in ["", "_", "WITH", "RC_SEND_ONY", "SENDS"] {
            assert_eq!(OpcodePattern::find(name), None, "{name}");
        }
    }

    #[test]
    fn a_typing_error_finds_the_right_name() {
        assert_eq!(nearest("RC_SEND_ONY").as_deref(), Some("RC_SEND_ONLY"));
        assert_eq!(nearest("RC_WRTE_ONLY").as_deref(), Some("RC_WRITE_ONLY"));
        assert_eq!(nearest("xyz"), None);
    }
}
