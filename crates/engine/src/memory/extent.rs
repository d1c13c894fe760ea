//! Extents: the memory of a region, of whatever kind.
//!
//! Registered memory belongs to the application. The application and the device may both write it
//! at any time, as with DMA of a NIC. So no reference to its bytes is ever formed: every access is
//! a copy or an 8-byte atomic of an [`Extent`], whose bounds are checked here.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use wire::PayloadBytes;

use super::accelerator::{AcceleratorMemory, InMessage};
use super::buffer::Buffer;
use super::error::NotAccessible;
use super::output::Output;

/// Access functions for memory that its program may unmap or protect at any time.
///
/// Each function reports whether the program memory was accessible. A copy that fails may have
/// copied a part.
pub struct ProgramMemoryAccess {
    /// Copies program bytes (`from`) to local bytes (`to`). Returns false if they are not readable.
    pub load: unsafe fn(to: *mut u8, from: *const u8, length: usize) -> bool,
    /// Copies local bytes (`from`) to program bytes (`to`). Returns false if they are not writable.
    pub store: unsafe fn(to: *mut u8, from: *const u8, length: usize) -> bool,
    /// Atomic compare-and-swap of an aligned program word. Returns the previous value.
    pub compare_swap: unsafe fn(word: *mut u64, expected: u64, new: u64) -> Option<u64>,
    /// The first address at which the program has changed the mapping since it registered the memory, and how. The
    /// last argument says whether the device may write the memory.
    pub changed_mapping:
        fn(address: usize, length: usize, writable: bool) -> Option<(u64, MappingChange)>,
}

/// What a program did to memory that is registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MappingChange {
    /// It was unmapped, or protected against any access.
    Unmapped,
    /// It was protected against writes, although the device may write it.
    ReadOnly,
    /// Its pages were given back to the system: other ones take their place.
    Replaced,
}

/// What is copied at once without a buffer of the device.
pub(super) type Few = [u64; 8];

/// The memory of a region: a [`Buffer`], program memory or memory of an accelerator.
#[derive(Clone)]
pub struct Extent {
    backing: Backing,
    length: u64,
}

#[derive(Clone)]
enum Backing {
    /// A buffer, starting at this offset. The region keeps it alive.
    Buffer(Arc<Buffer>, usize),
    /// Memory that may be unmapped, and how to access it.
    Program(NonNull<u8>, &'static ProgramMemoryAccess),
    /// Memory that the processor does not access, starting at this offset.
    Accelerator(Arc<Box<dyn AcceleratorMemory>>, u64),
    /// Memory that does not exist: writes are discarded and reads return zeros.
    Nothing,
    /// Memory that its owner uses itself for the moment: every access fails.
    Detached,
}

// SAFETY: an extent is an address range. A buffer and memory of an accelerator are `Send`; program bytes
// are accessed only by functions that are sound for any address, on any thread.
unsafe impl Send for Extent {}

// SAFETY: as for `Send`: shared use makes the same copies.
unsafe impl Sync for Extent {}

impl From<Arc<Buffer>> for Extent {
    fn from(buffer: Arc<Buffer>) -> Self {
        Self {
            length: buffer.len() as u64,
            backing: Backing::Buffer(buffer, 0),
        }
    }
}

impl Extent {
    /// Memory of a C program, which may unmap it while it is registered.
    ///
    /// # Safety
    /// The functions of `access` must be sound for any address in the range, mapped or not. No Rust
    /// reference to the bytes may exist while the device may write them.
    #[must_use]
    pub unsafe fn program_memory(
        start: NonNull<u8>,
        length: u64,
        access: &'static ProgramMemoryAccess,
    ) -> Self {
        Self {
            backing: Backing::Program(start, access),
            length,
        }
    }

    /// Memory of an accelerator.
    #[must_use]
    pub fn accelerator_memory(memory: impl AcceleratorMemory + 'static, length: u64) -> Self {
        Self {
            backing: Backing::Accelerator(Arc::new(Box::new(memory)), 0),
            length,
        }
    }

    /// Memory of any length that reads as zeros and discards writes.
    #[must_use]
    pub fn discarding(length: u64) -> Self {
        Self {
            backing: Backing::Nothing,
            length,
        }
    }

    /// The place of memory that its owner uses itself for the moment: every access fails.
    #[must_use]
    pub fn detached(length: u64) -> Self {
        Self {
            backing: Backing::Detached,
            length,
        }
    }

    /// A part of the extent, or `None` if the range exceeds it.
    #[must_use]
    pub fn part(&self, offset: u64, length: u64) -> Option<Self> {
        if offset.checked_add(length)? > self.length {
            return None;
        }
        let backing = match &self.backing {
            Backing::Buffer(buffer, start) => {
                Backing::Buffer(Arc::clone(buffer), start + offset as usize)
            }
            // Cannot overflow or be zero: the part is inside existing memory.
            Backing::Program(start, access) => Backing::Program(
                start.map_addr(|start| start.saturating_add(offset as usize)),
                access,
            ),
            Backing::Accelerator(memory, start) => {
                Backing::Accelerator(Arc::clone(memory), start + offset)
            }
            Backing::Nothing => Backing::Nothing,
            Backing::Detached => Backing::Detached,
        };
        Some(Self { backing, length })
    }

    /// The address of its first byte in this process or in an accelerator, if it has one.
    pub(crate) fn address(&self) -> Option<u64> {
        match &self.backing {
            Backing::Buffer(buffer, start) => Some(buffer.address() + *start as u64),
            Backing::Program(start, _) => Some(start.addr().get() as u64),
            Backing::Accelerator(memory, start) => Some(memory.address() + start),
            Backing::Nothing | Backing::Detached => None,
        }
    }

    /// The first address at which the program has changed the mapping, and how.
    pub(crate) fn changed_mapping(&self, writable: bool) -> Option<(u64, MappingChange)> {
        match &self.backing {
            Backing::Program(start, access) => {
                (access.changed_mapping)(start.addr().get(), self.length as usize, writable)
            }
            Backing::Buffer(..)
            | Backing::Accelerator(..)
            | Backing::Nothing
            | Backing::Detached => None,
        }
    }

    /// Whether it is memory of an accelerator.
    pub(super) fn is_accelerated(&self) -> bool {
        matches!(self.backing, Backing::Accelerator(..))
    }

    /// Whether its owner uses the memory itself.
    pub(super) fn is_detached(&self) -> bool {
        matches!(self.backing, Backing::Detached)
    }

    /// Waits until no copy of its bytes is under way.
    pub(crate) fn settle(&self) {
        if let Backing::Accelerator(memory, _) = &self.backing {
            memory.settle();
        }
    }

    /// Its size in bytes.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Appends `length` bytes, starting at `offset`, to `out`.
    #[inline]
    pub(crate) fn append_to(
        &self,
        out: &mut Output<'_>,
        offset: u64,
        length: usize,
        place: InMessage,
    ) -> Result<(), NotAccessible> {
        assert!(within(offset, length, self.length));
        match &self.backing {
            Backing::Buffer(buffer, start) => {
                out.append_buffer(buffer, start + offset as usize, length);
            }
            Backing::Program(start, access) => {
                let from = byte_at(*start, offset);
                // SAFETY: `from` is inside the extent by the assertion, so the contract of `program_memory`
                // allows the call for it, and `append_raw` passes room for `length` bytes.
                let load = |to| unsafe { (access.load)(to, from, length) };
                // SAFETY: a call that succeeds has written `length` bytes; the functions of `access` copy by
                // instructions that are sound while others access the memory.
                unsafe { out.append_raw(length, load) }?;
            }
            Backing::Accelerator(memory, start) => {
                // SAFETY: `append_raw` passes room for `length` bytes.
                let load = |to| unsafe { memory.load(to, start + offset, length, place) };
                // SAFETY: a call that succeeds has written `length` bytes, as the trait demands; it copies while others
                // may access them.
                unsafe { out.append_raw(length, load) }?;
            }
            Backing::Nothing => out.append_zeros(length),
            Backing::Detached => return Err(NotAccessible),
        }
        Ok(())
    }

    /// The words at `offset`, if these bytes are whole words of a buffer.
    #[inline(always)]
    pub(super) fn words(&self, offset: u64, length: usize) -> Option<&[AtomicU64]> {
        match &self.backing {
            Backing::Buffer(buffer, start) => buffer.whole_words(start + offset as usize, length),
            Backing::Program(..)
            | Backing::Accelerator(..)
            | Backing::Nothing
            | Backing::Detached => None,
        }
    }

    /// Copies bytes at `offset` out of it. Returns false if they are not whole words of a buffer, nor accessible program memory.
    #[inline]
    pub(super) fn load_few(&self, into: &mut Few, offset: u64, length: usize) -> bool {
        assert!(within(offset, length, self.length) && length <= size_of::<Few>());
        match &self.backing {
            Backing::Buffer(buffer, start) => {
                let Some(words) = buffer.whole_words(start + offset as usize, length) else {
                    return false;
                };
                for (into, word) in into.iter_mut().zip(words) {
                    *into = word.load(Ordering::Relaxed);
                }
                // What was written before a word that is seen here is seen from now on.
                fence(Ordering::Acquire);
                true
            }
            // SAFETY: `length` bytes are inside the extent and inside `into`, by the assertion.
            Backing::Program(start, access) => unsafe {
                (access.load)(into.as_mut_ptr().cast(), byte_at(*start, offset), length)
            },
            Backing::Accelerator(..) | Backing::Nothing | Backing::Detached => false,
        }
    }

    /// Copies bytes to `offset`. Returns false as [`load_few`](Self::load_few).
    #[inline]
    pub(super) fn store_few(&self, from: &Few, offset: u64, length: usize) -> bool {
        assert!(within(offset, length, self.length) && length <= size_of::<Few>());
        match &self.backing {
            Backing::Buffer(buffer, start) => {
                let Some(words) = buffer.whole_words(start + offset as usize, length) else {
                    return false;
                };
                // A thread that reads one of these words also sees what was written before them.
                fence(Ordering::Release);
                for (word, from) in words.iter().zip(from) {
                    word.store(*from, Ordering::Relaxed);
                }
                true
            }
            // SAFETY: `length` bytes are inside the extent and inside `from`, by the assertion.
            Backing::Program(start, access) => unsafe {
                (access.store)(byte_at(*start, offset), from.as_ptr().cast(), length)
            },
            Backing::Accelerator(..) | Backing::Nothing | Backing::Detached => false,
        }
    }

    /// Copies `bytes` to `offset`.
    #[inline]
    pub(crate) fn store(
        &self,
        offset: u64,
        bytes: PayloadBytes<'_>,
        place: InMessage,
    ) -> Result<(), NotAccessible> {
        assert!(within(offset, bytes.len(), self.length));
        match &self.backing {
            Backing::Buffer(buffer, start) => {
                let at = start + offset as usize;
                match bytes {
                    PayloadBytes::Private(bytes) => buffer.store(at, bytes),
                    PayloadBytes::Shared(bytes) => buffer.store(at, bytes),
                }
            }
            Backing::Program(start, access) => {
                let to = byte_at(*start, offset);
                let from = start_of(bytes);
                // SAFETY: `to` is inside the extent by the assertion, so the contract of `program_memory`
                // allows the call; `bytes` is alive and does not overlap registered memory.
                if !unsafe { (access.store)(to, from, bytes.len()) } {
                    return Err(NotAccessible);
                }
            }
            Backing::Accelerator(memory, start) => {
                let from = start_of(bytes);
                // SAFETY: `bytes` is alive.
                if !unsafe { memory.store(start + offset, from, bytes.len(), place) } {
                    return Err(NotAccessible);
                }
            }
            Backing::Nothing => {}
            Backing::Detached => return Err(NotAccessible),
        }
        Ok(())
    }

    /// Changes the word at `offset` atomically. Returns the previous value, or `None` if the word
    /// is not 8-byte aligned.
    #[inline]
    pub(crate) fn update_word(
        &self,
        offset: u64,
        change: impl Fn(u64) -> u64,
    ) -> Result<Option<u64>, NotAccessible> {
        assert!(within(offset, 8, self.length));
        match &self.backing {
            Backing::Buffer(buffer, start) => {
                let word = buffer.word(start + offset as usize);
                Ok(word.map(|word| {
                    let changed = word
                        .fetch_update(Ordering::AcqRel, Ordering::Acquire, |old| Some(change(old)));
                    changed.expect("the closure always returns a value")
                }))
            }
            Backing::Program(start, access) => {
                let word = byte_at(*start, offset).cast::<u64>();
                if word.is_aligned() {
                    update_program_memory(access, word, change).map(Some)
                } else {
                    Ok(None)
                }
            }
            Backing::Accelerator(memory, start) => {
                let offset = start + offset;
                if !(memory.address() + offset).is_multiple_of(8) {
                    return Ok(None);
                }
                let previous = memory.update_word(offset, &change);
                previous.ok_or(NotAccessible).map(Some)
            }
            Backing::Nothing => Ok(Some(0)),
            Backing::Detached => Err(NotAccessible),
        }
    }
}

/// The address of bytes that are copied.
fn start_of(bytes: PayloadBytes<'_>) -> *const u8 {
    match bytes {
        PayloadBytes::Private(bytes) => bytes.as_ptr(),
        PayloadBytes::Shared(bytes) => bytes.as_ptr().cast(),
    }
}

/// The address of `offset` in program memory. The caller has checked that it is inside.
fn byte_at(start: NonNull<u8>, offset: u64) -> *mut u8 {
    // Wrapping arithmetic: computing an address is always sound.
    start.as_ptr().wrapping_add(offset as usize)
}

/// Changes an aligned word of program memory atomically.
fn update_program_memory(
    access: &ProgramMemoryAccess,
    word: *mut u64,
    change: impl Fn(u64) -> u64,
) -> Result<u64, NotAccessible> {
    // An assumed value. The first exchange returns the real one.
    let mut expected = 0;
    loop {
        // SAFETY: `word` is inside a program extent and aligned: `update_word` checked both.
        let found = unsafe { (access.compare_swap)(word, expected, change(expected)) };
        match found.ok_or(NotAccessible)? {
            found if found == expected => return Ok(found),
            found => expected = found,
        }
    }
}

fn within(offset: u64, length: usize, size: u64) -> bool {
    offset
        .checked_add(length as u64)
        .is_some_and(|end| end <= size)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr;

    const WHOLE: InMessage = InMessage::WHOLE;

    fn bytes(bytes: &[u8]) -> PayloadBytes<'_> {
        bytes.into()
    }

    #[test]
    fn extent_keeps_its_buffer_alive() {
        let extent = Extent::from(Buffer::copy_of(b"alive"));
        let mut out = b"still ".to_vec();
        extent
            .append_to(&mut Output::Private(&mut out), 0, 5, WHOLE)
            .expect("a buffer is accessible");
        assert_eq!(out, b"still alive");
    }

    #[test]
    fn part_of_an_extent_has_its_own_bounds() {
        let extent = Extent::from(Buffer::copy_of(b"rocinante"));
        let part = extent.part(4, 3).expect("the range is inside");
        let mut out = Vec::new();
        part.append_to(&mut Output::Private(&mut out), 0, 3, WHOLE)
            .expect("a buffer is accessible");
        assert_eq!(out, b"nan");
        assert!(extent.part(4, 6).is_none());
        assert!(extent.part(u64::MAX, 2).is_none());
    }

    #[test]
    fn discarding_extent_reads_as_zeros() {
        let extent = Extent::discarding(u64::MAX);
        extent
            .store(1 << 40, bytes(b"gone"), WHOLE)
            .expect("a discarding extent accepts any access");
        let mut out = b"zero".to_vec();
        extent
            .append_to(&mut Output::Private(&mut out), 1 << 40, 2, WHOLE)
            .expect("a discarding extent accepts any access");
        assert_eq!(out, b"zero\0\0");
        assert_eq!(extent.update_word(4, |word| word + 1), Ok(Some(0)));
    }

    #[test]
    fn access_to_a_detached_extent_fails() {
        let extent = Extent::detached(32);
        assert_eq!(extent.length(), 32);
        let part = extent.part(8, 8).expect("the range is inside");
        for extent in [extent, part] {
            assert_eq!(extent.store(0, bytes(b"no"), WHOLE), Err(NotAccessible));
            assert_eq!(
                extent.append_to(&mut Output::Private(&mut Vec::new()), 0, 2, WHOLE),
                Err(NotAccessible)
            );
            assert_eq!(extent.update_word(0, |word| word), Err(NotAccessible));
        }
    }

    /// Program memory of which at most 4 bytes are accessible at once.
    static FOUR_BYTES: ProgramMemoryAccess = ProgramMemoryAccess {
        load: copy_four,
        store: copy_four,
        compare_swap: |_, _, _| None,
        changed_mapping: |_, _, _| None,
    };

    unsafe fn copy_four(to: *mut u8, from: *const u8, length: usize) -> bool {
        if length <= 4 {
            // SAFETY: the test passes memory that exists.
            unsafe { ptr::copy_nonoverlapping(from, to, length) };
        }
        length <= 4
    }

    #[repr(align(8))]
    struct Aligned([u8; 16]);

    #[test]
    fn access_to_unmapped_program_memory_fails() {
        let mut memory = Aligned(*b"0123456789abcdef");
        let start = NonNull::from(&mut memory.0).cast();
        // SAFETY: the memory outlives the extent, and no reference to it is used meanwhile.
        let extent = unsafe { Extent::program_memory(start, 16, &FOUR_BYTES) };
        let mut out = Vec::new();
        assert_eq!(
            extent.append_to(&mut Output::Private(&mut out), 2, 4, WHOLE),
            Ok(())
        );
        assert_eq!(
            extent.append_to(&mut Output::Private(&mut out), 2, 5, WHOLE),
            Err(NotAccessible)
        );
        assert_eq!(extent.store(0, bytes(b"there"), WHOLE), Err(NotAccessible));
        assert_eq!(extent.store(0, bytes(b"four"), WHOLE), Ok(()));
        assert_eq!(extent.update_word(8, |_| 0), Err(NotAccessible));
        let part = extent.part(8, 8).expect("the range is inside");
        assert_eq!(part.store(0, bytes(b"there"), WHOLE), Err(NotAccessible));
        assert_eq!(out, b"2345");
        assert_eq!(&memory.0, b"four456789abcdef");
    }

    #[test]
    fn few_bytes_are_copied_if_they_are_whole_words_or_program_memory() {
        let mut memory = Aligned(*b"................");
        let start = NonNull::from(&mut memory.0).cast();
        // SAFETY: the memory outlives the extent, and no reference to it is used meanwhile.
        let program = unsafe { Extent::program_memory(start, 16, &FOUR_BYTES) };
        let buffer = Extent::from(Buffer::copy_of(b"0123456789abcdef"));
        let mut few = Few::default();
        assert!(buffer.load_few(&mut few, 8, 8));
        assert!(program.store_few(&few, 2, 4) && !program.store_few(&few, 2, 5));
        assert!(program.load_few(&mut few, 1, 4) && !program.load_few(&mut few, 1, 5));
        assert!(buffer.store_few(&few, 0, 8));
        assert!(!buffer.load_few(&mut few, 4, 8) && !buffer.store_few(&few, 0, 4));
        for other in [Extent::discarding(8), Extent::detached(8)] {
            assert!(!other.load_few(&mut few, 0, 8) && !other.store_few(&few, 0, 8));
        }
        let mut out = Vec::new();
        let read = buffer.append_to(&mut Output::Private(&mut out), 0, 16, WHOLE);
        read.expect("a buffer is accessible");
        assert_eq!(&out, b".89acdef89abcdef");
        assert_eq!(&memory.0, b"..89ab..........");
    }

    #[test]
    fn update_of_an_unaligned_word_is_rejected() {
        let extent = Extent::from(Buffer::zeroed(32));
        assert_eq!(extent.update_word(4, |word| word + 1), Ok(None));
        assert_eq!(extent.update_word(8, |word| word + 1), Ok(Some(0)));
        assert_eq!(extent.update_word(8, |word| word + 1), Ok(Some(1)));
    }

    #[test]
    #[should_panic]
    fn store_at_an_overflowing_offset_panics() {
        let _ = Extent::from(Buffer::zeroed(32)).store(u64::MAX - 1, bytes(b"no"), WHOLE);
    }
}
