//! Sockets and port shares of a device's addresses.

mod send_backlog;

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU8;
use std::time::Instant;

use cm::Recipient;
use engine::{Now, QpnRange, SharedRoom, Transmit};
use host::{Message, Owner};
use net::fork::Guard;
use net::poll::{Interest, PollSet, is_socket_lost};
use net::port_sharing::{ExitWatch, Member, NumberBlock, ReceivedPacket, join_all, join_part};
use net::socket::{Inbox, Receiver, SendError, Sender, SocketError};
use statistics::PacketPath;
use wire::{Gid, Qpn, ROCE_PORT, Route};

use crate::options::MAX_LANES;
use crate::options::OpenError;
use crate::service_reservations::Services;
use crate::shortcut::Shortcut;
use crate::simulation::{DeviceHandle, Port};
use crate::sockets::send_backlog::SendBacklog;

/// Which sockets to poll. Polling a socket is a system call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum PollScope {
    /// All sockets.
    AllSockets,
    /// The socket that last received packets, and all sockets every [`ALL_SOCKETS_INTERVAL`] polls. For
    /// threads that poll continuously.
    LastActive,
}

/// Every how many polls all sockets are polled.
const ALL_SOCKETS_INTERVAL: u32 = 8;

/// How often a device that closes yields the CPU while packets wait.
const MAX_CLOSING_YIELDS: usize = 1000;

/// This device's sockets and port-sharing members, one for each address.
pub(crate) struct DeviceSockets {
    members: Vec<Member>,
    /// The GID table, with the index in `members` of each entry.
    gids: Vec<(Gid, usize)>,
    /// The multicast groups that queue pairs have joined.
    groups: Vec<Group>,
    /// Whether groups were added or removed.
    poll_sources_changed: bool,
    /// The index of the member that last received packets.
    last_active: usize,
    /// How many polls there were.
    polls: u32,
    /// When the members' maintenance is due.
    maintenance_at: Option<Instant>,
    backlog: SendBacklog,
    /// How many datagrams were received from the sockets of groups.
    group_reads: u64,
    /// Whether the program has closed a socket, or has opened another file under its number.
    socket_lost: bool,
    /// `None` in a simulation, or if the system has no descriptor for it.
    exits: Option<Arc<ExitWatch>>,
    /// In a simulation, the only port; there are no members then.
    simulated: Option<Port>,
}

/// A multicast group, received on every interface address of its family.
struct Group {
    gid: Gid,
    receivers: Vec<Receiver>,
    /// How many queue pairs have joined it.
    users: usize,
}

/// The sockets that a thread sleeps on until a packet arrives, without the lane's lock.
pub(crate) struct PollSources {
    /// Dropped before the descriptors.
    _guard: Guard,
    descriptors: Vec<OwnedFd>,
}

impl PollSources {
    pub(crate) fn add_to<'d>(&'d self, interests: &mut Vec<Interest<'d>>) {
        interests.extend(
            self.descriptors
                .iter()
                .map(|fd| Interest::readable(fd.as_fd())),
        );
    }
}

/// Room in the rings to other processes.
pub(crate) struct RoomInRings<'m> {
    members: &'m mut [Member],
    now: &'m Now,
}

impl SharedRoom for RoomInRings<'_> {
    fn reserve(&mut self, route: &Route, destination: Qpn, bytes: usize) -> Option<&[AtomicU8]> {
        let mut members = self.members.iter_mut();
        let member = members.find(|member| member.address() == route.flow.source)?;
        member.reserve(self.now.get(), route.flow.destination, destination, bytes)
    }
}

impl DeviceSockets {
    /// Joins the addresses of a device, with a part of the numbers that another lane of it has, or with numbers of its own.
    pub(crate) fn open(
        device: &net::interface::Device,
        shortcut: Shortcut,
        part: Option<NumberBlock>,
    ) -> Result<Self, OpenError> {
        let simulated = Port::open();
        let mut members = match &simulated {
            Some(_) => Vec::new(),
            None => join(device, shortcut, part)?,
        };
        let exits = ExitWatch::new().ok().filter(|_| !members.is_empty());
        let exits = exits.map(Arc::new);
        if let Some(exits) = &exits {
            let members = members.iter_mut();
            members.for_each(|member| member.watch_exits(exits));
        }
        let gids = device.gids.iter().map(|entry| entry.gid);
        Ok(Self {
            members,
            gids: gids.zip(0..).collect(),
            groups: Vec::new(),
            poll_sources_changed: false,
            last_active: 0,
            polls: 0,
            maintenance_at: None,
            backlog: SendBacklog::default(),
            group_reads: 0,
            socket_lost: false,
            exits,
            simulated,
        })
    }

    /// The device in its world, if it is simulated.
    pub(crate) fn simulated(&self) -> Option<DeviceHandle> {
        self.simulated.as_ref().map(Port::device)
    }

    /// Whether the simulated host of the device has crashed. The program's objects are not its work any more.
    pub(crate) fn is_cut_off(&self) -> bool {
        self.simulated.as_ref().is_some_and(Port::is_cut_off)
    }

    /// All sockets that receive packets, as one descriptor.
    pub(crate) fn packets(&self) -> io::Result<PollSet> {
        PollSet::over(self.arrival_descriptors())
    }

    fn arrival_descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let groups = self.groups.iter().flat_map(|group| &group.receivers);
        let members = self.members.iter().flat_map(Member::fds);
        members.chain(groups.map(Receiver::as_fd)).collect()
    }

    pub(crate) fn poll_sources(&self) -> io::Result<PollSources> {
        let fds = self.arrival_descriptors();
        let owned = fds.iter().map(BorrowedFd::try_clone_to_owned);
        let descriptors: Vec<OwnedFd> = owned.collect::<io::Result<_>>()?;
        let senders = self.members.iter().map(|member| member.sender().as_fd());
        let all = fds.iter().copied().chain(senders);
        let guard = Guard::new(all.chain(descriptors.iter().map(AsFd::as_fd)));
        Ok(PollSources {
            _guard: guard,
            descriptors,
        })
    }

    /// Joins a multicast group, for one more queue pair.
    pub(crate) fn join(&mut self, gid: Gid) -> Result<(), SocketError> {
        if let Some(group) = self.groups.iter_mut().find(|group| group.gid == gid) {
            group.users += 1;
            return Ok(());
        }
        let Some(address) = gid.ip() else {
            return Ok(());
        };
        if let Some(port) = &self.simulated {
            port.join(gid);
        }
        let same_family = self
            .members
            .iter()
            .map(Member::address)
            .filter(|ours| ours.is_ipv4() == address.is_ipv4());
        let receivers = same_family
            .map(|ours| Receiver::join_group(address, ROCE_PORT, ours))
            .collect::<Result<_, _>>()?;
        self.poll_sources_changed = true;
        self.groups.push(Group {
            gid,
            receivers,
            users: 1,
        });
        Ok(())
    }

    /// Leaves a multicast group, for one queue pair.
    pub(crate) fn leave(&mut self, gid: Gid) {
        if let Some(group) = self.groups.iter_mut().find(|group| group.gid == gid) {
            group.users -= 1;
        }
        let unused = self.groups.extract_if(.., |group| group.users == 0);
        // A thread that sleeps has copies of the descriptors.
        let left =
            unused.map(|mut group| group.receivers.iter_mut().for_each(Receiver::leave_group));
        let changed = left.count() > 0;
        self.poll_sources_changed |= changed;
        if let (Some(port), true) = (&self.simulated, changed) {
            port.leave(gid);
        }
    }

    pub(crate) fn poll_sources_changed(&mut self) -> bool {
        std::mem::take(&mut self.poll_sources_changed)
    }

    pub(crate) fn gids(&self) -> Vec<Gid> {
        self.gids.iter().map(|(gid, _)| *gid).collect()
    }

    /// The queue pair numbers of this device: the same at every address.
    pub(crate) fn numbers(&self) -> QpnRange {
        if let Some(port) = &self.simulated {
            return port.numbers();
        }
        let block = self.members.first().map(Member::block);
        block.map_or_else(QpnRange::default, |block| QpnRange {
            first: block.first(),
            count: 1 << block.bits(),
        })
    }

    /// Whether a queue pair number belongs to this device.
    pub(crate) fn owns(&self, number: Qpn) -> bool {
        if let Some(port) = &self.simulated {
            return port.owns(number);
        }
        (self.members.first()).is_some_and(|member| member.owns(number))
    }

    /// The block of queue pair numbers, which is the same at every address. None in a simulation, or without addresses.
    pub(crate) fn block(&self) -> Option<NumberBlock> {
        self.members.first().map(Member::block)
    }

    /// Leaves a part of the numbers to another lane.
    pub(crate) fn give(&mut self, part: NumberBlock) {
        for member in &mut self.members {
            member.give(part);
        }
    }

    /// Whether a queue pair at this address is one of this device.
    pub(crate) fn is_own(&self, destination: IpAddr, number: Qpn) -> bool {
        let mut members = self.members.iter();
        members.any(|member| member.address() == destination) && self.owns(number)
    }

    /// This device's range of the communication ids: the same at every address. None on a device without
    /// addresses. They belong to the first part of the numbers, which this lane keeps.
    pub(crate) fn id_range(&self) -> Option<cm::IdRange> {
        if let Some(port) = &self.simulated {
            return port.id_range();
        }
        let block = self.block()?;
        let bits = block.bits().saturating_sub(MAX_LANES.ilog2());
        let first = block
            .part(0, bits.max(NumberBlock::LEAST_BITS))
            .unwrap_or(block);
        let (bits, value) = first.prefix();
        cm::IdRange::new(bits, value)
    }

    /// The sending socket of each address.
    pub(crate) fn senders(&self) -> impl Iterator<Item = &Sender> {
        self.members.iter().map(Member::sender)
    }

    /// The UDP source port of each GID, by index.
    pub(crate) fn source_ports(&self) -> Vec<u16> {
        let port = |index: usize| match &self.simulated {
            Some(port) => port.source_port(),
            None => self.members[index].sender().port(),
        };
        self.gids.iter().map(|(_, index)| port(*index)).collect()
    }

    /// Whether the kernel segments batches into packets, at all addresses.
    pub(crate) fn segmentation(&self) -> bool {
        self.members
            .iter()
            .all(|member| member.sender().segmentation())
    }

    pub(crate) fn set_segmentation(&self, on: bool) {
        for member in &self.members {
            member.sender().set_segmentation(on);
        }
    }

    /// The smallest receive buffer, as the kernel counts it.
    pub(crate) fn receive_buffer(&self) -> usize {
        if let Some(port) = &self.simulated {
            return port.receive_buffer();
        }
        let buffers = self.members.iter().map(|member| member.receiver().buffer());
        buffers.min().unwrap_or(0)
    }

    /// Sends the packets of one batch. Never blocks: packets for a full socket or ring wait in the backlog.
    pub(crate) fn send(
        &mut self,
        now: Instant,
        transmit: &Transmit,
        bytes: &mut [u8],
    ) -> Result<(), SendError> {
        if let Some(port) = &self.simulated {
            port.send(transmit, bytes);
            return Ok(());
        }
        if self.backlog.blocks(transmit) {
            self.backlog.push(now, transmit, bytes);
            return Ok(());
        }
        match try_send(&mut self.members, now, transmit, bytes) {
            Err(SendError::Full { sent }) => {
                self.backlog.push(now, transmit, &bytes[sent..]);
                Ok(())
            }
            outcome => outcome,
        }
    }

    /// Memory of other processes in which packets to them can be built, unless packets wait.
    pub(crate) fn shared_room<'m>(&'m mut self, now: &'m Now) -> RoomInRings<'m> {
        let usable = self.backlog.is_empty();
        RoomInRings {
            members: if usable { &mut self.members } else { &mut [] },
            now,
        }
    }

    /// Sends packets that were built in such memory.
    pub(crate) fn commit(&mut self, transmit: &Transmit, bytes: usize) {
        let source = transmit.route.flow.source;
        let member = self.members.iter_mut().find(|it| it.address() == source);
        if let Some(member) = member {
            let (number, segment_size) = (transmit.destination, transmit.segment_size);
            member.commit(&transmit.route, number, segment_size, bytes);
        }
    }

    /// Sends packets that wait, as far as there is room.
    pub(crate) fn retry_backlog(&mut self, now: &Now) {
        if !self.backlog.is_empty() {
            let now = now.get();
            let members = &mut self.members;
            (self.backlog).retry(now, |transmit, bytes| {
                try_send(members, now, transmit, bytes)
            });
        }
    }

    /// Sends packets that wait, for a device that closes. Gives up after about a millisecond.
    pub(crate) fn flush_backlog(&mut self, now: Instant) {
        for _ in 0..MAX_CLOSING_YIELDS {
            self.retry_backlog(&now.into());
            if self.backlog.is_empty() {
                break;
            }
            std::thread::yield_now();
        }
    }

    /// Whether too many packets wait, so that the device must build no more.
    pub(crate) fn is_congested(&self) -> bool {
        self.backlog.is_full()
    }

    /// When to retry packets that wait.
    pub(crate) fn retry_at(&self) -> Option<Instant> {
        self.backlog.retry_at()
    }

    /// Sets whether packets to other processes of this machine go through shared memory.
    pub(crate) fn enable_shortcuts(&mut self, enabled: bool) {
        for member in &mut self.members {
            member.enable_shortcuts(enabled);
        }
    }

    /// How packets reach a queue pair.
    pub(crate) fn packet_path(&self, address: IpAddr, number: Qpn) -> PacketPath {
        let mut members = self.members.iter();
        if members.clone().any(|it| it.address() == address) && self.owns(number) {
            PacketPath::SameDevice
        } else if members.any(|it| it.sends_through_memory(address, number)) {
            PacketPath::SharedMemory
        } else {
            PacketPath::Sockets
        }
    }

    /// Whether this device has sent to another process of this machine that could use shared memory.
    pub(crate) fn has_local_peer(&self) -> bool {
        self.members.iter().any(Member::has_local_peer)
    }

    /// Passes the packets that have arrived to `take`. Returns how many.
    pub(crate) fn receive(
        &mut self,
        now: Instant,
        scope: PollScope,
        inbox: &mut Inbox,
        mut take: impl FnMut(ReceivedPacket<'_>),
    ) -> usize {
        if let Some(port) = &self.simulated {
            return port.receive(take);
        }
        self.polls = self.polls.wrapping_add(1);
        if scope == PollScope::LastActive && !self.polls.is_multiple_of(ALL_SOCKETS_INTERVAL) {
            let Some(member) = self.members.get_mut(self.last_active) else {
                return 0;
            };
            let received = member.poll_last_active(now, inbox, take);
            return count_received(received, &mut self.socket_lost);
        }
        let mut taken = 0;
        for (index, member) in self.members.iter_mut().enumerate() {
            let received = member.receive(now, inbox, &mut take);
            let here = count_received(received, &mut self.socket_lost);
            if here > 0 {
                self.last_active = index;
            }
            taken += here;
        }
        for receiver in self.groups.iter().flat_map(|group| &group.receivers) {
            let Ok(batches) = receiver.receive(inbox) else {
                self.group_reads += 1;
                continue;
            };
            self.group_reads += batches.reads() as u64;
            for batch in batches {
                for packet in batch.packets() {
                    take(ReceivedPacket {
                        route: batch.route,
                        packet,
                        shared: None,
                        has_icrc: batch.has_icrc,
                        forwarded: false,
                    });
                    taken += 1;
                }
            }
        }
        taken
    }

    /// Whether waiting for packets is impossible: the program has closed a socket, or has opened another file under
    /// its number, which may be readable for ever.
    pub(crate) fn has_lost_socket(&self) -> bool {
        self.socket_lost
    }

    /// How often something was read from the descriptors of packets. A program that waits for them may have been
    /// woken by that.
    pub(crate) fn descriptor_reads(&self) -> u64 {
        let members = self.members.iter().map(Member::descriptor_reads);
        members.sum::<u64>() + self.group_reads
    }

    /// Makes the next poll of all sockets include the mailboxes.
    pub(crate) fn poll_mailboxes(&mut self) {
        self.members.iter_mut().for_each(Member::poll_mailbox_next);
    }

    /// Whether other processes send to this one through shared memory.
    pub(crate) fn has_shortcuts(&self) -> bool {
        self.members.iter().any(Member::has_shortcuts)
    }

    /// Prepares to sleep on the poll sources. Returns whether something has arrived meanwhile.
    pub(crate) fn prepare_sleep(&mut self) -> bool {
        let mut arrived = false;
        for member in &mut self.members {
            arrived |= member.prepare_sleep();
        }
        arrived
    }

    /// Whether a thread may sleep on the poll sources: nothing waits in shared memory, and what arrives there next wakes
    /// it.
    pub(crate) fn may_sleep(&mut self) -> bool {
        self.members.iter_mut().all(Member::may_sleep)
    }

    /// Leaves the port shares. Packets in flight may still arrive.
    pub(crate) fn withdraw(&mut self) {
        self.members.iter_mut().for_each(Member::withdraw);
    }

    /// Readable when the process of another member has ended.
    pub(crate) fn exits(&self) -> Option<Arc<ExitWatch>> {
        self.exits.clone()
    }

    /// Repairs the port shares after the process of another member has ended.
    pub(crate) fn handle_exits(&mut self) {
        self.members.iter_mut().for_each(Member::handle_exits);
    }

    /// Runs the members' maintenance if it is due.
    pub(crate) fn maintain(&mut self, now: Instant) {
        let due = self.members.iter_mut().map(|member| member.maintain(now));
        self.maintenance_at = due.min();
    }

    pub(crate) fn maintenance_at(&self) -> Option<Instant> {
        self.maintenance_at
    }

    /// Forwards a message to the process that owns it.
    pub(crate) fn forward(&mut self, message: &Message) -> Owner {
        if let Some(port) = &self.simulated {
            return port.forward(message);
        }
        let route = &message.route;
        let address = route.flow.destination;
        let Some(member) = self.members.iter_mut().find(|it| it.address() == address) else {
            return Owner::Here;
        };
        let owner = match message.recipient {
            Recipient::CommunicationId(id) => match member.owner_of_communication(id.value()) {
                Some(owner) => owner,
                None => return Owner::None,
            },
            Recipient::Listener(service) => {
                let owner = member.listeners().owner(service.value());
                match owner.ok().flatten() {
                    Some(owner) if owner != member.block() => owner,
                    // No other process has reserved it, and no member listens.
                    _ => return Owner::None,
                }
            }
            Recipient::Everyone => {
                member.forward_to_others(Instant::now(), route, &message.packet);
                return Owner::Here;
            }
        };
        member.forward_to(owner, route, &message.packet);
        Owner::Elsewhere
    }

    /// Begins the steering of packets to this lane, which has taken over a part of another one's numbers.
    pub(crate) fn begin_service(&mut self) -> Result<(), OpenError> {
        self.members
            .iter_mut()
            .try_for_each(Member::begin_service)?;
        Ok(())
    }

    /// Reserves services at the addresses of this device.
    pub(crate) fn services(&self) -> Services {
        let claimants = self.members.iter();
        let claimants = claimants.map(|it| (it.address(), it.claimant())).collect();
        Services::new(claimants, self.simulated())
    }
}

/// Joins the other processes of this machine at each address of a device.
fn join(
    device: &net::interface::Device,
    shortcut: Shortcut,
    part: Option<NumberBlock>,
) -> Result<Vec<Member>, OpenError> {
    let addresses: Vec<IpAddr> = device.gids.iter().map(|entry| entry.address).collect();
    let mut members = match part {
        Some(part) => join_part(&addresses, part)?,
        None => join_all(&addresses)?,
    };
    if shortcut != Shortcut::Never {
        members.iter_mut().for_each(Member::allow_shortcuts);
    }
    Ok(members)
}

fn try_send(
    members: &mut [Member],
    now: Instant,
    transmit: &Transmit,
    bytes: &mut [u8],
) -> Result<(), SendError> {
    let source = transmit.route.flow.source;
    let mut members = members.iter_mut();
    let Some(member) = members.find(|member| member.address() == source) else {
        return Ok(());
    };
    let (segment_size, has_icrc) = (transmit.segment_size, transmit.has_icrc);
    member.send(now, &transmit.route, segment_size, has_icrc, bytes)
}

/// A socket that fails has no packets. The sender notices the loss.
fn count_received(received: io::Result<usize>, socket_lost: &mut bool) -> usize {
    received.unwrap_or_else(|error| {
        *socket_lost |= is_socket_lost(&error);
        0
    })
}

#[cfg(test)]
impl DeviceSockets {
    /// The sockets of a loopback address.
    pub(crate) fn at(address: &str) -> Self {
        let device = crate::devices::device(address).expect("a loopback address");
        Self::open(&device, Shortcut::Never, None).expect("it is free")
    }

    /// Makes a packet to this device itself wait, as if the socket were full.
    pub(crate) fn stall(&mut self, now: Instant) {
        let sender = self.members[0].sender();
        let transmit = Transmit {
            queue_pair: Qpn::new(7),
            route: Route::new(sender.flow_to(self.members[0].address())),
            segment_size: 16,
            has_icrc: true,
            destination: Qpn::new(8),
            shared_length: None,
        };
        self.backlog.push(now, &transmit, &[0; 16]);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileTypeExt;
    use std::os::unix::net::UnixDatagram;
    use std::path::PathBuf;
    use std::sync::Arc;
    use std::time::Duration;

    use net::poll::wait;

    use super::*;
    use crate::clock::now;

    /// Another machine may use the same numbers.
    #[test]
    fn a_packet_is_our_own_only_by_address_and_number() {
        let sockets = DeviceSockets::at("127.58.92.3");
        let first = sockets.numbers().first;
        let beyond = first + sockets.numbers().count;
        let (ours, other) = (
            IpAddr::from([127, 58, 92, 3]),
            IpAddr::from([127, 58, 92, 4]),
        );
        assert!(sockets.is_own(ours, Qpn::new(first)));
        assert!(!sockets.is_own(other, Qpn::new(first)));
        assert!(!sockets.is_own(ours, Qpn::new(beyond)));
        let path_to = |address, number| sockets.packet_path(address, Qpn::new(number));
        assert_eq!(path_to(ours, first), PacketPath::SameDevice);
        assert_eq!(path_to(other, first), PacketPath::Sockets);
        assert_eq!(path_to(ours, beyond), PacketPath::Sockets);
    }

    #[test]
    fn maintenance_is_scheduled_again_each_time() {
        let mut sockets = DeviceSockets::at("127.58.92.6");
        let mut at = now();
        for _ in 0..3 {
            sockets.maintain(at);
            let next = sockets.maintenance_at().expect("a deadline");
            assert!(next > at);
            at = next;
        }
    }

    #[test]
    fn a_group_is_received_from_its_first_user_to_its_last() {
        let mut sockets = DeviceSockets::at("127.58.92.1");
        let group = Gid::from(IpAddr::from([239, 1, 2, 3]));
        let alone = sockets.arrival_descriptors().len();
        sockets.join(group).expect("a group");
        assert_eq!(sockets.arrival_descriptors().len(), alone + 1);
        assert!(
            sockets.poll_sources_changed(),
            "threads must watch its socket"
        );
        sockets.join(group).expect("a group");
        sockets.leave(group);
        assert_eq!(sockets.arrival_descriptors().len(), alone + 1);
        assert!(!sockets.poll_sources_changed(), "one queue pair is left");
        sockets.leave(group);
        assert_eq!(sockets.arrival_descriptors().len(), alone);
        assert!(sockets.poll_sources_changed(), "its socket is closed");
    }

    #[test]
    fn the_kernel_stops_receiving_a_group_although_a_thread_still_sleeps_on_its_socket() {
        let mut sockets = DeviceSockets::at("127.58.92.7");
        let [.., high, low] = std::process::id().to_be_bytes();
        let address = [239, 53, high, low];
        let is_received = || {
            let groups = std::fs::read_to_string("/proc/net/igmp").expect("Linux lists them");
            groups.contains(&format!("{:08X}", u32::from_ne_bytes(address)))
        };
        let group = Gid::from(IpAddr::from(address));
        sockets.join(group).expect("a group");
        let sleeps_on = sockets.poll_sources().expect("descriptors");
        assert!(is_received());
        sockets.leave(group);
        assert!(!is_received());
        drop(sleeps_on);
    }

    /// The mailbox of a device at an address that no other device has.
    fn mailbox(driver: &crate::Driver, address: &str) -> PathBuf {
        let sources = driver.lane().poll_sources();
        let socket = sources.descriptors[1].try_clone().expect("a descriptor");
        // It was renamed when it was ready.
        let first_name = UnixDatagram::from(socket).local_addr().expect("a name");
        let first_name = first_name.as_pathname().expect("a path");
        let directory = first_name.parent().expect("a directory");
        let files = directory.read_dir().expect("it is ours");
        let mut paths = files.map(|file| file.expect("it is ours").path());
        let found = paths.find(|path| {
            let name = path.file_name().expect("a name").to_string_lossy();
            let is_socket = path.metadata().is_ok_and(|it| it.file_type().is_socket());
            is_socket && name.starts_with(&format!("{address}@"))
        });
        found.expect("its mailbox")
    }

    /// Any process of the user may send one. A program that has found its descriptor readable may treat the lack of a
    /// notification as an error.
    #[test]
    fn a_wake_up_in_the_mailbox_brings_the_promised_notification() {
        let driver = crate::Driver::without_thread("127.58.92.5");
        let channel = Arc::new(crate::Notifier::new().expect("a descriptor"));
        channel.expose();
        channel.notify(7);
        assert_eq!(driver.take_notification(&channel), Some(7));
        driver.promise_packet_wakeups(&channel, || true);
        let is_readable = || {
            let interest = Interest::readable(channel.expose());
            let ready = wait(&[interest], Some(Duration::ZERO));
            !ready.expect("a descriptor").is_empty()
        };
        // The device has sent itself packets to check its steering.
        while is_readable() {
            assert_eq!(driver.take_notification(&channel), Some(7));
        }
        let path = mailbox(&driver, "127.58.92.5");
        let anyone = UnixDatagram::unbound().expect("a descriptor");
        for _ in 0..4 {
            anyone.send_to(&[], &path).expect("the device listens");
            assert!(is_readable());
            assert_eq!(driver.take_notification(&channel), Some(7));
            assert!(!is_readable());
        }
    }
}
