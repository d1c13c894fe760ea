//! Lists the processes that use an address, for tools, without joining.

use std::net::IpAddr;

use wire::Qpn;

use super::join_error::JoinError;
use super::number_block::NumberBlock;
use super::registry::Registry;
use super::runtime_directory::RuntimeDirectory;

/// A member of an address: one lane of an open device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedMember {
    /// Its process id.
    pub pid: u32,
    /// The services that it listens for, or has reserved.
    pub services: Vec<u64>,
    /// Its queue pair numbers.
    block: NumberBlock,
}

impl ListedMember {
    /// Whether a queue pair number is one of its numbers.
    #[must_use]
    pub fn owns(&self, number: Qpn) -> bool {
        self.block.contains(number)
    }
}

/// The members of an address whose processes run. This does not affect them.
pub fn list_members(address: IpAddr) -> Result<Vec<ListedMember>, JoinError> {
    let directory = RuntimeDirectory::of_user().map_err(JoinError::from);
    let listed = directory.and_then(|it| list_members_in(&it, address));
    listed.map_err(JoinError::with_limit)
}

fn list_members_in(
    directory: &RuntimeDirectory,
    address: IpAddr,
) -> Result<Vec<ListedMember>, JoinError> {
    let table = Registry::new(directory.path(), address).read()?;
    let living = (table.members.iter()).filter(|it| !it.withdrawn && it.process.is_alive());
    let present = living.map(|member| {
        let services = table.listeners.iter();
        let services = services.filter(|it| it.block == member.block);
        ListedMember {
            pid: member.process.pid,
            services: services.map(|it| it.service).collect(),
            block: member.block,
        }
    });
    Ok(present.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sharing::Member;

    #[test]
    fn lists_members_and_their_services() {
        let name = format!("roci-present-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let directory = RuntimeDirectory::at(&path).unwrap();
        let address = IpAddr::from([127, 91, 3, 7]);
        assert_eq!(list_members_in(&directory, address).unwrap(), []);
        let member = Member::join_in(&directory, address).unwrap();
        member.claimant().claim(0x0106_1c06).unwrap();
        let listed = list_members_in(&directory, address).unwrap();
        let [only] = &listed[..] else {
            panic!("{listed:?}")
        };
        assert_eq!(only.pid, std::process::id());
        assert_eq!(only.services, [0x0106_1c06]);
        let number = member.block().first();
        assert!(only.owns(Qpn::new(number)) && !only.owns(Qpn::new(number ^ 0x80_0000)));
        let mut leaving = Member::join_in(&directory, address).unwrap();
        assert_eq!(list_members_in(&directory, address).unwrap().len(), 2);
        leaving.withdraw();
        assert_eq!(list_members_in(&directory, address).unwrap().len(), 1);
        drop((leaving, member));
        assert_eq!(list_members_in(&directory, address).unwrap(), []);
        std::fs::remove_dir_all(&path).unwrap();
    }
}
