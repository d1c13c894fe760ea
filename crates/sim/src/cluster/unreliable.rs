//! Finds received messages among those sent, for services that may lose messages.

use engine::Completion;

use super::Cluster;
use super::connection_end::Message;
use super::receive_queues::Receive;
use crate::CheckError;

impl Cluster {
    /// The sent message that this receive contains.
    ///
    /// Without duplication and reordering, messages arrive once and in order.
    pub(super) fn find_message(
        &mut self,
        end: usize,
        pool: usize,
        receive: &Receive,
        completion: &Completion,
    ) -> Result<Message, CheckError> {
        let found = self.received_bytes(pool, receive, completion.length as usize);
        let faults = &self.profile.faults;
        let (ordered, once) = (faults.keeps_order(), faults.duplication == 0);
        let peer = self.ends[end].peer;
        let sender = &mut self.ends[peer];
        let fits = |message: &Message| {
            message.work == completion.work
                && message.length == completion.length as usize
                && message.immediate == completion.immediate
                && found.starts_with(&message.data)
        };
        if let Some(index) = sender.in_flight.iter().position(fits) {
            let message = sender
                .in_flight
                .remove(index)
                .expect("the index was just found");
            if ordered && once {
                // Messages before it are lost.
                sender.in_flight.drain(..index);
            }
            sender.came.push(message.clone());
            return Ok(message);
        }
        let again = sender.came.iter().find(|message| fits(message)).cloned();
        match again {
            Some(message) if !once => Ok(message),
            Some(_) => Err(self.error_at(end, "a message arrived twice")),
            None => {
                let text = format!("{completion:?} contains a message that was never sent");
                Err(self.error_at(end, &text))
            }
        }
    }

    fn received_bytes(&self, pool: usize, receive: &Receive, length: usize) -> Vec<u8> {
        let memory = &self.memories[self.pools[pool].memory];
        let mut bytes = memory.found_message(&receive.block);
        bytes.truncate(length);
        bytes
    }
}
