//! A lane's way to its peers: the fabric, and what is the same over each one.

use std::io;
use std::net::IpAddr;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU8;
use std::time::Instant;

use engine::{Now, QpnRange, SharedRoom, Transmit};
use net::fork::Guard;
use net::poll::{Interest, PollSet};
use net::sharing::NumberBlock;
use net::socket::SocketError;
use wire::{Gid, Qpn, Route};

use super::send_backlog::SendBacklog;
use super::{Fabric, Sent, here};
use crate::options::{MAX_LANES, OpenError};
use crate::shortcut::Shortcut;

/// How often a device that closes yields the CPU while packets wait.
const MAX_CLOSING_YIELDS: usize = 1000;

/// What is asked with each post and poll is here, so that it takes no virtual call.
pub(crate) struct Port {
    fabric: Box<dyn Fabric>,
    gids: Vec<Gid>,
    /// The multicast groups that queue pairs have joined, and how many.
    groups: Vec<(Gid, usize)>,
    /// Whether groups were added or removed.
    poll_sources_changed: bool,
    /// When the fabric's maintenance is due.
    maintenance_at: Option<Instant>,
    backlog: SendBacklog,
}

/// The descriptors that a thread sleeps on until a packet arrives, without the lane's lock.
pub(crate) struct PollSources {
    /// Dropped before the descriptors.
    _guard: Guard,
    pub(super) descriptors: Vec<OwnedFd>,
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

/// Room in the memory of other processes, if it is lent, unless earlier packets wait.
pub(crate) struct RoomBelow<'f> {
    fabric: &'f mut dyn Fabric,
    backlog: &'f SendBacklog,
    now: &'f Now,
    is_lent: bool,
}

impl SharedRoom for RoomBelow<'_> {
    fn reserve(&mut self, route: &Route, destination: Qpn, bytes: usize) -> Option<&[AtomicU8]> {
        if !self.is_lent || self.is_full(route, destination) {
            return None;
        }
        (self.fabric).reserve(self.now.get(), (route, destination), bytes)
    }

    fn is_full(&self, route: &Route, destination: Qpn) -> bool {
        self.backlog.blocks(route, destination)
    }

    fn is_closed(&self) -> bool {
        self.backlog.is_full()
    }
}

impl Port {
    /// Joins the addresses of a device, with a part of the numbers that another lane of it has, or with numbers of its own.
    pub(crate) fn open(
        device: &net::socket::interface::Device,
        shortcut: Shortcut,
        part: Option<NumberBlock>,
    ) -> Result<Self, OpenError> {
        Ok(Self {
            fabric: here(|machine| machine.open(device, shortcut, part))?,
            gids: device.gids.iter().map(|entry| entry.gid).collect(),
            groups: Vec::new(),
            poll_sources_changed: false,
            maintenance_at: None,
            backlog: SendBacklog::default(),
        })
    }

    /// All descriptors that tell of packets, as one descriptor.
    pub(crate) fn packets(&self) -> io::Result<PollSet> {
        PollSet::over(self.fabric.arrival_descriptors())
    }

    pub(crate) fn poll_sources(&self) -> io::Result<PollSources> {
        let fds = self.fabric.arrival_descriptors();
        let owned = fds.iter().map(BorrowedFd::try_clone_to_owned);
        let descriptors: Vec<OwnedFd> = owned.collect::<io::Result<_>>()?;
        let senders = self.fabric.senders().into_iter().map(AsFd::as_fd);
        let all = fds.iter().copied().chain(senders);
        let guard = Guard::new(all.chain(descriptors.iter().map(AsFd::as_fd)));
        Ok(PollSources {
            _guard: guard,
            descriptors,
        })
    }

    pub(crate) fn poll_sources_changed(&mut self) -> bool {
        std::mem::take(&mut self.poll_sources_changed)
    }

    /// Joins a multicast group, for one more queue pair.
    pub(crate) fn join(&mut self, gid: Gid) -> Result<(), SocketError> {
        if let Some((_, users)) = self.groups.iter_mut().find(|(group, _)| *group == gid) {
            *users += 1;
            return Ok(());
        }
        let Some(address) = gid.ip() else {
            return Ok(());
        };
        self.fabric.join(gid, address)?;
        self.poll_sources_changed = true;
        self.groups.push((gid, 1));
        Ok(())
    }

    /// Leaves a multicast group, for one queue pair.
    pub(crate) fn leave(&mut self, gid: Gid) {
        let Some(index) = self.groups.iter().position(|(group, _)| *group == gid) else {
            return;
        };
        self.groups[index].1 -= 1;
        if self.groups[index].1 == 0 {
            self.groups.remove(index);
            self.fabric.leave(gid);
            self.poll_sources_changed = true;
        }
    }

    pub(crate) fn gids(&self) -> &[Gid] {
        &self.gids
    }

    /// The numbers of the lane.
    pub(crate) fn numbers(&self) -> QpnRange {
        self.block().map_or_else(QpnRange::default, numbers_of)
    }

    /// The lane's range of the communication ids. They belong to the first part of the numbers, which it keeps.
    pub(crate) fn id_range(&self) -> Option<cm::IdRange> {
        let block = self.block()?;
        let bits = block.bits().saturating_sub(MAX_LANES.ilog2());
        let first = block.part(0, bits.max(NumberBlock::LEAST_BITS));
        let (bits, value) = first.unwrap_or(block).prefix();
        cm::IdRange::new(bits, value)
    }

    /// The UDP source port of each GID, by index.
    pub(crate) fn source_ports(&self) -> Vec<u16> {
        let indices = 0..self.gids.len();
        indices.map(|it| self.fabric.source_port(it)).collect()
    }

    /// Whether a queue pair at this address is one of this device, to which it sends through the kernel.
    pub(crate) fn is_own(&self, destination: IpAddr, number: Qpn) -> bool {
        self.fabric.has_address(destination) && self.fabric.owns(number)
    }

    /// Sends the packets of one batch. Never blocks: packets for a full socket or ring wait in the backlog.
    pub(crate) fn send(&mut self, now: Instant, transmit: &Transmit, bytes: &mut [u8]) -> Sent {
        let fabric = &mut self.fabric;
        let send = |packets: &Transmit, bytes: &mut [u8]| fabric.send(now, packets, bytes);
        self.backlog.send(now, transmit, bytes, send)
    }

    /// Whether there is room for packets, and, if it is to be lent, memory of other processes in which packets to them can be built.
    pub(crate) fn shared_room<'f>(&'f mut self, now: &'f Now, is_lent: bool) -> RoomBelow<'f> {
        RoomBelow {
            fabric: &mut *self.fabric,
            backlog: &self.backlog,
            now,
            is_lent,
        }
    }

    /// Sends packets that wait, as far as there is room. Returns whether there was some.
    pub(crate) fn retry_backlog(&mut self, now: &Now) -> bool {
        if self.backlog.is_empty() {
            return false;
        }
        let now = now.get();
        let fabric = &mut self.fabric;
        (self.backlog).retry(now, |transmit, bytes| fabric.send(now, transmit, bytes))
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

    /// Whether too many packets wait, so that the device must build no more that leave it.
    pub(crate) fn is_congested(&self) -> bool {
        self.backlog.is_full()
    }

    /// When to retry packets that wait.
    pub(crate) fn retry_at(&self) -> Option<Instant> {
        self.backlog.retry_at()
    }

    /// Runs the fabric's maintenance if it is due.
    pub(crate) fn maintain(&mut self, now: Instant) {
        self.maintenance_at = self.fabric.maintain(now);
    }

    /// Handles the ends of other processes. What can't be done now is due soon.
    pub(crate) fn handle_exits(&mut self, now: Instant) {
        self.fabric.handle_exits();
        self.maintain(now);
    }

    pub(crate) fn maintenance_at(&self) -> Option<Instant> {
        self.maintenance_at
    }
}

/// The numbers of a block.
pub(crate) fn numbers_of(block: NumberBlock) -> QpnRange {
    QpnRange {
        first: block.first(),
        count: 1 << block.bits(),
    }
}

impl Deref for Port {
    type Target = dyn Fabric;

    fn deref(&self) -> &Self::Target {
        &*self.fabric
    }
}

impl DerefMut for Port {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut *self.fabric
    }
}

#[cfg(test)]
impl Port {
    /// The sockets of a loopback address.
    pub(crate) fn at(address: &str) -> Self {
        let device = crate::devices::device(address).expect("a loopback address");
        Self::open(&device, Shortcut::Never, None).expect("it is free")
    }

    /// Makes a packet to a queue pair wait, as if the socket or the ring were full.
    pub(crate) fn stall(&mut self, now: Instant, (address, number): (IpAddr, Qpn), bytes: usize) {
        let sender = self.fabric.senders()[0];
        let transmit = Transmit {
            queue_pair: Qpn::new(7),
            route: Route::new(sender.flow_to(address)),
            segment_size: bytes,
            has_icrc: true,
            destination: number,
            shared_length: None,
        };
        let mut packet = vec![0; bytes];
        // The field of the BTH tells which process it is for.
        packet[4..8].copy_from_slice(&number.value().to_be_bytes());
        let full = |_: &_, _: &mut _| Err(net::socket::SendError::RingFull);
        let kept = self.backlog.send(now, &transmit, &mut packet, full);
        kept.expect("it waits");
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
    use statistics::PacketPath;

    use super::*;
    use crate::clock::now;

    /// Another machine may use the same numbers.
    #[test]
    fn a_packet_is_our_own_only_by_address_and_number() {
        let sockets = Port::at("127.58.92.3");
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
        let mut sockets = Port::at("127.58.92.6");
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
        let mut sockets = Port::at("127.58.92.1");
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
        let mut sockets = Port::at("127.58.92.7");
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
