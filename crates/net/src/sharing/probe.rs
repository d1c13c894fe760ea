//! Probes: how a member learns its index in the group of sockets.
//!
//! A probe is not a RoCE packet: its opcode does not exist, and its transport version is 15.

/// The first four bytes: opcode `0xff`, flags with transport version 15, and a name.
pub(super) const MAGIC: u32 = u32::from_be_bytes([0xff, 0x0f, b'r', b'c']);

/// The offset of the index in a probe.
pub(super) const PLACE_OFFSET: u32 = 4;

/// The length of a probe in bytes: the shortest that the program can't misread.
pub(super) const LENGTH: usize = 16;

/// A packet that is sent to one index. The member that receives it has this index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Probe {
    pub(super) socket_index: u32,
    /// The number of the round. A process that can't read the registry can't guess it.
    pub(super) round: u64,
}

impl Probe {
    pub(super) fn bytes(self) -> [u8; LENGTH] {
        let mut bytes = [0; LENGTH];
        bytes[..4].copy_from_slice(&MAGIC.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.socket_index.to_be_bytes());
        bytes[8..].copy_from_slice(&self.round.to_be_bytes());
        bytes
    }

    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; LENGTH] = bytes.try_into().ok()?;
        let [magic @ .., _, _, _, _, _, _, _, _, _, _, _, _] = *bytes;
        let [_, _, _, _, index @ .., _, _, _, _, _, _, _, _] = *bytes;
        let [_, _, _, _, _, _, _, _, round @ ..] = *bytes;
        (u32::from_be_bytes(magic) == MAGIC).then_some(Self {
            socket_index: u32::from_be_bytes(index),
            round: u64::from_be_bytes(round),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_is_no_packet_and_a_packet_no_probe() {
        let probe = Probe {
            socket_index: 5,
            round: 0x1234_5678_9abc_def0,
        };
        assert_eq!(Probe::parse(&probe.bytes()), Some(probe));
        assert!(wire::Packet::parse(&probe.bytes()).is_err());
        assert_eq!(wire::Opcode::from_byte(probe.bytes()[0]), None);
        assert_eq!(Probe::parse(&[0; LENGTH]), None);
        assert_eq!(Probe::parse(&probe.bytes()[..15]), None);
    }
}
