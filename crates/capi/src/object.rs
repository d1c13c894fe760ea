//! Objects: what C sees in front, what we keep behind it.

use std::cell::UnsafeCell;
use std::ops::Deref;

use crate::abi;
use crate::entry::FromC;
use crate::errno::Errno;

/// An object of the C interface. A pointer to it is a pointer to its C part.
#[repr(C)]
pub(crate) struct Object<C, R> {
    // In a cell, because programs read and write it while we hold references to the whole.
    c: UnsafeCell<C>,
    inner: R,
}

impl<C, R> Object<C, R> {
    /// Where our part begins.
    pub(crate) const BEHIND: usize = std::mem::offset_of!(Self, inner);

    /// Makes an object and gives C a pointer to it.
    pub(crate) fn give(c: C, inner: R) -> *mut C {
        Self::make(c, inner).c()
    }

    /// Makes an object that lives until [`take_back`](Self::take_back).
    pub(crate) fn make<'a>(c: C, inner: R) -> &'a Self {
        let object = Self {
            c: UnsafeCell::new(c),
            inner,
        };
        Box::leak(Box::new(object))
    }

    /// Its C part.
    pub(crate) fn c(&self) -> *mut C {
        self.c.get()
    }

    /// Changes its C part.
    pub(crate) fn change(&self, change: impl FnOnce(&mut C)) {
        // SAFETY: alive, because `self` is. A program that reads a field while a call changes it
        // has the same race with rdma-core; no other reference to the C part is ever made.
        change(unsafe { &mut *self.c.get() });
    }

    /// Ends it. Whoever still has the pointer has a dangling one, as with any `destroy`.
    pub(crate) fn take_back(&self) -> R {
        let pointer = std::ptr::from_ref(self).cast_mut();
        // SAFETY: `make` made it in a box, and the program gave it back to be destroyed: nobody
        // uses it any more, this reference included, which is not used after this line.
        let object = unsafe { Box::from_raw(pointer) };
        object.inner
    }
}

impl<C: Copy, R> Object<C, R> {
    /// A copy of its C part.
    pub(crate) fn read(&self) -> C {
        // SAFETY: alive, because `self` is; as for `change`.
        unsafe { *self.c.get() }
    }
}

impl<C, R> Deref for Object<C, R> {
    type Target = R;

    #[inline]
    fn deref(&self) -> &R {
        &self.inner
    }
}

macro_rules! from_pointer {
    ($front:ty => $object:ty) => {
        impl<'a> $crate::entry::FromC for &'a $object {
            type Raw = *mut $front;

            #[inline]
            unsafe fn from_c(raw: *mut $front) -> Result<&'a $object, $crate::errno::Errno> {
                let object = raw.cast::<$object>();
                // SAFETY: null, or by the caller's promise an object that a call of ours made, of
                // which `$front` is the beginning.
                unsafe { object.as_ref() }.ok_or($crate::errno::Errno::INVALID)
            }
        }

        impl<'a> $crate::entry::FromC for Option<&'a $object> {
            type Raw = *mut $front;

            #[inline]
            unsafe fn from_c(raw: *mut $front) -> Result<Self, $crate::errno::Errno> {
                // SAFETY: as above.
                Ok(unsafe { raw.cast::<$object>().as_ref() })
            }
        }
    };
}

pub(crate) use from_pointer;

/// The object behind a pointer that stands in a structure of the program's.
pub(crate) fn behind<'a, T: FromC<Raw = *mut C> + 'a, C>(pointer: *mut C) -> Result<T, Errno> {
    // SAFETY: the program filled in the structure, and promises of its pointers what it promises of
    // arguments.
    unsafe { T::from_c(pointer) }
}

/// A GID as C has it.
pub(crate) fn gid_of(gid: &abi::ibv_gid) -> wire::Gid {
    wire::Gid::from_bytes(gid.raw)
}
