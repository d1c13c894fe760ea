//! The one room of the engine where `unsafe` lives: bytes that others may be writing.
//!
//! Registered memory belongs to the application, and the application and the wire may both write
//! it at any moment, just as with a NIC that does DMA. So no reference to its bytes is ever formed:
//! everything goes through raw copies of an [`Extent`], whose bounds are checked here and nowhere
//! else, and through 8-byte atomics.

use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that several parties may read and write: the safe kind of memory to register.
///
/// All access is by copy, so that a remote peer can write at any moment.
pub struct Buffer {
    // Atomics because they are interior-mutable and 8-byte aligned, as remote atomics need it.
    words: Box<[AtomicU64]>,
    length: usize,
}

impl Buffer {
    /// `length` bytes of zeroes.
    #[must_use]
    pub fn zeroed(length: usize) -> Arc<Self> {
        let words = (0..length.div_ceil(8)).map(|_| AtomicU64::new(0)).collect();
        Arc::new(Self { words, length })
    }

    /// `length` bytes of zeroes, or nothing if there is not so much memory.
    #[must_use]
    pub fn try_zeroed(length: usize) -> Option<Arc<Self>> {
        let count = length.div_ceil(8);
        let mut words = Vec::new();
        words.try_reserve_exact(count).ok()?;
        words.resize_with(count, || AtomicU64::new(0));
        let words = words.into_boxed_slice();
        Some(Arc::new(Self { words, length }))
    }

    /// A buffer that begins as a copy of `bytes`.
    #[must_use]
    pub fn copy_of(bytes: &[u8]) -> Arc<Self> {
        let buffer = Self::zeroed(bytes.len());
        buffer.write(0, bytes);
        buffer
    }

    /// Its size in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether it holds no bytes at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The address of its first byte, as work requests name it.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.start().as_ptr() as u64
    }

    /// Copies bytes out of it.
    ///
    /// # Panics
    /// If `offset` and the length of `into` reach beyond its end.
    pub fn read(&self, offset: usize, into: &mut [u8]) {
        assert!(within(offset as u64, into.len(), self.length as u64));
        // SAFETY: the assertion keeps offset + len inside `words`, which `self` keeps alive; `into`
        // is an exclusive reference, so it can't overlap memory that is shared here.
        unsafe {
            ptr::copy_nonoverlapping(self.at(offset), into.as_mut_ptr(), into.len());
        }
    }

    /// Copies bytes into it.
    ///
    /// # Panics
    /// If `offset` and the length of `from` reach beyond its end.
    pub fn write(&self, offset: usize, from: &[u8]) {
        assert!(within(offset as u64, from.len(), self.length as u64));
        // SAFETY: as in `read`; the bytes are inside `UnsafeCell`s (the atomics), so writing them
        // through a shared reference is allowed, and `from` can't overlap them.
        unsafe {
            ptr::copy_nonoverlapping(from.as_ptr(), self.at(offset), from.len());
        }
    }

    /// A copy of all its bytes.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.length];
        self.read(0, &mut bytes);
        bytes
    }

    fn start(&self) -> NonNull<u8> {
        NonNull::from(&*self.words).cast()
    }

    /// Where `offset` is. The caller has checked that it is inside.
    fn at(&self, offset: usize) -> *mut u8 {
        // Wrapping: computing it is harmless, and the caller's assertion makes it in bounds.
        self.start().as_ptr().wrapping_add(offset)
    }
}

/// How to touch memory that its program may unmap or protect at any moment.
///
/// Each function says when the foreign bytes can't be touched. A copy that ends in the middle may
/// have done a part.
pub struct ForeignAccess {
    /// Copies foreign bytes (`from`) to our own (`to`); false if they can't be read.
    pub load: unsafe fn(to: *mut u8, from: *const u8, length: usize) -> bool,
    /// Copies our own bytes (`from`) to foreign ones (`to`); false if they can't be written.
    pub store: unsafe fn(to: *mut u8, from: *const u8, length: usize) -> bool,
    /// Atomic compare-and-swap of an aligned foreign word; the value that was there.
    pub compare_swap: unsafe fn(word: *mut u64, expected: u64, new: u64) -> Option<u64>,
}

/// There is no memory where foreign memory should be, or it can't be used this way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Absent;

/// Memory that a region covers: a [`Buffer`], or foreign bytes.
#[derive(Clone)]
pub struct Extent {
    start: NonNull<u8>,
    length: u64,
    /// Keeps a buffer alive for as long as a region stands on it.
    owner: Option<Arc<Buffer>>,
    /// Whether there are no bytes at all behind it.
    discards: bool,
    /// How to touch memory that may vanish; a buffer can't.
    foreign: Option<&'static ForeignAccess>,
}

// SAFETY: an extent is an address range; every access is a bounds-checked raw copy or an atomic, and
// the bytes are kept alive by ownership or touched by functions that find out when they are gone.
unsafe impl Send for Extent {}

// SAFETY: as for `Send`: shared use makes the same raw copies.
unsafe impl Sync for Extent {}

impl From<Arc<Buffer>> for Extent {
    fn from(buffer: Arc<Buffer>) -> Self {
        Self {
            start: buffer.start(),
            length: buffer.len() as u64,
            owner: Some(buffer),
            discards: false,
            foreign: None,
        }
    }
}

impl Extent {
    /// Memory of a C program, which may unmap it while it is registered.
    ///
    /// # Safety
    /// The functions of `access` must be sound for any address in the range, whether there is memory
    /// or not. Nobody may hold a Rust reference to the bytes while the device may write them.
    #[must_use]
    pub unsafe fn foreign(start: NonNull<u8>, length: u64, access: &'static ForeignAccess) -> Self {
        Self {
            start,
            length,
            owner: None,
            discards: false,
            foreign: Some(access),
        }
    }

    /// Memory that reads as zeroes and forgets what is written, of any length.
    #[must_use]
    pub fn discarding(length: u64) -> Self {
        Self {
            start: NonNull::dangling(),
            length,
            owner: None,
            discards: true,
            foreign: None,
        }
    }

    /// A part of it, or nothing if that reaches beyond its end.
    #[must_use]
    pub fn part(&self, offset: u64, length: u64) -> Option<Self> {
        if offset.checked_add(length)? > self.length {
            return None;
        }
        Some(Self {
            start: self.start.map_addr(|start| {
                // Cannot overflow or be zero: the part lies inside of memory that exists.
                start.saturating_add(offset as usize)
            }),
            length,
            owner: self.owner.clone(),
            discards: self.discards,
            foreign: self.foreign,
        })
    }

    /// The address of its first byte.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.start.as_ptr() as u64
    }

    /// Its size in bytes.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Whether a [`Buffer`] backs it, so that nobody had to vouch for it.
    #[must_use]
    pub fn is_owned(&self) -> bool {
        self.owner.is_some()
    }

    /// Appends `length` bytes from `offset` on to `out`.
    #[inline]
    pub(crate) fn append_to(
        &self,
        out: &mut Vec<u8>,
        offset: u64,
        length: usize,
    ) -> Result<(), Absent> {
        assert!(within(offset, length, self.length));
        if self.discards {
            out.resize(out.len() + length, 0);
            return Ok(());
        }
        out.reserve(length);
        let end = out.len();
        let room = out.spare_capacity_mut().as_mut_ptr().cast::<u8>();
        // SAFETY: `reserve` made room for `length` bytes behind `end`, where `room` begins. A `Vec`
        // that is borrowed mutably here can't be registered memory.
        unsafe { self.load(room, offset, length) }?;
        // SAFETY: those `length` bytes were initialised by the copy above.
        unsafe { out.set_len(end + length) };
        Ok(())
    }

    /// Copies `bytes` to `offset`.
    #[inline]
    pub(crate) fn store(&self, offset: u64, bytes: &[u8]) -> Result<(), Absent> {
        assert!(within(offset, bytes.len(), self.length));
        if self.discards {
            return Ok(());
        }
        if let Some(access) = self.foreign {
            let to = self.at(offset);
            // SAFETY: `to` is inside the extent by the assertion, and so by the promise at `foreign`
            // the function may be called; `bytes` is alive and doesn't overlap registered memory.
            let stored = unsafe { (access.store)(to, bytes.as_ptr(), bytes.len()) };
            return if stored { Ok(()) } else { Err(Absent) };
        }
        // SAFETY: the assertion keeps the destination inside the extent, which is valid and (the
        // region's access rights were checked) writable; `bytes` is a packet's payload or a local
        // value, so it doesn't overlap registered memory.
        unsafe {
            ptr::copy_nonoverlapping(bytes.as_ptr(), self.at(offset), bytes.len());
        }
        Ok(())
    }

    /// The atomic word at `offset`, or nothing if it is not 8-byte aligned.
    #[inline]
    pub(crate) fn update_word(
        &self,
        offset: u64,
        change: impl Fn(u64) -> u64,
    ) -> Result<Option<u64>, Absent> {
        assert!(within(offset, 8, self.length));
        if self.discards {
            return Ok(Some(0));
        }
        let word = self.at(offset).cast::<u64>();
        if !word.is_aligned() {
            return Ok(None);
        }
        if let Some(access) = self.foreign {
            return Self::update_foreign(access, word, change).map(Some);
        }
        // SAFETY: inside the extent by the assertion, aligned by the check above, and touched from
        // here on only atomically or by parties that accept a race, as with a NIC's atomics.
        let word = unsafe { AtomicU64::from_ptr(word) };
        let changed =
            word.fetch_update(Ordering::AcqRel, Ordering::Acquire, |old| Some(change(old)));
        Ok(Some(changed.expect("the closure always gives a value")))
    }

    /// Copies `length` bytes from `offset` on to `to`.
    ///
    /// # Safety
    /// `offset` and `length` must be inside the extent; `to` must have room for `length` bytes and not
    /// be registered memory.
    #[inline]
    unsafe fn load(&self, to: *mut u8, offset: u64, length: usize) -> Result<(), Absent> {
        let from = self.at(offset);
        let loaded = match self.foreign {
            // SAFETY: inside the extent, and so by the promise at `foreign` the function may be called.
            Some(access) => unsafe { (access.load)(to, from, length) },
            None => {
                // SAFETY: inside the extent, which its owner keeps alive; the rest is the caller's
                // promise.
                unsafe { ptr::copy_nonoverlapping(from, to, length) };
                true
            }
        };
        if loaded { Ok(()) } else { Err(Absent) }
    }

    /// Changes an aligned word of foreign memory atomically.
    fn update_foreign(
        access: &ForeignAccess,
        word: *mut u64,
        change: impl Fn(u64) -> u64,
    ) -> Result<u64, Absent> {
        // A guess: the first exchange finds the value.
        let mut expected = 0;
        loop {
            // SAFETY: `word` is inside of a foreign extent and aligned: `update_word` checked it.
            let found = unsafe { (access.compare_swap)(word, expected, change(expected)) };
            match found.ok_or(Absent)? {
                found if found == expected => return Ok(found),
                found => expected = found,
            }
        }
    }

    /// Where `offset` is. The caller has checked that it is inside.
    fn at(&self, offset: u64) -> *mut u8 {
        // Wrapping, as in `Buffer::at`.
        self.start.as_ptr().wrapping_add(offset as usize)
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

    #[test]
    fn a_buffer_gives_back_what_was_written() {
        let buffer = Buffer::zeroed(13);
        buffer.write(3, b"rocinante!");
        assert_eq!(buffer.to_vec(), b"\0\0\0rocinante!");
    }

    #[test]
    #[should_panic]
    fn a_buffer_ends_at_its_length_not_at_its_last_word() {
        Buffer::zeroed(13).write(10, b"four");
    }

    #[test]
    fn an_extent_keeps_its_buffer_alive() {
        let extent = Extent::from(Buffer::copy_of(b"alive"));
        let mut out = b"still ".to_vec();
        extent.append_to(&mut out, 0, 5).expect("it is there");
        assert_eq!(out, b"still alive");
    }

    #[test]
    fn a_part_of_an_extent_ends_where_the_part_ends() {
        let extent = Extent::from(Buffer::copy_of(b"rocinante"));
        let part = extent.part(4, 3).expect("inside");
        let mut out = Vec::new();
        part.append_to(&mut out, 0, 3).expect("it is there");
        assert_eq!(out, b"nan");
        assert!(extent.part(4, 6).is_none());
        assert!(extent.part(u64::MAX, 2).is_none());
    }

    #[test]
    fn what_is_discarded_reads_as_zeroes() {
        let extent = Extent::discarding(u64::MAX);
        extent.store(1 << 40, b"gone").expect("anything goes");
        let mut out = b"zero".to_vec();
        extent
            .append_to(&mut out, 1 << 40, 2)
            .expect("anything goes");
        assert_eq!(out, b"zero\0\0");
        assert_eq!(extent.update_word(4, |word| word + 1), Ok(Some(0)));
    }

    /// Foreign memory of which no more than 4 bytes can be touched at once.
    static FOUR_BYTES: ForeignAccess = ForeignAccess {
        load: copy_four,
        store: copy_four,
        compare_swap: |_, _, _| None,
    };

    unsafe fn copy_four(to: *mut u8, from: *const u8, length: usize) -> bool {
        if length <= 4 {
            // SAFETY: the test gives it memory that is there.
            unsafe { ptr::copy_nonoverlapping(from, to, length) };
        }
        length <= 4
    }

    #[test]
    fn foreign_memory_that_is_gone_is_absent() {
        let buffer = Buffer::copy_of(b"0123456789abcdef");
        // SAFETY: the buffer outlives the extent, and nobody has a reference to its bytes.
        let extent = unsafe { Extent::foreign(buffer.start(), 16, &FOUR_BYTES) };
        let mut out = Vec::new();
        assert_eq!(extent.append_to(&mut out, 2, 4), Ok(()));
        assert_eq!(extent.append_to(&mut out, 2, 5), Err(Absent));
        assert_eq!(extent.store(0, b"there"), Err(Absent));
        assert_eq!(extent.store(0, b"four"), Ok(()));
        assert_eq!(extent.update_word(8, |_| 0), Err(Absent));
        let part = extent.part(8, 8).expect("inside");
        assert_eq!(part.store(0, b"there"), Err(Absent));
        assert_eq!(out, b"2345");
        assert_eq!(buffer.to_vec(), b"four456789abcdef");
    }

    #[test]
    fn an_unaligned_word_is_no_atomic() {
        let extent = Extent::from(Buffer::zeroed(32));
        assert_eq!(extent.update_word(4, |word| word + 1), Ok(None));
        assert_eq!(extent.update_word(8, |word| word + 1), Ok(Some(0)));
        assert_eq!(extent.update_word(8, |word| word + 1), Ok(Some(1)));
    }

    #[test]
    #[should_panic]
    fn an_offset_that_overflows_is_outside() {
        let _ = Extent::from(Buffer::zeroed(32)).store(u64::MAX - 1, b"no");
    }
}
