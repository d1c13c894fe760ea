//! Objects of the C interface: the structure that C sees, followed by our own fields.
//!
//! A program may use or destroy an object that it has already destroyed, and must get EINVAL. So the memory
//! of an object is never freed and always holds an object of the same type with a flag that says whether it
//! is alive. It is reused only after [`QUARANTINE`] other objects of its type were destroyed.

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

/// How many destroyed objects of each type are kept before their memory is reused.
const QUARANTINE: usize = 256;

/// The addresses of destroyed objects, oldest first.
static DESTROYED: Mutex<Option<HashMap<TypeId, VecDeque<usize>>>> = Mutex::new(None);

/// The structure that C sees of an object.
pub(crate) trait CPart: Any {
    /// The number by which a kernel would identify it, if there is one.
    fn handle(&self) -> u32 {
        0
    }
}

/// An object of the C interface. A pointer to it is a pointer to its C part.
#[repr(C)]
pub(crate) struct Object<C, R> {
    // In a cell, because programs read and write it while we hold references to the object.
    c: UnsafeCell<C>,
    // Moved out when the object is destroyed.
    inner: UnsafeCell<ManuallyDrop<R>>,
    alive: AtomicBool,
    /// The value of `CPart::handle` at creation.
    handle: u32,
}

impl<C, R> Object<C, R> {
    /// The offset of our own fields.
    pub(crate) const INNER_OFFSET: usize = std::mem::offset_of!(Self, inner);

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

    /// The object itself; EINVAL if it was destroyed.
    #[inline]
    pub(crate) fn alive(&self) -> Result<&Self, Errno> {
        if self.alive.load(Ordering::Acquire) {
            Ok(self)
        } else {
            Err(Errno::INVALID)
        }
    }
}

impl<C: CPart, R: Any> Object<C, R> {
    /// Creates an object and returns the pointer for C.
    pub(crate) fn new_pointer(c: C, inner: R) -> *mut C {
        Self::make(c, inner).c()
    }

    /// Creates an object that stays alive until [`destroy`](Self::destroy).
    pub(crate) fn make<'a>(c: C, inner: R) -> &'a Self {
        let object = Self {
            handle: c.handle(),
            c: UnsafeCell::new(c),
            inner: UnsafeCell::new(ManuallyDrop::new(inner)),
            alive: AtomicBool::new(true),
        };
        match Self::reusable() {
            Some(address) => {
                // SAFETY: an object of this type that was destroyed: nothing uses it, and its content was
                // moved out.
                unsafe { address.write(object) };
                // SAFETY: its memory is never freed.
                unsafe { &*address }
            }
            None => Box::leak(Box::new(object)),
        }
    }

    /// Destroys it. A program that still uses the pointer gets EINVAL. `None` if another thread is destroying
    /// it.
    pub(crate) fn destroy(&self) -> Option<R> {
        if !self.alive.swap(false, Ordering::AcqRel) {
            return None;
        }
        // SAFETY: alive until now. The program destroys it, and promises that no other call uses it. The swap
        // lets only one thread get here.
        let inner = unsafe { &mut *self.inner.get() };
        // SAFETY: it is moved out once: no thread sees the object as alive before `make` fills it in again.
        let inner = unsafe { ManuallyDrop::take(inner) };
        // If another thread holds the lock, or held it at a fork, the memory is never reused.
        if let Ok(mut destroyed) = DESTROYED.try_lock() {
            let address = std::ptr::from_ref(self).expose_provenance();
            let types = destroyed.get_or_insert_default();
            types
                .entry(TypeId::of::<Self>())
                .or_default()
                .push_back(address);
        }
        Some(inner)
    }

    /// The memory of a destroyed object of this type that may be reused.
    fn reusable() -> Option<*mut Self> {
        let mut destroyed = DESTROYED.try_lock().ok()?;
        let queue = destroyed.as_mut()?.get_mut(&TypeId::of::<Self>())?;
        let address = (queue.len() > QUARANTINE)
            .then(|| queue.pop_front())
            .flatten()?;
        Some(std::ptr::with_exposed_provenance_mut(address))
    }

    /// Fails if the program has overwritten the handle: a kernel looks up the object by it and would find
    /// none. Calls that no kernel sees, such as posting and polling, do not check it.
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
        // SAFETY: it is moved out only when the program destroys the object, and the program promises that no
        // other call uses it then.
        unsafe { &*self.inner.get() }
    }
}

macro_rules! c_parts {
    ($($c_part:ty $(: $($handle:ident).+)?;)*) => {
        $(impl CPart for $c_part {
            $(fn handle(&self) -> u32 {
                self.$($handle).+
            })?
        })*
    };
}

c_parts! {
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
    ($c_part:ty => $object:ty) => {
        impl<'a> $crate::entry::FromC for &'a $object {
            type Raw = *mut $c_part;

            #[inline]
            unsafe fn from_c(raw: *mut $c_part) -> Result<&'a $object, $crate::errno::Errno> {
                let object = raw.cast::<$object>();
                // SAFETY: null, or by the caller's promise an object that this library created, which begins
                // with `$c_part`.
                unsafe { object.as_ref() }
                    .ok_or($crate::errno::Errno::INVALID)?
                    .alive()
            }
        }

        impl<'a> $crate::entry::FromC for Option<&'a $object> {
            type Raw = *mut $c_part;

            #[inline]
            unsafe fn from_c(raw: *mut $c_part) -> Result<Self, $crate::errno::Errno> {
                // SAFETY: as above.
                let object = unsafe { raw.cast::<$object>().as_ref() };
                object.map(<$object>::alive).transpose()
            }
        }
    };
}

pub(crate) use from_pointer;

/// The object at a pointer in a structure of the program.
pub(crate) fn object_at<'a, T: FromC<Raw = *mut C> + 'a, C>(pointer: *mut C) -> Result<T, Errno> {
    // SAFETY: the program filled in the structure; its pointers follow the same rules as arguments.
    unsafe { T::from_c(pointer) }
}

/// Converts a GID from C.
pub(crate) fn gid_of(gid: &abi::ibv_gid) -> wire::Gid {
    wire::Gid::from_bytes(gid.raw)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    impl CPart for u64 {}

    impl CPart for u32 {
        fn handle(&self) -> u32 {
            *self
        }
    }

    #[test]
    fn a_destroyed_object_is_rejected_and_its_memory_reused_after_quarantine() {
        struct Mark;
        let first = Object::<u64, Arc<Mark>>::make(7, Arc::new(Mark));
        let inner = Arc::downgrade(first);
        assert!(first.alive().is_ok());
        drop(first.destroy());
        assert_eq!(inner.strong_count(), 0);
        assert!(first.alive().is_err());
        assert!(first.destroy().is_none());
        let mut used = vec![first.c()];
        for _ in 0..QUARANTINE {
            let next = Object::<u64, Arc<Mark>>::make(8, Arc::new(Mark));
            assert!(!used.contains(&next.c()));
            used.push(next.c());
            next.destroy();
        }
        assert!(first.alive().is_err());
        // Which address is reused first depends on other tests: one that is destroyed while they hold the
        // lock is never reused.
        let more = (0..QUARANTINE).map(|_| Object::<u64, Arc<Mark>>::make(9, Arc::new(Mark)));
        let again = more
            .map(|it| (it.c(), it.destroy()))
            .map(|(address, _)| address);
        let again: Vec<_> = again.filter(|address| used.contains(address)).collect();
        assert!(!again.is_empty(), "memory is reused");
    }

    #[test]
    fn an_overwritten_handle_is_rejected() {
        let object = Object::<u32, ()>::make(7, ());
        assert_eq!(object.check_handle(), Ok(()));
        object.change(|handle| *handle = 8);
        assert_eq!(object.check_handle(), Err(Errno::NO_ENTRY));
    }
}
