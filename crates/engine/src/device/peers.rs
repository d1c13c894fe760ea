//! What a device asks its peers, and what they answer. The caller sends and receives the datagrams.

use std::net::IpAddr;

use super::Device;
use crate::peers::{HeldLists, Question};

impl Device {
    /// The next question to a peer: whether it understands lists of held packets.
    pub fn poll_question(&mut self) -> Option<Question> {
        self.state.questions.pop_front()
    }

    /// A peer has answered the question with this nonce.
    pub fn note_answer(&mut self, address: IpAddr, nonce: u32, understands: bool) {
        let mut peers = self.state.objects.peers();
        peers.note_answer(address, nonce, understands);
    }

    /// What to answer a peer that asks.
    #[must_use]
    pub fn understands_held_lists(&self) -> bool {
        self.state.held_lists != HeldLists::Never
    }
}
