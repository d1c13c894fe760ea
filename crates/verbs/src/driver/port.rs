//! The addresses of a device: what is sent from them, and what arrives there.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use cm::Recipient;
use engine::{Arrival, NumberSpace, Transmit};
use host::{Message, Owner};
use net::fork::Guard;
use net::poll::{Interest, PollSet, wait};
use net::share::{Arrived, Member, ServiceError, join_all};
use net::socket::{Envelope, Inbox, Receiver, SendError, Sender, SocketError};
use wire::{Gid, Qpn, ROCE_PORT};

use crate::opening::OpenError;

/// Where to look for packets: every look at a socket is a system call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    /// At all addresses.
    Everywhere,
    /// Where packets came last, and now and then everywhere: for who looks again and again.
    Again,
}

/// Now and then is each so many times.
const EVERYWHERE: u32 = 8;

/// Our part of each address of a device.
pub(super) struct Ports {
    members: Vec<Member>,
    /// The GID table, with the place in `members` of each entry.
    gids: Vec<(Gid, usize)>,
    /// The multicast groups that queue pairs are in.
    groups: Vec<Group>,
    /// How many of our ids have a service, by member.
    claims: HashMap<(usize, u64), usize>,
    /// Whether the number of groups has changed.
    doors_changed: bool,
    /// The member that got packets last, and how often we looked only there.
    busiest: usize,
    looks: u32,
    /// When the other processes at our addresses want to be looked after.
    tend_at: Option<Instant>,
}

/// A multicast group, received on every interface address of its family.
struct Group {
    gid: Gid,
    receivers: Vec<Receiver>,
    /// How many queue pairs are in it.
    users: usize,
}

/// Something to sleep on until a packet comes, without holding the driver's lock.
pub(super) struct Doors {
    /// Before the descriptors: it must go first.
    _guard: Guard,
    descriptors: Vec<OwnedFd>,
}

impl Doors {
    pub(super) fn add_to<'d>(&'d self, interests: &mut Vec<Interest<'d>>) {
        interests.extend(
            self.descriptors
                .iter()
                .map(|fd| Interest::readable(fd.as_fd())),
        );
    }
}

impl Ports {
    pub(super) fn open(device: &net::interface::Device, shortcut: bool) -> Result<Self, OpenError> {
        let addresses: Vec<IpAddr> = device.gids.iter().map(|entry| entry.address).collect();
        let mut members = join_all(&addresses)?;
        if shortcut {
            members.iter_mut().for_each(Member::allow_shortcuts);
        }
        let gids = device.gids.iter().map(|entry| entry.gid);
        Ok(Self {
            members,
            gids: gids.zip(0..).collect(),
            groups: Vec::new(),
            claims: HashMap::new(),
            doors_changed: false,
            busiest: 0,
            looks: 0,
            tend_at: None,
        })
    }

    /// Where packets arrive, as one descriptor.
    pub(super) fn packets(&self) -> io::Result<PollSet> {
        PollSet::over(self.arrival_descriptors())
    }

    fn arrival_descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let groups = self.groups.iter().flat_map(|group| &group.receivers);
        let members = self.members.iter().flat_map(Member::fds);
        members.chain(groups.map(Receiver::as_fd)).collect()
    }

    pub(super) fn doors(&self) -> io::Result<Doors> {
        let fds = self.arrival_descriptors();
        let owned = fds.iter().map(BorrowedFd::try_clone_to_owned);
        let descriptors: Vec<OwnedFd> = owned.collect::<io::Result<_>>()?;
        let senders = self.members.iter().map(|member| member.sender().as_fd());
        let all = fds.iter().copied().chain(senders);
        let guard = Guard::new(all.chain(descriptors.iter().map(AsFd::as_fd)));
        Ok(Doors {
            _guard: guard,
            descriptors,
        })
    }

    /// Receives what is sent to a group, for one more queue pair.
    pub(super) fn join(&mut self, gid: Gid) -> Result<(), SocketError> {
        if let Some(group) = self.groups.iter_mut().find(|group| group.gid == gid) {
            group.users += 1;
            return Ok(());
        }
        let Some(address) = gid.ip() else {
            return Ok(());
        };
        let same_family = self
            .members
            .iter()
            .map(Member::address)
            .filter(|ours| ours.is_ipv4() == address.is_ipv4());
        let receivers = same_family
            .map(|ours| Receiver::join_group(address, ROCE_PORT, ours))
            .collect::<Result<_, _>>()?;
        self.doors_changed = true;
        self.groups.push(Group {
            gid,
            receivers,
            users: 1,
        });
        Ok(())
    }

    /// Ends that, for one queue pair.
    pub(super) fn leave(&mut self, gid: Gid) {
        if let Some(group) = self.groups.iter_mut().find(|group| group.gid == gid) {
            group.users -= 1;
        }
        let before = self.groups.len();
        self.groups.retain(|group| group.users > 0);
        self.doors_changed |= self.groups.len() != before;
    }

    pub(super) fn doors_changed(&mut self) -> bool {
        std::mem::take(&mut self.doors_changed)
    }

    pub(super) fn gids(&self) -> Vec<Gid> {
        self.gids.iter().map(|(gid, _)| *gid).collect()
    }

    /// The numbers that the queue pairs may have: the same at every address.
    pub(super) fn numbers(&self) -> NumberSpace {
        let block = self.members.first().map(Member::block);
        block.map_or_else(NumberSpace::default, |block| NumberSpace {
            first: block.first(),
            count: 1 << block.bits(),
        })
    }

    /// Whether a queue pair of this number would be ours.
    pub(super) fn owns(&self, number: Qpn) -> bool {
        let range = self.members.first().map(Member::qpn_range);
        range.is_some_and(|range| range.contains(&number.value()))
    }

    /// Whether a packet to this address is for a queue pair of this device.
    pub(super) fn is_own(&self, destination: IpAddr, packet: &[u8]) -> bool {
        let mut members = self.members.iter();
        members.any(|member| member.address() == destination)
            && destination_queue_pair(packet).is_some_and(|number| self.owns(number))
    }

    /// Our part of the communication ids: the same at every address. None on a device without
    /// addresses.
    pub(super) fn slice(&self) -> Option<cm::Slice> {
        let (bits, value) = self.members.first()?.block().prefix();
        cm::Slice::new(bits, value)
    }

    /// Where packets leave from, at each address.
    pub(super) fn senders(&self) -> impl Iterator<Item = &Sender> {
        self.members.iter().map(Member::sender)
    }

    /// The UDP source port of each GID, by index.
    pub(super) fn source_ports(&self) -> Vec<u16> {
        let port = |place: usize| self.members[place].sender().port();
        self.gids.iter().map(|(_, place)| port(*place)).collect()
    }

    /// Whether the kernel cuts batches into packets, at all addresses.
    pub(super) fn segmentation(&self) -> bool {
        self.members
            .iter()
            .all(|member| member.sender().segmentation())
    }

    pub(super) fn set_segmentation(&self, on: bool) {
        for member in &self.members {
            member.sender().set_segmentation(on);
        }
    }

    /// The smallest receive buffer, as the kernel counts it.
    pub(super) fn receive_buffer(&self) -> usize {
        let buffers = self.members.iter().map(|member| member.receiver().buffer());
        buffers.min().unwrap_or(0)
    }

    /// Sends the packets of one batch; waits while the kernel's buffer is full.
    pub(super) fn send(
        &mut self,
        transmit: &Transmit,
        mut bytes: &mut [u8],
    ) -> Result<(), SendError> {
        let route = &transmit.route;
        let envelope = Envelope {
            flow: route.flow,
            traffic_class: route.traffic_class,
            hop_limit: route.hop_limit,
        };
        let source = route.flow.source;
        let mut members = self.members.iter_mut();
        let Some(member) = members.find(|member| member.address() == source) else {
            return Ok(());
        };
        loop {
            match member.send(&envelope, transmit.segment_size, bytes) {
                Err(SendError::Full { sent }) => {
                    bytes = &mut bytes[sent..];
                    let _ = wait(&[Interest::writable(member.sender().as_fd())], None);
                }
                outcome => return outcome,
            }
        }
    }

    /// Hands out what has arrived; how many packets.
    pub(super) fn receive(
        &mut self,
        now: Instant,
        look: Look,
        inbox: &mut Inbox,
        mut take: impl FnMut(Arrived<'_>),
    ) -> usize {
        self.looks = self.looks.wrapping_add(1);
        if look == Look::Again && !self.looks.is_multiple_of(EVERYWHERE) {
            let member = self.members.get_mut(self.busiest);
            // A socket that fails has nothing for us; whoever sends will notice.
            return member.map_or(0, |member| member.glance(now, inbox, take).unwrap_or(0));
        }
        let mut taken = 0;
        for (place, member) in self.members.iter_mut().enumerate() {
            let here = member.receive(now, inbox, &mut take).unwrap_or(0);
            if here > 0 {
                self.busiest = place;
            }
            taken += here;
        }
        for receiver in self.groups.iter().flat_map(|group| &group.receivers) {
            let Ok(batches) = receiver.receive(inbox) else {
                continue;
            };
            for batch in batches {
                for packet in batch.packets() {
                    take(Arrived {
                        envelope: batch.envelope,
                        packet,
                        forwarded: false,
                    });
                    taken += 1;
                }
            }
        }
        taken
    }

    /// The next look everywhere includes the mailboxes.
    pub(super) fn look_into_mailboxes(&mut self) {
        self.members.iter_mut().for_each(Member::look_into_mailbox);
    }

    /// Whether others send to us past the kernel.
    pub(super) fn has_shortcuts(&self) -> bool {
        self.members.iter().any(Member::has_shortcuts)
    }

    /// Before sleeping on the doors: whether something has arrived after all.
    pub(super) fn prepare_sleep(&mut self) -> bool {
        let mut arrived = false;
        for member in &mut self.members {
            arrived |= member.prepare_sleep();
        }
        arrived
    }

    /// Nothing new comes from now on, except what is under way.
    pub(super) fn withdraw(&mut self) {
        self.members.iter_mut().for_each(Member::withdraw);
    }

    /// Looks after the other processes at our addresses, as far as that is due.
    pub(super) fn tend(&mut self, now: Instant) {
        let due = self.members.iter_mut().map(|member| member.tend(now));
        self.tend_at = due.min();
    }

    pub(super) fn tend_at(&self) -> Option<Instant> {
        self.tend_at
    }

    /// Passes a message on to the process that owns it.
    pub(super) fn pass_on(&mut self, message: &Message) -> Owner {
        let envelope = envelope(&message.arrival);
        let address = envelope.flow.destination;
        let Some(member) = self.members.iter_mut().find(|it| it.address() == address) else {
            return Owner::Here;
        };
        let owner = match message.recipient {
            Recipient::CommunicationId(id) => match member.owner_of_communication(id.value()) {
                Some(owner) => owner,
                None => return Owner::Nobody,
            },
            Recipient::Listener(service) => {
                let owner = member.listeners().owner(service.value());
                match owner.ok().flatten() {
                    Some(owner) if owner != member.block() => owner,
                    // Reserved by us or by nobody, and nobody listens.
                    _ => return Owner::Nobody,
                }
            }
            Recipient::Everyone => {
                member.forward_to_others(Instant::now(), &envelope, &message.packet);
                return Owner::Here;
            }
        };
        member.forward_to(owner, &envelope, &message.packet);
        Owner::Elsewhere
    }

    /// Takes a service for us at one address, or at all.
    pub(super) fn claim(&mut self, at: Option<IpAddr>, service: u64) -> Result<(), ServiceError> {
        for place in 0..self.members.len() {
            if is_at(&self.members[place], at)
                && let Err(error) = self.claim_at(place, service)
            {
                for earlier in 0..place {
                    self.release_at(earlier, at, service);
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// Gives it back.
    pub(super) fn release(&mut self, at: Option<IpAddr>, service: u64) {
        for place in 0..self.members.len() {
            self.release_at(place, at, service);
        }
    }

    /// Several of our ids may share a port; the manager decides that. Other processes see one.
    fn claim_at(&mut self, place: usize, service: u64) -> Result<(), ServiceError> {
        let users = self.claims.entry((place, service)).or_insert(0);
        if *users == 0 {
            self.members[place].listeners().claim(service)?;
        }
        *users += 1;
        Ok(())
    }

    fn release_at(&mut self, place: usize, at: Option<IpAddr>, service: u64) {
        let member = &self.members[place];
        let Some(users) = self.claims.get_mut(&(place, service)) else {
            return;
        };
        if !is_at(member, at) {
            return;
        }
        *users = users.saturating_sub(1);
        if *users == 0 {
            self.claims.remove(&(place, service));
            // What can't be given back now goes when this process ends.
            let _ = member.listeners().release(service);
        }
    }
}

/// Whether a member is at this address, if one is asked for.
fn is_at(member: &Member, address: Option<IpAddr>) -> bool {
    address.is_none_or(|address| member.address() == address)
}

fn envelope(arrival: &Arrival) -> Envelope {
    Envelope {
        flow: arrival.flow,
        traffic_class: arrival.traffic_class,
        hop_limit: arrival.hop_limit,
    }
}

/// The queue pair that a packet is for: three bytes of its base transport header.
fn destination_queue_pair(packet: &[u8]) -> Option<Qpn> {
    let number = packet.get(5..8)?;
    Some(Qpn::new(u32::from_be_bytes([
        0, number[0], number[1], number[2],
    ])))
}
