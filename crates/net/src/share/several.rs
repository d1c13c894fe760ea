//! One process at several addresses, with the same slice at each.

use std::net::IpAddr;

use super::{JoinError, Member, RuntimeDirectory, Slice};

/// Joins those who use each of the addresses.
///
/// A queue pair can be reached at all addresses of its device, so its number must be in our slice
/// at each of them: all members have the same one.
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
    // Every attempt gets the next free slice at the first address.
    for _ in 0..Slice::COUNT {
        let member = Member::join_in(directory, *first)?;
        let slice = member.slice();
        let joined = others
            .iter()
            .map(|address| Member::join_as(directory, *address, Some(slice)))
            .collect::<Result<Vec<_>, _>>();
        match joined {
            Ok(mut members) => {
                members.insert(0, member);
                return Ok(members);
            }
            Err(JoinError::SliceTaken) => {}
            Err(error) => return Err(error),
        }
    }
    Err(JoinError::Full(*first))
}
