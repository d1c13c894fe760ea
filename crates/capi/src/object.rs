//! Objects: what C sees in front, what we keep behind it.
//!
//! A program may use or destroy an object that it has destroyed already, and shall be told EINVAL. So the
//! memory of an object stays an object of that type for ever and knows whether it lives; it is used again
//! only after [`AT_REST`] others of its type were destroyed.

use std::any::{Any, TypeId};
use std::cell::UnsafeCell;
use std::collections::{HashMap, VecDeque};
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::abi;
use crate::entry::FromC;
use crate::errno::Errno;

/// How many destroyed objects of each type are kept before their memory is used again.
const AT_REST: usize = 256;

/// The addresses of destroyed objects, the oldest first.
static DESTROYED: Mutex<Option<HashMap<TypeId, VecDeque<usize>>>> = Mutex::new(None);

/// What C sees of an object.
pub(crate) trait Front: Any {
    /// The number under which the kernel would know it, if it has one.
    fn handle(&self) -> u32 {
        0
    }
}

/// An object of the C interface. A pointer to it is a pointer to its C part.
#[repr(C)]
pub(crate) struct Object<C, R> {
    // In a cell, because programs read and write it while we hold references to the whole.
    c: UnsafeCell<C>,
    // Taken out when the object is destroyed.
    inner: UnsafeCell<ManuallyDrop<R>>,
    lives: AtomicBool,
    /// What `Front::handle` was in the beginning.
    handle: u32,
}

impl<C, R> Object<C, R> {
    /// Where our part begins.
    pub(crate) const BEHIND: usize = std::mem::offset_of!(Self, inner);

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

    /// Itself, unless it was destroyed.
    #[inline]
    pub(crate) fn alive(&self) -> Result<&Self, Errno> {
        if self.lives.load(Ordering::Acquire) {
            Ok(self)
        } else {
            Err(Errno::INVALID)
        }
    }
}

impl<C: Front, R: Any> Object<C, R> {
    /// Makes an object and gives C a pointer to it.
    pub(crate) fn give(c: C, inner: R) -> *mut C {
        Self::make(c, inner).c()
    }

    /// Makes an object that lives until [`take_back`](Self::take_back).
    pub(crate) fn make<'a>(c: C, inner: R) -> &'a Self {
        let object = Self {
            handle: c.handle(),
            c: UnsafeCell::new(c),
            inner: UnsafeCell::new(ManuallyDrop::new(inner)),
            lives: AtomicBool::new(true),
        };
        match Self::destroyed_long_ago() {
            Some(place) => {
                // SAFETY: an object of this type that was destroyed: nobody uses it, and what was in
                // it was taken out.
                unsafe { place.write(object) };
                // SAFETY: its memory is never given back.
                unsafe { &*place }
            }
            None => Box::leak(Box::new(object)),
        }
    }

    /// Ends it. A program that still uses the pointer is told EINVAL. Nothing if another thread ends it
    /// right now.
    pub(crate) fn take_back(&self) -> Option<R> {
        if !self.lives.swap(false, Ordering::AcqRel) {
            return None;
        }
        // SAFETY: alive until now. The program gave it back to be destroyed, and promises that no other call
        // uses it; that this is the only one that gets here, the swap shows.
        let inner = unsafe { &mut *self.inner.get() };
        // SAFETY: it is taken out once: nobody sees an object as alive again before `make` fills it in.
        let inner = unsafe { ManuallyDrop::take(inner) };
        // Not while another thread, or the parent of a fork, holds the lock: then it rests for ever.
        if let Ok(mut destroyed) = DESTROYED.try_lock() {
            let place = std::ptr::from_ref(self).expose_provenance();
            let types = destroyed.get_or_insert_default();
            types
                .entry(TypeId::of::<Self>())
                .or_default()
                .push_back(place);
        }
        Some(inner)
    }

    /// The memory of an object of this type that may be used again.
    fn destroyed_long_ago() -> Option<*mut Self> {
        let mut destroyed = DESTROYED.try_lock().ok()?;
        let queue = destroyed.as_mut()?.get_mut(&TypeId::of::<Self>())?;
        let place = (queue.len() > AT_REST)
            .then(|| queue.pop_front())
            .flatten()?;
        Some(std::ptr::with_exposed_provenance_mut(place))
    }

    /// Fails if the program has overwritten the number of the object: a kernel, which looks for it by
    /// that number, would not find it.
    pub(crate) fn check_handle(&self) -> Result<(), Errno> {
        // SAFETY: alive, because `self` is; as for `change`.
        let handle = unsafe { &*self.c.get() }.handle();
        if handle == self.handle {
            Ok(())
        } else {
            Err(Errno::NO_ENTRY)
        }
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
        // SAFETY: it is taken out only when the program destroys the object, and that promises that no
        // other call uses it.
        unsafe { &*self.inner.get() }
    }
}

macro_rules! fronts {
    ($($front:ty $(: $($handle:ident).+)?;)*) => {
        $(impl Front for $front {
            $(fn handle(&self) -> u32 {
                self.$($handle).+
            })?
        })*
    };
}

fronts! {
    abi::ibv_ah: handle;
    abi::ibv_buf;
    abi::ibv_comp_channel;
    abi::ibv_cq_ex: handle;
    abi::ibv_dm;
    abi::ibv_dmah;
    abi::ibv_mr: handle;
    abi::ibv_mw: handle;
    abi::ibv_pd: handle;
    abi::ibv_qp_ex: qp_base.handle;
    abi::ibv_srq: handle;
    abi::ibv_td;
    abi::ibv_xrcd;
    abi::rdma_cm_event;
    abi::rdma_cm_id;
    abi::rdma_event_channel;
    abi::verbs_context;
    abi::verbs_device;
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
                unsafe { object.as_ref() }
                    .ok_or($crate::errno::Errno::INVALID)?
                    .alive()
            }
        }

        impl<'a> $crate::entry::FromC for Option<&'a $object> {
            type Raw = *mut $front;

            #[inline]
            unsafe fn from_c(raw: *mut $front) -> Result<Self, $crate::errno::Errno> {
                // SAFETY: as above.
                let object = unsafe { raw.cast::<$object>().as_ref() };
                object.map(<$object>::alive).transpose()
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    impl Front for u64 {}

    impl Front for u32 {
        fn handle(&self) -> u32 {
            *self
        }
    }

    #[test]
    fn a_destroyed_object_stays_dead_and_is_used_again_later() {
        struct Mark;
        let first = Object::<u64, Arc<Mark>>::make(7, Arc::new(Mark));
        let inner = Arc::downgrade(first);
        assert!(first.alive().is_ok());
        drop(first.take_back());
        assert_eq!(inner.strong_count(), 0);
        assert!(first.alive().is_err());
        assert!(first.take_back().is_none());
        let mut used = vec![first.c()];
        for _ in 0..AT_REST {
            let next = Object::<u64, Arc<Mark>>::make(8, Arc::new(Mark));
            assert!(!used.contains(&next.c()));
            used.push(next.c());
            next.take_back();
        }
        assert!(first.alive().is_err());
        // Which place comes first depends on other tests: one that is destroyed while they hold the lock
        // rests for ever.
        let more = (0..AT_REST).map(|_| Object::<u64, Arc<Mark>>::make(9, Arc::new(Mark)));
        let again = more
            .map(|it| (it.c(), it.take_back()))
            .map(|(place, _)| place);
        let again: Vec<_> = again.filter(|place| used.contains(place)).collect();
        assert!(!again.is_empty(), "memory is used again");
    }

    #[test]
    fn a_handle_that_was_overwritten_is_noticed() {
        let object = Object::<u32, ()>::make(7, ());
        assert_eq!(object.check_handle(), Ok(()));
        object.change(|handle| *handle = 8);
        assert_eq!(object.check_handle(), Err(Errno::NO_ENTRY));
    }
}
