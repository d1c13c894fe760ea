//! Unreliable datagrams: single packets to any queue pair whose Q_Key the sender knows.

use wire::{
    Deth, Immediate, Modifier, Opcode, Operation, Packet, PacketHead, PayloadBytes, Position, Qpn,
    Route, grh,
};

use super::QueuePair;
use super::diagnosis::peer;
use super::responder::Receiving;
use super::segmentation::Piece;
use crate::address::GidTable;
use crate::completion::{CompletedWork, Completion, Source, Status};
use crate::device_state::DeviceState;
use crate::event::AsyncEvent;
use crate::incident::{Incident, Peer};
use crate::memory::AccessError;
use crate::state::State;
use crate::transmit::Batch;
use crate::work_request::{Destination, SendFlags, Work};

/// The receive buffer of a datagram starts with the GRH area.
const GRH_LENGTH: usize = grh::LENGTH;

const UDP_HEADER: u16 = 8;

impl QueuePair {
    /// Sends datagrams. Each completes when it is sent.
    pub(super) fn transmit_datagrams(
        &mut self,
        gids: &GidTable,
        batch: &mut Batch<'_>,
        device: &mut DeviceState,
    ) {
        let mut batched_for = None;
        while let Some(front) = self.send.front() {
            if self.state != State::ReadyToSend {
                return;
            }
            // An oversize datagram is not sent, not even in part.
            if front.length as usize > self.settings.active_mtu.bytes() {
                return self.fail_send_queue(Status::LocalLength, device);
            }
            let Some(destination) = front.request.destination else {
                return self.fail_send_queue(Status::LocalOperation, device);
            };
            let peer = destination.queue_pair;
            let Ok(route) = gids.route(&destination.address, self.number, peer) else {
                return self.fail_send_queue(Status::LocalOperation, device);
            };
            let piece = datagram_piece(front.work(), front.length);
            // The receiving kernel steers a batch as a whole, by its first packet.
            let other_peer = batched_for.is_some_and(|first| first != peer);
            let head = piece.opcode.header_length();
            if other_peer || !batch.admits(&route, head, piece.payload) {
                return;
            }
            batched_for = Some(peer);
            if self
                .send_datagram(&piece, &destination, &route, batch, device)
                .is_err()
            {
                return self.fail_send_queue(Status::LocalProtection, device);
            }
            self.complete_send(Status::Success, device);
        }
        self.announce_drained(device);
    }

    /// The route and the destination of the next datagram, if it can be sent.
    pub(super) fn next_datagram(&self, gids: &GidTable) -> Option<(Route, Qpn)> {
        let to = self.send.front()?.request.destination?;
        let route = gids.route(&to.address, self.number, to.queue_pair).ok()?;
        Some((route, to.queue_pair))
    }

    fn send_datagram(
        &mut self,
        piece: &Piece,
        destination: &Destination,
        route: &Route,
        batch: &mut Batch<'_>,
        device: &DeviceState,
    ) -> Result<(), AccessError> {
        let Some(front) = self.send.front() else {
            return Ok(());
        };
        // A privileged Q_Key stands for the Q_Key of the queue pair.
        let key = if destination.queue_key.is_privileged() {
            self.queue_key()
        } else {
            destination.queue_key
        };
        let psn = self.requester.cursor();
        let head = PacketHead::new(piece.opcode, destination.queue_pair, psn)
            .partition(self.partition())
            .solicited(front.request.flags.contains(SendFlags::SOLICITED))
            .push(&Deth::new(key, self.number));
        let head = match front.work() {
            Work::SendImmediate(bytes) => head.push(&Immediate::new(*bytes)),
            _ => head,
        };
        let memory = device.objects.memory();
        batch.push(route, head, piece.payload, |out| {
            front.fill(piece, &memory, self.init.domain, out)
        })?;
        self.requester.step();
        Ok(())
    }

    /// Handles a datagram. A datagram that does not fit is dropped silently.
    pub(crate) fn handle_datagram(
        &mut self,
        packet: &Packet<'_>,
        route: &Route,
        network_header: &[u8; GRH_LENGTH],
        device: &mut DeviceState,
    ) {
        let Some(deth) = packet.deth() else { return };
        if deth.queue_key() != self.queue_key() {
            device.counters.bad_queue_key += 1;
            device.incidents.note(|| Incident::WrongQueueKey {
                queue_pair: self.number,
                sender: peer(route.flow.source, deth.source()),
                given: deth.queue_key(),
                wanted: self.queue_key(),
            });
            return;
        }
        let length = GRH_LENGTH + packet.payload.len();
        let sender = peer(route.flow.source, deth.source());
        if self
            .receive
            .front()
            .is_some_and(|next| next.capacity() < length as u64)
        {
            return self.drop_oversize(sender, length as u64, device);
        }
        let Some(receiving) = self.take_receive(packet, device) else {
            device.counters.dropped_messages += 1;
            return;
        };
        if receiving.request.capacity() < length as u64 {
            return self.fail_shared_receive(sender, &receiving, length as u64, device);
        }
        if store(&receiving, network_header, packet.payload, device).is_err() {
            return self.fail_unusable_receive(sender, &receiving, length as u64, device);
        }
        let completion = Completion {
            id: receiving.request.id,
            status: Status::Success,
            work: CompletedWork::Receive,
            length: length as u32,
            queue_pair: self.number,
            immediate: packet.immediate().map(Immediate::bytes),
            invalidated: None,
            source: Some(Source {
                queue_pair: deth.source(),
                gid: route.flow.source.into(),
            }),
        };
        self.counters.messages_received += 1;
        device.counters.receives_completed += 1;
        device.complete(&receiving.completions, completion, packet.solicited);
    }

    /// The next receive is too small. The receive stays posted and the queue pair keeps its state.
    /// Otherwise any sender that knows the Q_Key could move it to the error state (responder error
    /// class D).
    #[cold]
    fn drop_oversize(&mut self, sender: Peer, length: u64, device: &mut DeviceState) {
        device.counters.dropped_messages += 1;
        if let Some(next) = self.receive.front() {
            self.note_failed_receive(sender, next, self.init.domain, length, device);
        }
    }

    /// A receive from a shared receive queue is too small. It completes with an error, so that it
    /// does not block the other queue pairs. This queue pair keeps its state (responder error class
    /// E).
    #[cold]
    fn fail_shared_receive(
        &mut self,
        sender: Peer,
        receiving: &Receiving,
        length: u64,
        device: &mut DeviceState,
    ) {
        device.counters.dropped_messages += 1;
        let (request, queue) = (&receiving.request, &receiving.completions);
        self.note_failed_receive(sender, request, receiving.domain, length, device);
        self.complete_receive_in_error(queue, request.id, Status::LocalLength, device);
    }

    /// The receive names memory that is not writable. This is an error of the local application and
    /// moves the queue pair to the error state (responder error class A).
    #[cold]
    fn fail_unusable_receive(
        &mut self,
        sender: Peer,
        receiving: &Receiving,
        length: u64,
        device: &mut DeviceState,
    ) {
        let (request, queue) = (&receiving.request, &receiving.completions);
        self.note_failed_receive(sender, request, receiving.domain, length, device);
        self.complete_receive_in_error(queue, request.id, Status::LocalProtection, device);
        device.raise(AsyncEvent::QueuePairFatal(self.number));
        self.fail(device);
    }
}

fn store(
    receiving: &Receiving,
    network_header: &[u8; GRH_LENGTH],
    payload: PayloadBytes<'_>,
    device: &DeviceState,
) -> Result<(), AccessError> {
    let (memory, domain) = (device.objects.memory(), receiving.domain);
    let segments = &receiving.request.segments;
    memory.scatter(domain, segments, 0, network_header[..].into(), true)?;
    memory.scatter(domain, segments, GRH_LENGTH as u64, payload, true)
}

fn datagram_piece(work: &Work, length: u32) -> Piece {
    let modifier = match work {
        Work::SendImmediate(_) => Modifier::Immediate,
        _ => Modifier::None,
    };
    let opcode = Opcode::find(
        wire::Transport::Ud,
        Operation::Send,
        Position::Only,
        modifier,
    );
    Piece {
        opcode: opcode.expect("datagrams have SEND_ONLY with and without immediate"),
        offset: 0,
        length,
        span: 1,
        payload: length as usize,
    }
}

/// The first 40 bytes of a datagram's receive buffer are for the header of the network (IBA 11.4.1.2).
pub(crate) fn network_header(
    route: &Route,
    fragmentation: wire::Fragmentation,
    packet: &Packet<'_>,
) -> [u8; GRH_LENGTH] {
    grh::area(
        &route.flow,
        route.traffic_class,
        route.hop_limit,
        fragmentation,
        packet.length() as u16 + UDP_HEADER,
    )
}
