//! One process at several addresses, with the same block of numbers at each.

use std::net::IpAddr;

use super::join::Wanted;
use super::{JoinError, Member, NumberBlock, RuntimeDirectory};

/// How many blocks of one size are tried before smaller ones.
const ATTEMPTS_PER_SIZE: usize = 8;

/// Joins the members of each of the addresses.
///
/// A queue pair can be reached at all addresses of its device, so its number must belong to this
/// process at each of them: all members get the same block.
pub fn join_all(addresses: &[IpAddr]) -> Result<Vec<Member>, JoinError> {
    join_all_in(&RuntimeDirectory::of_user()?, addresses)
}

/// As [`join_all`], for members that use this runtime directory.
pub fn join_all_in(
    directory: &RuntimeDirectory,
    addresses: &[IpAddr],
) -> Result<Vec<Member>, JoinError> {
    let Some((first, others)) = addresses.split_first() else {
        return Ok(Vec::new());
    };
    // Each attempt gets another block at the first address. If the other addresses have many
    // members, only small blocks may be free there.
    let sizes = (NumberBlock::LEAST_BITS..=NumberBlock::MAX_BITS).rev();
    for bits in sizes.flat_map(|bits| [bits; ATTEMPTS_PER_SIZE]) {
        let member = Member::join_as(directory, *first, Wanted::AtMost(bits))?;
        let block = Wanted::Exactly(member.block());
        let joined = others
            .iter()
            .map(|address| Member::join_as(directory, *address, block))
            .collect::<Result<Vec<_>, _>>();
        match joined {
            Ok(mut members) => {
                members.insert(0, member);
                return Ok(members);
            }
            Err(JoinError::BlockTaken) => {}
            Err(error) => return Err(error),
        }
    }
    Err(JoinError::BlockTaken)
}

/// Joins the members of each of the addresses with a part of the block that another member of this process has there. Packets
/// reach that one until [`Member::begin_service`].
pub fn join_part(addresses: &[IpAddr], part: NumberBlock) -> Result<Vec<Member>, JoinError> {
    let directory = RuntimeDirectory::of_user()?;
    let join = |address: &IpAddr| Member::join_as(&directory, *address, Wanted::Part(part));
    addresses.iter().map(join).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_block_is_tried_when_one_is_taken_at_another_address() {
        let [low, high, ..] = std::process::id().to_le_bytes();
        let addresses = [4, 5].map(|last| IpAddr::from([127, 192 | high & 63, low, last]));
        let path = std::env::temp_dir().join(format!("roci-several-{}", std::process::id()));
        let directory = RuntimeDirectory::at(&path).unwrap();
        let bits = NumberBlock::MAX_BITS;
        // Every other block is taken.
        let taken: Vec<_> = (2..62)
            .step_by(2)
            .map(|index| NumberBlock::new(index << bits, bits).unwrap())
            .map(|block| Member::join_as(&directory, addresses[1], Wanted::Exactly(block)))
            .map(Result::unwrap)
            .collect();
        for _ in 0..12 {
            let members = join_all_in(&directory, &addresses).unwrap();
            let [first, second] = [0, 1].map(|at: usize| members[at].block());
            assert_eq!(first, second);
            assert!(taken.iter().all(|it| !it.block().overlaps(first)));
        }
        drop(taken);
        std::fs::remove_dir_all(path).unwrap();
    }
}
