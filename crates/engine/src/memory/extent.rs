//! Memory that a region covers, whatever it is made of.
//!
//! Registered memory belongs to the application, and the application and the wire may both write
//! it at any moment, just as with a NIC that does DMA. So no reference to its bytes is ever formed:
//! everything goes through copies of an [`Extent`], whose bounds are checked here, and through 8-byte
//! atomics.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::buffer::Buffer;

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
    backing: Backing,
    length: u64,
}

#[derive(Clone)]
enum Backing {
    /// A buffer, from this offset on. It lives as long as a region stands on it.
    Buffer(Arc<Buffer>, usize),
    /// Memory that may vanish, and how to touch it.
    Foreign(NonNull<u8>, &'static ForeignAccess),
    /// No bytes at all.
    Nothing,
}

// SAFETY: an extent is an address range. A buffer is `Send`; foreign bytes are touched only by functions
// that are sound for any address, on any thread.
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
    /// The functions of `access` must be sound for any address in the range, whether there is memory
    /// or not. Nobody may hold a Rust reference to the bytes while the device may write them.
    #[must_use]
    pub unsafe fn foreign(start: NonNull<u8>, length: u64, access: &'static ForeignAccess) -> Self {
        Self {
            backing: Backing::Foreign(start, access),
            length,
        }
    }

    /// Memory that reads as zeroes and forgets what is written, of any length.
    #[must_use]
    pub fn discarding(length: u64) -> Self {
        Self {
            backing: Backing::Nothing,
            length,
        }
    }

    /// A part of it, or nothing if that reaches beyond its end.
    #[must_use]
    pub fn part(&self, offset: u64, length: u64) -> Option<Self> {
        if offset.checked_add(length)? > self.length {
            return None;
        }
        let backing = match &self.backing {
            Backing::Buffer(buffer, start) => {
                Backing::Buffer(Arc::clone(buffer), start + offset as usize)
            }
            // Cannot overflow or be zero: the part lies inside of memory that exists.
            Backing::Foreign(start, access) => Backing::Foreign(
                start.map_addr(|start| start.saturating_add(offset as usize)),
                access,
            ),
            Backing::Nothing => Backing::Nothing,
        };
        Some(Self { backing, length })
    }

    /// Its size in bytes.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.length
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
        match &self.backing {
            Backing::Buffer(buffer, start) => {
                buffer.append_to(out, start + offset as usize, length);
            }
            Backing::Foreign(start, access) => {
                let from = byte_at(*start, offset);
                // SAFETY: `from` is inside the extent by the assertion.
                unsafe { append_foreign(access, from, out, length) }?;
            }
            Backing::Nothing => out.resize(out.len() + length, 0),
        }
        Ok(())
    }

    /// Copies `bytes` to `offset`.
    #[inline]
    pub(crate) fn store(&self, offset: u64, bytes: &[u8]) -> Result<(), Absent> {
        assert!(within(offset, bytes.len(), self.length));
        match &self.backing {
            Backing::Buffer(buffer, start) => buffer.write(start + offset as usize, bytes),
            Backing::Foreign(start, access) => {
                let to = byte_at(*start, offset);
                // SAFETY: `to` is inside the extent by the assertion, and so by the promise at `foreign`
                // the function may be called; `bytes` is alive and doesn't overlap registered memory.
                if !unsafe { (access.store)(to, bytes.as_ptr(), bytes.len()) } {
                    return Err(Absent);
                }
            }
            Backing::Nothing => {}
        }
        Ok(())
    }

    /// Changes the word at `offset` atomically and gives its former value, or nothing if it is not
    /// 8-byte aligned.
    #[inline]
    pub(crate) fn update_word(
        &self,
        offset: u64,
        change: impl Fn(u64) -> u64,
    ) -> Result<Option<u64>, Absent> {
        assert!(within(offset, 8, self.length));
        match &self.backing {
            Backing::Buffer(buffer, start) => {
                let word = buffer.word(start + offset as usize);
                Ok(word.map(|word| {
                    let changed = word
                        .fetch_update(Ordering::AcqRel, Ordering::Acquire, |old| Some(change(old)));
                    changed.expect("the closure always gives a value")
                }))
            }
            Backing::Foreign(start, access) => {
                let word = byte_at(*start, offset).cast::<u64>();
                match word.is_aligned() {
                    true => update_foreign(access, word, change).map(Some),
                    false => Ok(None),
                }
            }
            Backing::Nothing => Ok(Some(0)),
        }
    }
}

/// Where `offset` is in foreign memory. The caller has checked that it is inside.
fn byte_at(start: NonNull<u8>, offset: u64) -> *mut u8 {
    // Wrapping: computing it is harmless.
    start.as_ptr().wrapping_add(offset as usize)
}

/// Appends `length` foreign bytes to `out`.
///
/// # Safety
/// The bytes at `from` must lie in an extent that was made with `access`.
#[inline]
unsafe fn append_foreign(
    access: &ForeignAccess,
    from: *const u8,
    out: &mut Vec<u8>,
    length: usize,
) -> Result<(), Absent> {
    out.reserve(length);
    let end = out.len();
    let room = out.spare_capacity_mut().as_mut_ptr().cast::<u8>();
    // SAFETY: `reserve` made room for `length` bytes behind `end`, where `room` begins. A `Vec` that is
    // borrowed mutably here can't be registered memory. By the promise at `foreign` the function may
    // be called for `from`.
    if !unsafe { (access.load)(room, from, length) } {
        return Err(Absent);
    }
    // SAFETY: those `length` bytes were initialised by the copy above.
    unsafe { out.set_len(end + length) };
    Ok(())
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

fn within(offset: u64, length: usize, size: u64) -> bool {
    offset
        .checked_add(length as u64)
        .is_some_and(|end| end <= size)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr;

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

    #[repr(align(8))]
    struct Aligned([u8; 16]);

    #[test]
    fn foreign_memory_that_is_gone_is_absent() {
        let mut memory = Aligned(*b"0123456789abcdef");
        let start = NonNull::from(&mut memory.0).cast();
        // SAFETY: the memory outlives the extent, and nobody uses a reference to it meanwhile.
        let extent = unsafe { Extent::foreign(start, 16, &FOUR_BYTES) };
        let mut out = Vec::new();
        assert_eq!(extent.append_to(&mut out, 2, 4), Ok(()));
        assert_eq!(extent.append_to(&mut out, 2, 5), Err(Absent));
        assert_eq!(extent.store(0, b"there"), Err(Absent));
        assert_eq!(extent.store(0, b"four"), Ok(()));
        assert_eq!(extent.update_word(8, |_| 0), Err(Absent));
        let part = extent.part(8, 8).expect("inside");
        assert_eq!(part.store(0, b"there"), Err(Absent));
        assert_eq!(out, b"2345");
        assert_eq!(&memory.0, b"four456789abcdef");
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
