//! Memory that the processor does not access itself, such as that of a GPU.

/// Memory of an accelerator. It is read and written by copies that somebody else makes.
///
/// Copies of one message may be gathered: bytes that are stored with more of the message [following](InMessage::following) them
/// need not be in the memory when `store` returns, but all of them must be there when a call for the same memory returns whose
/// bytes are the last. A failure may be reported by any call up to that one. Bytes that follow may also be read ahead.
///
/// The device calls these functions while it holds its locks, for ranges that it has checked. They must not call it.
///
/// # Safety
/// A call of `load` that returns true must have written all bytes of the range, and `load` and `store` must access no other memory
/// of the caller.
pub unsafe trait AcceleratorMemory: Send + Sync {
    /// Its address in the accelerator. Words are aligned there.
    fn address(&self) -> u64;

    /// Copies bytes out of the memory, and reports whether that was possible.
    ///
    /// # Safety
    /// `to` must be valid for writes of `length` bytes, which another process may access at the same time.
    unsafe fn load(&self, to: *mut u8, offset: u64, length: usize, place: InMessage) -> bool;

    /// Copies bytes into the memory, and reports whether that was possible.
    ///
    /// # Safety
    /// `from` must be valid for reads of `length` bytes, which another process may change at the same time.
    unsafe fn store(&self, offset: u64, from: *const u8, length: usize, place: InMessage) -> bool;

    /// Changes a word, and returns the previous value. No other call of this function, for any memory of the process, is between
    /// the read and the write.
    fn update_word(&self, offset: u64, change: &dyn Fn(u64) -> u64) -> Option<u64>;

    /// Waits for all copies, also those of a message whose last bytes never come: the program may use the memory, or free it.
    fn settle(&self);
}

/// Where bytes are in the part of a message that is in the same place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InMessage {
    /// They are the first: what was read ahead for an earlier message is out of date.
    pub starts: bool,
    /// How many bytes of the message follow directly, at least; 0 for the last ones.
    pub following: u64,
}

impl InMessage {
    /// For bytes that are copied alone.
    pub const WHOLE: Self = Self {
        starts: true,
        following: 0,
    };

    /// For `length` bytes at `offset` of a part with `size` bytes.
    #[inline]
    pub(crate) fn of(offset: u64, length: usize, size: u64) -> Self {
        Self {
            starts: offset == 0,
            following: size.saturating_sub(offset + length as u64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::*;
    use super::*;
    use crate::slab::Table;
    use crate::{Attributes, Config, Device, QueuePairInit, QueuePairType, ReceiveRequest, State};
    use std::sync::{Arc, Mutex};

    /// Memory of 64 bytes that notes what is done with it.
    #[derive(Default)]
    struct Noted {
        bytes: Mutex<Vec<u8>>,
        calls: Mutex<Vec<String>>,
    }

    impl Noted {
        fn note(&self, call: String) {
            self.calls.lock().expect("no test panics here").push(call);
        }

        /// What was done since the last call.
        fn calls(&self) -> Vec<String> {
            std::mem::take(&mut *self.calls.lock().expect("no test panics here"))
        }
    }

    const ADDRESS: u64 = 0x7000_0000_0004;

    // SAFETY: `load` writes all bytes of the range, or panics.
    unsafe impl AcceleratorMemory for Arc<Noted> {
        fn address(&self) -> u64 {
            ADDRESS
        }

        unsafe fn load(&self, to: *mut u8, offset: u64, length: usize, place: InMessage) -> bool {
            let InMessage { starts, following } = place;
            self.note(format!(
                "load {offset}+{length} starts {starts} following {following}"
            ));
            let bytes = self.bytes.lock().expect("no test panics here");
            let from = &bytes[offset as usize..][..length];
            // SAFETY: the caller's promise; the slice is as long.
            unsafe { to.copy_from_nonoverlapping(from.as_ptr(), length) };
            true
        }

        unsafe fn store(
            &self,
            offset: u64,
            from: *const u8,
            length: usize,
            place: InMessage,
        ) -> bool {
            self.note(format!(
                "store {offset}+{length} following {}",
                place.following
            ));
            let mut bytes = self.bytes.lock().expect("no test panics here");
            let to = &mut bytes[offset as usize..][..length];
            // SAFETY: the caller's promise; the slice is as long.
            unsafe { to.as_mut_ptr().copy_from_nonoverlapping(from, length) };
            true
        }

        fn update_word(&self, offset: u64, change: &dyn Fn(u64) -> u64) -> Option<u64> {
            self.note(format!("update {offset}"));
            Some(change(5))
        }

        fn settle(&self) {
            self.note("settle".to_owned());
        }
    }

    struct Fixture {
        memory: Memory,
        domain: Id<ProtectionDomain>,
        noted: Arc<Noted>,
        key: Key,
    }

    fn fixture() -> Fixture {
        let noted = Arc::new(Noted::default());
        *noted.bytes.lock().expect("no test panics here") = (0..64).collect();
        let mut domains = Table::with_capacity(1);
        let domain = domains.insert(ProtectionDomain { users: 0 });
        let domain = domain.expect("the table has room for one");
        let mut memory = Memory::new(Random::new([7; 32]), Limits::default());
        let extent = Extent::accelerator_memory(Arc::clone(&noted), 64);
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let registered = memory.register(domain, extent, 0x1000, access);
        Fixture {
            key: registered.expect("the registration is valid").local_key,
            memory,
            domain,
            noted,
        }
    }

    impl Fixture {
        fn segments(&self) -> [Segment; 2] {
            [(8, 10), (40, 20)].map(|(offset, length)| Segment {
                address: 0x1000 + offset,
                length,
                key: self.key,
            })
        }
    }

    #[test]
    fn gathered_pieces_say_what_follows_them_in_their_segment() {
        let it = fixture();
        let mut bytes = Vec::new();
        for offset in [0, 8] {
            let out = &mut Output::Private(&mut bytes);
            let gathered = it.memory.gather(it.domain, &it.segments(), offset, 8, out);
            assert_eq!(gathered, Ok(()));
        }
        let expected = [
            "load 8+8 starts true following 2",
            "load 16+2 starts false following 0",
            "load 40+6 starts true following 14",
        ];
        assert_eq!(it.noted.calls(), expected);
        assert_eq!(bytes, (8..18).chain(40..46).collect::<Vec<_>>());
    }

    #[test]
    fn the_last_bytes_of_a_message_are_told_from_those_before() {
        let it = fixture();
        for (offset, length, ends) in [(0, 4, false), (4, 12, false), (16, 3, true)] {
            let bytes = vec![0xee; length];
            let bytes = bytes[..].into();
            let stored = it
                .memory
                .scatter(it.domain, &it.segments(), offset, bytes, ends);
            assert_eq!(stored, Ok(()));
        }
        let expected = [
            "store 8+4 following 6",
            "store 12+6 following 0",
            "store 40+6 following 14",
            // The message is shorter than its segment.
            "store 46+3 following 0",
        ];
        assert_eq!(it.noted.calls(), expected);
    }

    #[test]
    fn words_are_aligned_where_the_accelerator_has_them() {
        let it = fixture();
        let segment = Segment {
            address: 0x1000,
            length: 64,
            key: it.key,
        };
        let view = |offset| {
            let segment = Segment {
                address: segment.address + offset,
                length: 8,
                ..segment
            };
            it.memory.local(it.domain, &segment, Requirement::NOTHING)
        };
        let update = |offset| view(offset).and_then(|view| view.update_word(|word| word + 1));
        assert_eq!(update(0), Ok(None));
        assert_eq!(update(4), Ok(Some(6)));
        assert_eq!(it.noted.calls(), ["update 4"]);
    }

    #[test]
    fn copies_end_before_memory_is_deregistered_or_replaced() {
        let mut it = fixture();
        let place = (Extent::discarding(8), 0);
        it.memory
            .reregister(it.key, None, Some(place), None)
            .expect("valid");
        assert_eq!(it.noted.calls(), ["settle"]);
        let mut it = fixture();
        it.memory.settle();
        assert_eq!(it.noted.calls(), ["settle"]);
        it.memory.deregister(it.key).expect("valid");
        assert_eq!(it.noted.calls(), ["settle"]);
        it.memory.settle();
        assert!(it.noted.calls().is_empty());
    }

    /// The program may use the memory of a request as soon as it knows that the request has failed, or discards it.
    #[test]
    fn copies_end_before_a_failure_is_told_and_before_a_queue_pair_is_discarded() {
        let noted = Arc::new(Noted::default());
        let mut device = Device::new(Config::default());
        let domain = device.allocate_domain().expect("room");
        let completions = device.create_completion_queue(16).expect("room");
        let extent = Extent::accelerator_memory(Arc::clone(&noted), 64);
        let registered = device.register(domain, extent, 0x1000, Access::LOCAL_WRITE);
        registered.expect("the registration is valid");
        let init = QueuePairInit::new(QueuePairType::Rc, domain, completions);
        let number = device.create_queue_pair(init).expect("room");
        let initialized = Attributes {
            state: Some(State::Initialized),
            partition_index: Some(0),
            port: Some(1),
            access: Some(Access::LOCAL_WRITE),
            ..Attributes::default()
        };
        device.modify(number, &initialized).expect("a legal change");
        let posted = device.post_receive(number, ReceiveRequest::new(1, []));
        posted.expect("room");
        assert!(noted.calls().is_empty());
        device.move_to_error(number).expect("a legal change");
        assert_eq!(noted.calls(), ["settle"]);
        let reset = Attributes {
            state: Some(State::Reset),
            ..Attributes::default()
        };
        device.modify(number, &reset).expect("a legal change");
        assert_eq!(noted.calls(), ["settle"]);
        device.destroy_queue_pair(number).expect("it exists");
        assert_eq!(noted.calls(), ["settle"]);
    }
}
