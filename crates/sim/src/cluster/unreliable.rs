//! Finds received messages among those sent, for services that may lose messages.

use engine::Completion;

use super::Cluster;
use super::end::Message;
use super::pool::Receive;
use crate::Complaint;

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
    ) -> Result<Message, Complaint> {
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
        if let Some(place) = sender.under_way.iter().position(fits) {
            let message = sender.under_way.remove(place).expect("it was just found");
            if ordered && once {
                // Messages before it are lost.
                sender.under_way.drain(..place);
            }
            sender.came.push(message.clone());
            return Ok(message);
        }
        let again = sender.came.iter().find(|message| fits(message)).cloned();
        match again {
            Some(message) if !once => Ok(message),
            Some(_) => Err(self.complain(end, "a message came twice")),
            None => {
                let text = format!("{completion:?} shows a message that was never sent");
                Err(self.complain(end, &text))
            }
        }
    }

    fn received_bytes(&self, pool: usize, receive: &Receive, length: usize) -> Vec<u8> {
        let arena = &self.arenas[self.pools[pool].arena];
        let mut bytes = arena.found_message(&receive.block);
        bytes.truncate(length);
        bytes
    }
}
