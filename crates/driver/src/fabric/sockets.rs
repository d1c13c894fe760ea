//! Sockets, rings and port shares of a device's addresses.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU8;
use std::time::Instant;

use cm::Recipient;
use engine::Transmit;
use host::{Message, Owner};
use net::poll::is_socket_lost;
use net::sharing::{
    ExitWatch, Member, NumberBlock, ReceivedPacket, begin_service, join_all, join_part,
};
use net::socket::{Inbox, Receiver, Sender, SocketError};
use statistics::PacketPath;
use wire::{Gid, Qpn, ROCE_PORT, Route};

use super::{Fabric, PollScope, Sent, Services, Take};
use crate::options::OpenError;
use crate::service_reservations::Reservations;
use crate::shortcut::Shortcut;

/// Every how many polls all sockets are polled.
const ALL_SOCKETS_INTERVAL: u32 = 8;

/// A receive of more packets than this is probably followed by more. A message and an acknowledgement
/// often arrive together, so two do not count.
const MAX_SPARSE: usize = 2;

/// This device's sockets and port-sharing members, one for each address.
pub(super) struct Sockets {
    members: Vec<Member>,
    /// The multicast groups, each received on every interface address of its family.
    groups: Vec<(Gid, Vec<Receiver>)>,
    inbox: Inbox,
    /// For threads that poll continuously: the kernel polls once more for each slot that is left.
    small_inbox: Inbox,
    /// How many packets the last receive returned.
    last_arrived: usize,
    /// The index of the member that last received packets.
    last_active: usize,
    /// How many polls there were.
    polls: u32,
    /// How many datagrams were received from the sockets of groups.
    group_reads: u64,
    socket_lost: bool,
    /// `None` if the system has no descriptor for it.
    exits: Option<Arc<ExitWatch>>,
}

impl Sockets {
    pub(super) fn open(
        device: &net::socket::interface::Device,
        shortcut: Shortcut,
        part: Option<NumberBlock>,
    ) -> Result<Self, OpenError> {
        let addresses: Vec<IpAddr> = device.gids.iter().map(|entry| entry.address).collect();
        let mut members = match part {
            Some(part) => join_part(&addresses, part)?,
            None => join_all(&addresses)?,
        };
        if shortcut != Shortcut::Never {
            members.iter_mut().for_each(Member::allow_shortcuts);
        }
        let exits = ExitWatch::new().ok().filter(|_| !members.is_empty());
        let exits = exits.map(Arc::new);
        if let Some(exits) = &exits {
            let members = members.iter_mut();
            members.for_each(|member| member.watch_exits(exits));
        }
        Ok(Self {
            members,
            groups: Vec::new(),
            inbox: Inbox::default(),
            small_inbox: Inbox::new(1),
            last_arrived: 0,
            last_active: 0,
            polls: 0,
            group_reads: 0,
            socket_lost: false,
            exits,
        })
    }

    fn member_at(&mut self, address: IpAddr) -> Option<&mut Member> {
        (self.members.iter_mut()).find(|member| member.address() == address)
    }

    fn receive_groups(&mut self, take: Take<'_>) -> usize {
        let mut taken = 0;
        for receiver in self.groups.iter().flat_map(|(_, receivers)| receivers) {
            let Ok(batches) = receiver.receive(&mut self.inbox) else {
                self.group_reads += 1;
                continue;
            };
            self.group_reads += batches.reads() as u64;
            for batch in batches {
                for packet in batch.packets() {
                    take(ReceivedPacket::of_batch(&batch, packet));
                    taken += 1;
                }
            }
        }
        taken
    }
}

impl Fabric for Sockets {
    fn owns(&self, number: Qpn) -> bool {
        (self.members.first()).is_some_and(|member| member.owns(number))
    }

    fn block(&self) -> Option<NumberBlock> {
        self.members.first().map(Member::block)
    }

    fn give(&mut self, part: NumberBlock) {
        for member in &mut self.members {
            member.give(part);
        }
    }

    fn begin_service(&mut self) -> Result<bool, OpenError> {
        Ok(begin_service(&mut self.members)?)
    }

    fn source_port(&self, index: usize) -> u16 {
        self.members[index].sender().port()
    }

    fn receive_buffer(&self) -> usize {
        let buffers = self.members.iter().map(|member| member.receiver().buffer());
        buffers.min().unwrap_or(0)
    }

    fn has_address(&self, address: IpAddr) -> bool {
        (self.members.iter()).any(|member| member.address() == address)
    }

    fn senders(&self) -> Vec<&Sender> {
        self.members.iter().map(Member::sender).collect()
    }

    fn segmentation(&self) -> bool {
        self.members.iter().all(|it| it.sender().segmentation())
    }

    fn set_segmentation(&self, on: bool) {
        for member in &self.members {
            member.sender().set_segmentation(on);
        }
    }

    fn send(&mut self, now: Instant, packets: &Transmit, bytes: &mut [u8]) -> Sent {
        let Some(member) = self.member_at(packets.route.flow.source) else {
            return Ok(());
        };
        let (segment_size, has_icrc) = (packets.segment_size, packets.has_icrc);
        member.send(now, &packets.route, segment_size, has_icrc, bytes)
    }

    fn reserve(&mut self, now: Instant, to: (&Route, Qpn), bytes: usize) -> Option<&[AtomicU8]> {
        let (flow, number) = (to.0.flow, to.1);
        self.member_at(flow.source)?
            .reserve(now, flow.destination, number, bytes)
    }

    fn commit(&mut self, packets: &Transmit, bytes: usize) {
        if let Some(member) = self.member_at(packets.route.flow.source) {
            let (number, segment_size) = (packets.destination, packets.segment_size);
            member.commit(&packets.route, number, segment_size, bytes);
        }
    }

    fn receive(&mut self, now: Instant, scope: PollScope, take: Take<'_>) -> usize {
        let inbox = match scope {
            PollScope::LastActive if !self.is_dense() => &mut self.small_inbox,
            PollScope::LastActive | PollScope::AllSockets => &mut self.inbox,
        };
        self.polls = self.polls.wrapping_add(1);
        self.last_arrived = 0;
        if scope == PollScope::LastActive && !self.polls.is_multiple_of(ALL_SOCKETS_INTERVAL) {
            if let Some(member) = self.members.get_mut(self.last_active) {
                let received = member.poll_last_active(now, inbox, take);
                self.last_arrived = count_received(received, &mut self.socket_lost);
            }
            return self.last_arrived;
        }
        for (index, member) in self.members.iter_mut().enumerate() {
            let received = member.receive(now, inbox, &mut *take);
            let here = count_received(received, &mut self.socket_lost);
            if here > 0 {
                self.last_active = index;
            }
            self.last_arrived += here;
        }
        self.last_arrived += self.receive_groups(take);
        self.last_arrived
    }

    fn is_dense(&self) -> bool {
        self.last_arrived > MAX_SPARSE
    }

    fn join(&mut self, group: Gid, address: IpAddr) -> Result<(), SocketError> {
        let same_family = self
            .members
            .iter()
            .map(Member::address)
            .filter(|ours| ours.is_ipv4() == address.is_ipv4());
        let receivers = same_family
            .map(|ours| Receiver::join_group(address, ROCE_PORT, ours))
            .collect::<Result<_, _>>()?;
        self.groups.push((group, receivers));
        Ok(())
    }

    fn leave(&mut self, group: Gid) {
        // A thread that sleeps has copies of the descriptors.
        for (_, mut receivers) in self.groups.extract_if(.., |(it, _)| *it == group) {
            receivers.iter_mut().for_each(Receiver::leave_group);
        }
    }

    fn forward(&mut self, message: &Message) -> Owner {
        let route = &message.route;
        let Some(member) = self.member_at(route.flow.destination) else {
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

    fn enable_shortcuts(&mut self, enabled: bool) {
        for member in &mut self.members {
            member.enable_shortcuts(enabled);
        }
    }

    fn has_shortcuts(&self) -> bool {
        self.members.iter().any(Member::has_shortcuts)
    }

    fn has_local_peer(&self) -> bool {
        self.members.iter().any(Member::has_local_peer)
    }

    fn packet_path(&self, address: IpAddr, number: Qpn) -> PacketPath {
        let mut members = self.members.iter();
        if self.has_address(address) && self.owns(number) {
            PacketPath::SameDevice
        } else if members.any(|it| it.sends_through_memory(address, number)) {
            PacketPath::SharedMemory
        } else {
            PacketPath::Sockets
        }
    }

    fn arrival_descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let groups = self.groups.iter().flat_map(|(_, receivers)| receivers);
        let members = self.members.iter().flat_map(Member::fds);
        members.chain(groups.map(Receiver::as_fd)).collect()
    }

    fn descriptor_reads(&self) -> u64 {
        let members = self.members.iter().map(Member::descriptor_reads);
        members.sum::<u64>() + self.group_reads
    }

    fn has_lost_socket(&self) -> bool {
        self.socket_lost
    }

    fn poll_mailboxes(&mut self) {
        self.members.iter_mut().for_each(Member::poll_mailbox_next);
    }

    fn prepare_sleep(&mut self) -> bool {
        let mut arrived = false;
        for member in &mut self.members {
            arrived |= member.prepare_sleep();
        }
        arrived
    }

    fn stay_awake(&mut self) {
        self.members.iter_mut().for_each(Member::stay_awake);
    }

    fn may_sleep(&mut self) -> bool {
        self.members.iter_mut().all(Member::may_sleep)
    }

    fn maintain(&mut self, now: Instant) -> Option<Instant> {
        let due = self.members.iter_mut().map(|member| member.maintain(now));
        due.min()
    }

    fn exits(&self) -> Option<Arc<ExitWatch>> {
        self.exits.clone()
    }

    fn handle_exits(&mut self) {
        self.members.iter_mut().for_each(Member::handle_exits);
    }

    fn withdraw(&mut self) {
        self.members.iter_mut().for_each(Member::withdraw);
    }

    fn services(&self) -> Box<dyn Services> {
        let claimants = self.members.iter();
        let claimants = claimants.map(|it| (it.address(), it.claimant())).collect();
        Box::new(Reservations::new(claimants))
    }
}

/// A socket that fails has no packets. The sender notices the loss.
fn count_received(received: io::Result<usize>, socket_lost: &mut bool) -> usize {
    received.unwrap_or_else(|error| {
        *socket_lost |= is_socket_lost(&error);
        0
    })
}
