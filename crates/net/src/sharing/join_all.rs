//! One process at several addresses, with the same block of numbers at each.

use std::net::IpAddr;

use super::join::Wanted;
use super::registry::{Locked, RegistryError};
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
/// reach that one until [`begin_service`].
pub fn join_part(addresses: &[IpAddr], part: NumberBlock) -> Result<Vec<Member>, JoinError> {
    let directory = RuntimeDirectory::of_user()?;
    let join = |address: &IpAddr| Member::join_as(&directory, *address, Wanted::Part(part));
    addresses.iter().map(join).collect()
}

/// Begins the steering of packets to members that have [joined with a part](join_part) of a block: at all addresses, or at none if
/// that fails. Never waits: returns false if another process changes one of the registries now, so the caller asks again.
pub fn begin_service(members: &mut [Member]) -> Result<bool, JoinError> {
    let locks = members.iter().map(|it| it.registry.lock_if_free());
    let locks: Vec<Locked> = match locks.collect() {
        Err(RegistryError::Locked(_)) => return Ok(false),
        locks => locks?,
    };
    let mut begin = members.iter_mut().zip(&locks);
    let begun = begin.try_for_each(|(member, lock)| member.begin_service(lock));
    if begun.is_err() {
        for (member, lock) in members.iter_mut().zip(&locks) {
            member.end_service(lock);
        }
    }
    begun.map(|()| true)
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, AsRawFd};
    use std::thread;

    use super::*;
    use crate::sys::seccomp::{Forbidden, forbid};

    /// Packets at one address for queue pairs that another lane still has would only be forwarded, but never end to be.
    #[test]
    fn service_begins_at_all_addresses_or_at_none() {
        let [low, high, ..] = std::process::id().to_le_bytes();
        let addresses = [6, 7].map(|last| IpAddr::from([127, 192 | high & 63, low, last]));
        let path = std::env::temp_dir().join(format!("roci-service-{}", std::process::id()));
        let directory = RuntimeDirectory::at(&path).unwrap();
        let whole = join_all_in(&directory, &addresses).unwrap();
        let part = Wanted::Part(whole[0].block().part(1, 12).unwrap());
        let mut members = addresses.map(|it| Member::join_as(&directory, it, part).unwrap());
        let served = |members: &[Member; 2]| {
            members.each_ref().map(|member| {
                let table = member.registry.read().unwrap();
                !member.repair.withdrawn && !table.member(member.block).unwrap().withdrawn
            })
        };
        assert_eq!(served(&members), [false; 2]);

        let changing = members[1].registry.lock().unwrap();
        assert!(!begin_service(&mut members).unwrap());
        drop(changing);
        assert_eq!(served(&members), [false; 2]);

        // The second address can't be steered to.
        let forbidden = Forbidden {
            call: libc::SYS_setsockopt,
            argument: 0,
            value: members[1].receiver.as_fd().as_raw_fd(),
            errno: libc::EPERM,
        };
        thread::scope(|scope| {
            let begin = || {
                forbid(forbidden);
                begin_service(&mut members).unwrap_err()
            };
            scope.spawn(begin).join().unwrap();
        });
        assert_eq!(served(&members), [false; 2]);

        assert!(begin_service(&mut members).unwrap());
        assert_eq!(served(&members), [true; 2]);
        drop((members, whole));
        std::fs::remove_dir_all(path).unwrap();
    }

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
