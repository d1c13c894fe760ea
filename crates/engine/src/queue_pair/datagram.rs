//! Unreliable datagrams: one packet to anybody who has the key.

use wire::{Companion, Deth, Immediate, Opcode, Operation, Packet, PacketHead, Position, grh};

use super::diagnosis::peer;
use super::segmentation::Piece;
use super::{QueuePair, State};
use crate::address::{Arrival, GidTable, Route};
use crate::completion::{CompletedWork, Completion, Source, Status};
use crate::event::AsyncEvent;
use crate::incident::Incident;
use crate::shared::Shared;
use crate::transmit::Batch;
use crate::work::{Destination, SendFlags, Work};

/// A receive of a datagram begins with the network header of the packet.
const GRH_LENGTH: usize = grh::LENGTH;

const UDP_HEADER: u16 = 8;

impl QueuePair {
    /// Sends datagrams; each is done when it has left.
    pub(super) fn transmit_datagrams(
        &mut self,
        gids: &GidTable,
        batch: &mut Batch<'_>,
        shared: &mut Shared,
    ) {
        let mut batched_for = None;
        while let Some(front) = self.send.front() {
            if self.state != State::ReadyToSend {
                return;
            }
            // An oversize datagram sends nothing at all.
            if front.length as usize > self.settings.active_mtu.bytes() {
                return self.fail_send_queue(Status::LocalLength, shared);
            }
            let Some(destination) = front.request.destination else {
                return self.fail_send_queue(Status::LocalOperation, shared);
            };
            let peer = destination.queue_pair;
            let Ok(route) = gids.route(&destination.address, self.number, peer) else {
                return self.fail_send_queue(Status::LocalOperation, shared);
            };
            let piece = datagram_piece(front.work(), front.length);
            // The receiving machine steers a batch as a whole, by its first packet.
            let other_peer = batched_for.is_some_and(|first| first != peer);
            let head = piece.opcode.header_length();
            if other_peer || !batch.admits(&route, head, piece.payload) {
                return;
            }
            batched_for = Some(peer);
            if self
                .send_datagram(&piece, &destination, &route, batch, shared)
                .is_err()
            {
                return self.fail_send_queue(Status::LocalProtection, shared);
            }
            self.complete_send(Status::Success, shared);
        }
        self.announce_drained(shared);
    }

    fn send_datagram(
        &mut self,
        piece: &Piece,
        destination: &Destination,
        route: &Route,
        batch: &mut Batch<'_>,
        shared: &Shared,
    ) -> Result<(), crate::memory::AccessError> {
        let Some(front) = self.send.front() else {
            return Ok(());
        };
        // A privileged key stands for the queue pair's own.
        let key = match destination.queue_key.is_privileged() {
            true => self.queue_key(),
            false => destination.queue_key,
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
        batch.push(route, head, piece.payload, |out| {
            front.fill(piece, &shared.memory, self.init.domain, out)
        })?;
        self.requester.step();
        Ok(())
    }

    /// Takes a datagram. What does not fit is dropped without a word.
    pub(crate) fn handle_datagram(
        &mut self,
        packet: &Packet<'_>,
        arrival: &Arrival,
        network_header: &[u8; GRH_LENGTH],
        shared: &mut Shared,
    ) {
        let Some(deth) = packet.deth() else { return };
        if deth.queue_key() != self.queue_key() {
            shared.counters.bad_queue_key += 1;
            shared.incidents.note(|| Incident::WrongQueueKey {
                queue_pair: self.number,
                sender: peer(arrival.flow.source, deth.source()),
                given: deth.queue_key(),
                wanted: self.queue_key(),
            });
            return;
        }
        let Some(receiving) = self.take_receive(packet, shared) else {
            shared.counters.dropped_messages += 1;
            return;
        };
        let length = GRH_LENGTH + packet.payload.len();
        let (domain, segments) = (receiving.domain, &receiving.request.segments);
        let fits = length as u64 <= receiving.request.capacity();
        let stored = fits
            && shared
                .memory
                .scatter(domain, segments, 0, network_header)
                .and_then(|()| {
                    let offset = GRH_LENGTH as u64;
                    shared
                        .memory
                        .scatter(domain, segments, offset, packet.payload)
                })
                .is_ok();
        let id = receiving.request.id;
        if !stored {
            let status = match fits {
                true => Status::LocalProtection,
                false => Status::LocalLength,
            };
            let sender = peer(arrival.flow.source, deth.source());
            self.note_failed_receive(sender, &receiving, length as u64, shared);
            self.complete_receive_in_error(receiving.completions, id, status, shared);
            shared.raise(AsyncEvent::QueuePairFatal(self.number));
            return self.fail(shared);
        }
        let completion = Completion {
            id,
            status: Status::Success,
            work: CompletedWork::Receive,
            length: length as u32,
            queue_pair: self.number,
            immediate: packet.immediate().map(Immediate::bytes),
            invalidated: None,
            source: Some(Source {
                queue_pair: deth.source(),
                gid: arrival.flow.source.into(),
            }),
        };
        shared.complete(receiving.completions, completion, packet.solicited);
    }
}

fn datagram_piece(work: &Work, length: u32) -> Piece {
    let companion = match work {
        Work::SendImmediate(_) => Companion::Immediate,
        _ => Companion::None,
    };
    let opcode = Opcode::find(
        wire::Transport::Ud,
        Operation::Send,
        Position::Only,
        companion,
    );
    Piece {
        opcode: opcode.expect("datagrams have SEND_ONLY with and without immediate"),
        offset: 0,
        length,
        span: 1,
        payload: length as usize,
    }
}

/// The forty bytes that a receive of this datagram begins with.
pub(crate) fn network_header(
    arrival: &Arrival,
    fragmentation: wire::Fragmentation,
    datagram: &[u8],
) -> [u8; GRH_LENGTH] {
    grh::area(
        &arrival.flow,
        arrival.traffic_class,
        arrival.hop_limit,
        fragmentation,
        datagram.len() as u16 + UDP_HEADER,
    )
}
