//! One process at several addresses, with the same block of numbers at each.

use std::net::IpAddr;

use super::member::Wanted;
use super::{JoinError, Member, NumberBlock, RuntimeDirectory};

/// How often blocks of one size are tried before smaller ones.
const ATTEMPTS_PER_SIZE: usize = 8;

/// Joins those who use each of the addresses.
///
/// A queue pair can be reached at all addresses of its device, so its number must be ours at
/// each of them: all members have the same block.
pub fn join_all(addresses: &[IpAddr]) -> Result<Vec<Member>, JoinError> {
    join_all_in(&RuntimeDirectory::of_user()?, addresses)
}

/// As [`join_all`], for those who meet in this folder.
pub fn join_all_in(
    directory: &RuntimeDirectory,
    addresses: &[IpAddr],
) -> Result<Vec<Member>, JoinError> {
    let Some((first, others)) = addresses.split_first() else {
        return Ok(Vec::new());
    };
    // Every attempt gets another block at the first address. Where many share the others, only small
    // ones may be free there.
    let sizes = (NumberBlock::LEAST_BITS..=NumberBlock::MOST_BITS).rev();
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
