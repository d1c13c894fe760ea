//! Duplicate requests: answered again, never executed again.

use wire::{Operation, Packet, Psn, Reth};

use super::super::QueuePair;
use super::super::send_queue::in_packets;
use super::response_queue::{Response, Result64};
use crate::device_state::DeviceState;
use crate::planted_bug::Bug;

/// The response to a read or atomic, saved for duplicates.
#[derive(Debug, Clone, Copy)]
pub(super) struct SavedResponse {
    psn: Psn,
    packets: u32,
    result: SavedResult,
}

#[derive(Debug, Clone, Copy)]
enum SavedResult {
    /// A read: the memory is read again.
    Read { address: u64, length: u32 },
    /// The result of the first execution.
    Word(Result64),
}

impl SavedResponse {
    pub(super) fn read(psn: Psn, packets: u32, reth: &Reth) -> Self {
        Self {
            psn,
            packets,
            result: SavedResult::Read {
                address: reth.virtual_address(),
                length: reth.dma_length(),
            },
        }
    }

    pub(super) fn result(psn: Psn, result: Result64) -> Self {
        Self {
            psn,
            packets: 1,
            result: SavedResult::Word(result),
        }
    }

    /// Whether `reth` requests this read again, or its rest starting at `psn`.
    fn covers(&self, psn: Psn, reth: &Reth, mtu: usize) -> bool {
        let SavedResult::Read { address, length } = self.result else {
            return false;
        };
        let skipped = u64::from(psn.ahead_of(self.psn)) * mtu as u64;
        let end = reth
            .virtual_address()
            .wrapping_add(u64::from(reth.dma_length()));
        reth.virtual_address() == address.wrapping_add(skipped)
            && end == address.wrapping_add(u64::from(length))
            && skipped <= u64::from(length)
    }
}

impl QueuePair {
    /// Saves a response for as long as the peer may send the request again.
    pub(super) fn save_response(&mut self, saved: SavedResponse) {
        let limit = usize::from(self.attributes.responder_resources.unwrap_or(0)).max(1);
        while self.responder.saved.len() >= limit {
            self.responder.saved.pop_front();
        }
        self.responder.saved.push_back(saved);
    }

    pub(super) fn handle_duplicate(&mut self, packet: &Packet<'_>, device: &mut DeviceState) {
        device.counters.duplicate_requests += 1;
        self.counters.duplicate_requests += 1;
        match packet.opcode.operation() {
            Operation::Send | Operation::Write => self.acknowledge_again(packet, device),
            Operation::ReadRequest => self.send_read_again(packet),
            _ => self.send_result_again(packet, device),
        }
    }

    /// C9-105: a duplicate SEND or WRITE is acknowledged with the newest PSN.
    fn acknowledge_again(&mut self, packet: &Packet<'_>, device: &mut DeviceState) {
        if device.planted.is(Bug::DuplicateNotAcknowledged) {
            return;
        }
        let again = device.planted.is(Bug::DuplicateSendExecuted);
        if again
            && packet.opcode.operation() == Operation::Send
            && self.validate(packet, device).is_ok()
        {
            let _ = self.deliver_send(packet, device);
        }
        self.responder.push_acknowledge(self.responder.expected - 1);
    }

    fn send_read_again(&mut self, packet: &Packet<'_>) {
        let (Some(reth), Some(link)) = (packet.reth(), self.link) else {
            return;
        };
        let known = self.responder.saved.iter().any(|saved| {
            packet.psn.ahead_of(saved.psn) < saved.packets
                && saved.covers(packet.psn, reth, link.mtu())
        });
        if known {
            let packets = in_packets(reth.dma_length(), link.mtu);
            let completed = self.responder.completed;
            let response = Response::read(self.accessor(), packet.psn, packets, reth, completed);
            self.responder.insert_response(response);
        }
    }

    fn send_result_again(&mut self, packet: &Packet<'_>, device: &mut DeviceState) {
        if device.planted.is(Bug::AtomicNotReplayed) {
            let _ = self.execute_again(packet, device);
            return;
        }
        let saved = self
            .responder
            .saved
            .iter()
            .find(|saved| saved.psn == packet.psn);
        if let Some(SavedResponse {
            result: SavedResult::Word(result),
            ..
        }) = saved
        {
            let response = Response::result(packet.psn, *result, self.responder.completed);
            self.responder.insert_response(response);
        }
    }

    /// A planted bug: executes a duplicate again.
    fn execute_again(
        &mut self,
        packet: &Packet<'_>,
        device: &mut DeviceState,
    ) -> Result<(), super::Rejection> {
        let expected = self.responder.expected;
        self.execute(packet, device)?;
        self.responder.expected = expected;
        Ok(())
    }
}
