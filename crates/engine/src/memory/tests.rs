//! Views, bounds, and messages in several segments. Small enough for Miri.

use std::sync::Arc;

use super::*;
use crate::limits::Limits;
use crate::slab::Table;

const ADDRESS: u64 = 0x1000;
const ALL: Access = Access::all().difference(Access::ZERO_BASED);

/// Memory with one domain in use, and another one without memory.
struct Fixture {
    memory: Memory,
    domain: Id<ProtectionDomain>,
    stranger: Id<ProtectionDomain>,
}

fn fixture() -> Fixture {
    let mut domains = Table::with_capacity(2);
    let mut domain = || {
        let domain = domains.insert(ProtectionDomain { users: 0 });
        domain.expect("the table has room for two")
    };
    Fixture {
        memory: Memory::new(Random::new([7; 32]), Limits::default()),
        domain: domain(),
        stranger: domain(),
    }
}

impl Fixture {
    fn register(&mut self, bytes: &[u8], access: Access) -> (Arc<Buffer>, Key) {
        let buffer = Buffer::copy_of(bytes);
        let extent = Extent::from(Arc::clone(&buffer));
        let registered = self.memory.register(self.domain, extent, ADDRESS, access);
        (
            buffer,
            registered.expect("the registration is valid").remote_key,
        )
    }

    fn accessor(&self) -> Accessor {
        Accessor {
            domain: self.domain,
            queue_pair: Qpn::new(16),
        }
    }

    fn remote(&self, key: Key, address: u64, length: u64) -> Result<View<'_>, AccessError> {
        let requirement = Requirement::REMOTE_READ;
        self.memory
            .remote(self.accessor(), key, address, length, requirement)
    }

    fn gather(
        &self,
        segments: &[Segment],
        offset: u64,
        length: usize,
    ) -> Result<Vec<u8>, AccessError> {
        let mut out = Vec::new();
        self.memory.gather(
            self.domain,
            segments,
            offset,
            length,
            &mut Output::Private(&mut out),
        )?;
        Ok(out)
    }

    fn scatter(&self, segments: &[Segment], offset: u64, bytes: &[u8]) -> Result<(), AccessError> {
        self.memory
            .scatter(self.domain, segments, offset, bytes.into(), false)
    }
}

fn segment(key: Key, offset: u64, length: u32) -> Segment {
    Segment {
        address: ADDRESS + offset,
        length,
        key,
    }
}

fn error<T>(result: Result<T, AccessError>) -> Option<AccessError> {
    result.err()
}

#[test]
fn view_reads_and_writes_only_its_range() {
    let mut fixture = fixture();
    let (buffer, key) = fixture.register(b"0123456789", ALL);
    let view = fixture
        .remote(key, ADDRESS + 3, 4)
        .expect("the range is inside");
    let mut out = Vec::new();
    assert_eq!(
        view.append_to(&mut Output::Private(&mut out), 1, 2, InMessage::WHOLE),
        Ok(())
    );
    assert_eq!(out, b"45");
    assert_eq!(view.store(0, b"abcd"[..].into(), InMessage::WHOLE), Ok(()));
    assert_eq!(buffer.to_vec(), b"012abcd789");
}

#[test]
#[should_panic]
fn read_beyond_a_view_panics_even_inside_the_region() {
    let mut fixture = fixture();
    let (_buffer, key) = fixture.register(b"0123456789", ALL);
    let view = fixture
        .remote(key, ADDRESS, 4)
        .expect("the range is inside");
    let _ = view.append_to(
        &mut Output::Private(&mut Vec::new()),
        2,
        3,
        InMessage::WHOLE,
    );
}

#[test]
#[should_panic]
fn write_beyond_a_view_panics_even_inside_the_region() {
    let mut fixture = fixture();
    let (_buffer, key) = fixture.register(b"0123456789", ALL);
    let view = fixture
        .remote(key, ADDRESS, 4)
        .expect("the range is inside");
    let _ = view.store(2, b"abc"[..].into(), InMessage::WHOLE);
}

#[test]
fn range_must_end_at_or_before_the_last_byte() {
    let mut fixture = fixture();
    let (_buffer, key) = fixture.register(&[0; 16], ALL);
    for (address, length) in [(ADDRESS, 16), (ADDRESS + 15, 1), (ADDRESS + 16, 0)] {
        assert!(fixture.remote(key, address, length).is_ok());
    }
    for (address, length) in [
        (ADDRESS, 17),
        (ADDRESS + 16, 1),
        (ADDRESS + 17, 0),
        (ADDRESS - 1, 1),
        (ADDRESS - 1, 0),
        (0, 1),
    ] {
        let outside = error(fixture.remote(key, address, length));
        assert_eq!(outside, Some(AccessError::OutOfRange), "{address:#x}");
    }
}

#[test]
fn range_that_overflows_is_rejected() {
    let mut fixture = fixture();
    let (_buffer, key) = fixture.register(&[0; 16], ALL);
    for (address, length) in [
        (ADDRESS, u64::MAX),
        (ADDRESS + 1, u64::MAX),
        (u64::MAX, 1),
        (u64::MAX, u64::MAX),
        (ADDRESS + 8, u64::MAX - 7),
    ] {
        let outside = error(fixture.remote(key, address, length));
        assert_eq!(outside, Some(AccessError::OutOfRange));
    }
}

#[test]
fn region_at_the_end_of_the_address_space_is_usable() {
    let mut fixture = fixture();
    let extent = || Extent::from(Buffer::zeroed(16));
    let top = u64::MAX - 16;
    let registered = fixture.memory.register(fixture.domain, extent(), top, ALL);
    let key = registered
        .expect("the range fits the address space")
        .remote_key;
    assert!(fixture.remote(key, top, 16).is_ok());
    assert!(fixture.remote(key, top, 17).is_err());
    let rejected = fixture
        .memory
        .register(fixture.domain, extent(), top + 1, ALL);
    assert!(matches!(rejected, Err(MemoryError::AddressOverflow { .. })));
}

#[test]
fn wrong_key_domain_or_right_is_rejected_with_its_error() {
    let mut fixture = fixture();
    let (_buffer, key) = fixture.register(&[0; 16], Access::REMOTE_READ);
    let stranger = Accessor {
        domain: fixture.stranger,
        queue_pair: Qpn::new(16),
    };
    let invented = Key::new(key.value() ^ 1);
    let ask = |accessor, key, requirement| {
        error(
            fixture
                .memory
                .remote(accessor, key, ADDRESS, 4, requirement),
        )
    };
    let accessor = fixture.accessor();
    assert_eq!(ask(accessor, key, Requirement::REMOTE_READ), None);
    assert_eq!(
        ask(accessor, invented, Requirement::REMOTE_READ),
        Some(AccessError::UnknownKey)
    );
    assert_eq!(
        ask(stranger, key, Requirement::REMOTE_READ),
        Some(AccessError::OtherDomain)
    );
    assert_eq!(
        ask(accessor, key, Requirement::of(Access::REMOTE_WRITE)),
        Some(AccessError::Forbidden(Access::REMOTE_WRITE))
    );
}

#[test]
fn message_is_gathered_from_segments_of_any_length() {
    let mut fixture = fixture();
    let (_a, a) = fixture.register(b"abcdefgh", Access::empty());
    let (_b, b) = fixture.register(b"ABCDEFGH", Access::empty());
    let segments = [
        segment(a, 0, 0),
        segment(a, 1, 3),
        segment(b, 7, 1),
        segment(b, 8, 0),
        segment(a, 0, 8),
        segment(b, 2, 2),
    ];
    let whole = b"bcdHabcdefghCD";
    for offset in 0..=whole.len() {
        for end in offset..=whole.len() {
            let gathered = fixture.gather(&segments, offset as u64, end - offset);
            assert_eq!(
                gathered.expect("the memory is accessible"),
                whole[offset..end]
            );
        }
    }
}

#[test]
fn message_is_scattered_to_segments_of_any_length() {
    for offset in 0..=9 {
        for end in offset..=9 {
            let mut fixture = fixture();
            let (left, a) = fixture.register(b"....", Access::LOCAL_WRITE);
            let (right, b) = fixture.register(b"........", Access::LOCAL_WRITE);
            let segments = [
                segment(a, 1, 2),
                segment(b, 0, 0),
                segment(b, 0, 3),
                segment(b, 4, 4),
            ];
            let message = b"123456789";
            let stored = fixture.scatter(&segments, offset as u64, &message[offset..end]);
            stored.expect("the memory is writable");
            let expected = |index: usize| {
                if (offset..end).contains(&index) {
                    message[index]
                } else {
                    b'.'
                }
            };
            let [one, two] = [expected(0), expected(1)];
            assert_eq!(left.to_vec(), [b'.', one, two, b'.']);
            let order = [
                Some(2),
                Some(3),
                Some(4),
                None,
                Some(5),
                Some(6),
                Some(7),
                Some(8),
            ];
            let wanted = order.map(|index| index.map_or(b'.', expected));
            assert_eq!(right.to_vec(), wanted);
        }
    }
}

#[test]
fn gather_needs_a_key_of_the_domain_and_scatter_needs_local_write() {
    let mut fixture = fixture();
    let (buffer, key) = fixture.register(&[0; 8], Access::REMOTE_READ);
    assert!(fixture.gather(&[segment(key, 0, 8)], 0, 8).is_ok());
    assert_eq!(
        fixture.scatter(&[segment(key, 0, 8)], 0, b"no"),
        Err(AccessError::Forbidden(Access::LOCAL_WRITE))
    );
    let invented = Key::new(key.value() ^ 1);
    let unknown = fixture.gather(&[segment(invented, 0, 8)], 0, 8);
    assert_eq!(error(unknown), Some(AccessError::UnknownKey));
    let stranger = fixture.stranger;
    let mut out = Vec::new();
    let segments = [segment(key, 0, 8)];
    let other = fixture
        .memory
        .gather(stranger, &segments, 0, 8, &mut Output::Private(&mut out));
    assert_eq!(other, Err(AccessError::OtherDomain));
    assert_eq!(buffer.to_vec(), [0; 8]);
}

#[test]
fn segment_that_exceeds_the_region_is_rejected_even_if_the_used_part_is_inside() {
    let mut fixture = fixture();
    let (_buffer, key) = fixture.register(&[0; 8], ALL);
    let outside = fixture.gather(&[segment(key, 4, 5)], 0, 1);
    assert_eq!(error(outside), Some(AccessError::OutOfRange));
}

#[test]
fn unused_segment_is_not_checked() {
    let mut fixture = fixture();
    let (_buffer, key) = fixture.register(b"abcd", ALL);
    let nonsense = segment(Key::new(0), 0, 4);
    let gathered = fixture.gather(&[segment(key, 0, 4), nonsense], 0, 4);
    assert_eq!(gathered, Ok(b"abcd".to_vec()));
    let gathered = fixture.gather(&[nonsense, segment(key, 0, 4)], 4, 4);
    assert_eq!(gathered, Ok(b"abcd".to_vec()));
    let empty = segment(Key::new(0), 0, 0);
    let gathered = fixture.gather(&[empty, segment(key, 0, 4)], 0, 4);
    assert_eq!(gathered, Ok(b"abcd".to_vec()));
}

#[test]
fn one_region_may_appear_twice_in_a_message() {
    let mut fixture = fixture();
    let (buffer, key) = fixture.register(b"....", Access::LOCAL_WRITE);
    let segments = [segment(key, 0, 4), segment(key, 1, 2)];
    fixture.scatter(&segments, 0, b"abcdXY").expect("writable");
    assert_eq!(buffer.to_vec(), b"aXYd");
}

#[test]
fn atomic_update_needs_eight_aligned_bytes() {
    let mut fixture = fixture();
    let (buffer, key) = fixture.register(&[0; 16], ALL);
    let aligned = fixture
        .remote(key, ADDRESS + 8, 8)
        .expect("the range is inside");
    assert_eq!(aligned.update_word(|word| word + 5), Ok(Some(0)));
    assert_eq!(aligned.update_word(|word| word * 2), Ok(Some(5)));
    assert_eq!(buffer.to_vec()[8..], 10_u64.to_ne_bytes());
    let unaligned = fixture
        .remote(key, ADDRESS + 4, 8)
        .expect("the range is inside");
    assert_eq!(unaligned.update_word(|word| word + 1), Ok(None));
}

#[test]
fn permits_checks_key_and_rights_without_a_range() {
    let mut fixture = fixture();
    let (_buffer, key) = fixture.register(&[0; 16], Access::FLUSH_GLOBAL);
    let permits = |access| {
        let requirement = Requirement::of(access);
        fixture.memory.permits(fixture.accessor(), key, requirement)
    };
    assert_eq!(permits(Access::FLUSH_GLOBAL), Ok(()));
    assert!(permits(Access::FLUSH_PERSISTENT).is_err());
}

#[test]
fn window_grants_access_to_its_part_of_the_region_only() {
    let mut fixture = fixture();
    let access = Access::LOCAL_WRITE | Access::WINDOW_BIND;
    let (buffer, region) = fixture.register(b"0123456789", access);
    let accessor = fixture.accessor();
    let window = fixture
        .memory
        .allocate_window(fixture.domain, WindowKind::Two)
        .expect("a window");
    let binding = Binding {
        region,
        address: ADDRESS + 2,
        length: 5,
        access: Access::REMOTE_READ | Access::ZERO_BASED,
    };
    let key = Key::new(window.value() ^ 1);
    let bound = fixture.memory.bind_type_2(accessor, window, key, binding);
    bound.expect("the binding is valid");
    let view = fixture.remote(key, 1, 4).expect("inside of the window");
    let mut out = Vec::new();
    assert_eq!(
        view.append_to(&mut Output::Private(&mut out), 0, 4, InMessage::WHOLE),
        Ok(())
    );
    assert_eq!(out, b"3456");
    let outside = error(fixture.remote(key, 1, 5));
    assert_eq!(outside, Some(AccessError::OutOfRange));
    let overflow = error(fixture.remote(key, u64::MAX, 2));
    assert_eq!(overflow, Some(AccessError::OutOfRange));
    assert_eq!(buffer.to_vec(), b"0123456789");
}

#[test]
fn window_key_is_rejected_in_local_segments() {
    let mut fixture = fixture();
    let window = fixture
        .memory
        .allocate_window(fixture.domain, WindowKind::Two)
        .expect("a window");
    let gathered = fixture.gather(&[segment(window, 0, 1)], 0, 1);
    assert_eq!(error(gathered), Some(AccessError::UnknownKey));
}

#[test]
fn deregistered_key_is_invalid_and_not_reused_next() {
    let mut fixture = fixture();
    let (_buffer, key) = fixture.register(&[0; 8], ALL);
    fixture
        .memory
        .deregister(key)
        .expect("the region has no windows");
    let gone = error(fixture.remote(key, ADDRESS, 1));
    assert_eq!(gone, Some(AccessError::UnknownKey));
    let (_buffer, next) = fixture.register(&[0; 8], ALL);
    assert_ne!(next, key);
    assert_eq!(fixture.memory.len(), 1);
}
