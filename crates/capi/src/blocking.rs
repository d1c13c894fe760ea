//! Blocking calls. The object that a thread waits for lives until the wait ends, even if the program destroys
//! its handle meanwhile, as a kernel keeps a file that is being read.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::c_void;
use std::mem::{self, ManuallyDrop};
use std::ptr::{null, without_provenance};
use std::sync::{Arc, OnceLock};

use driver::{BlockedCall, Situation};
use net::thread_sanitizer::{self, Unobserved};

use crate::conversion::{MinusOne, guard_wait};
use crate::errno::Errno;
use crate::interruption;

type Objects = Vec<(Arc<dyn Any + Send + Sync>, BlockedCall)>;

/// An object that a thread waits for.
pub(crate) trait Waited: Any + Send + Sync {
    /// Describes the wait of a thread. The result does not keep the object.
    fn describe(&self) -> Box<dyn Fn() -> Situation + Send + Sync>;
}

thread_local! {
    /// The objects that this thread waits for while it can be cancelled. `drop_objects` drops them if it is.
    static WAITED_ON: ManuallyDrop<RefCell<Objects>> = const { ManuallyDrop::new(RefCell::new(Vec::new())) };
}

/// Waits for the object of `begin` until `step` returns something, in a call of this name. Between two steps the thread may be
/// cancelled, so both closures are `Copy`: they have nothing to drop.
pub(crate) fn wait<T: Waited>(
    call: &'static str,
    begin: impl Fn() -> Result<Arc<T>, Errno> + Copy,
    step: impl Fn(&T) -> Result<Option<MinusOne>, Errno> + Copy,
) -> MinusOne {
    thread_sanitizer::begin_call();
    let mut started = false;
    loop {
        let result = guard_wait(|| {
            let (object, listed) = if mem::replace(&mut started, true) {
                let (object, listed) = resume::<T>();
                (object, Some(listed))
            } else {
                (begin()?, None)
            };
            let result = step(&object);
            if let Ok(None) = result {
                let list = || BlockedCall::begin(call, || object.describe());
                let listed = listed.unwrap_or_else(list);
                store(object, listed);
            }
            result
        });
        if let Some(result) = result {
            thread_sanitizer::end_call();
            return result;
        }
        interruption::cancellation_point();
    }
}

fn store(object: Arc<dyn Any + Send + Sync>, listed: BlockedCall) {
    WAITED_ON.with(|objects| objects.borrow_mut().push((object, listed)));
    drop_objects_at_thread_end(true);
}

fn resume<T: Waited>() -> (Arc<T>, BlockedCall) {
    let (newest, others) = WAITED_ON.with(|objects| {
        let mut objects = objects.take();
        (objects.pop(), objects)
    });
    if others.is_empty() {
        drop_objects_at_thread_end(false);
    } else {
        WAITED_ON.with(|objects| objects.replace(others));
    }
    let newest = newest.and_then(|(object, listed)| Some((object.downcast().ok()?, listed)));
    newest.expect("the step before stored it")
}

/// The stack of a cancelled thread is not unwound, but the destructors of its keys run. The destructor of a
/// thread-local variable would run, too; but glibc ends a process that has no memory to register it, and a key needs
/// none.
fn drop_objects_at_thread_end(wanted: bool) {
    /// `None` if the process has no key left: then a cancelled thread keeps the objects.
    static KEY: OnceLock<Option<libc::pthread_key_t>> = OnceLock::new();
    let key = *KEY.get_or_init(|| {
        let mut key = 0;
        // SAFETY: writes the key to a live variable; the function lives as long as this library.
        let result = unsafe { libc::pthread_key_create(&raw mut key, Some(drop_objects)) };
        (result == 0).then_some(key)
    });
    // The destructor of a key runs where the value is not null.
    let value: *const c_void = if wanted {
        without_provenance(1)
    } else {
        null()
    };
    if let Some(key) = key {
        // SAFETY: a key that was created above, and a value that nobody dereferences. The library is not unloaded
        // while a thread waits in it, and then the value is null.
        unsafe { libc::pthread_setspecific(key, value) };
    }
}

unsafe extern "C" fn drop_objects(_value: *mut c_void) {
    let _unobserved = Unobserved::begin();
    drop(WAITED_ON.with(|objects| objects.take()));
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::object::Object;

    type Thing = Object<u64, Arc<AtomicU32>>;

    impl Waited for AtomicU32 {
        fn describe(&self) -> Box<dyn Fn() -> Situation + Send + Sync> {
            Box::new(|| Situation::without_problem("It has not come."))
        }
    }

    #[test]
    fn a_waited_object_lives_until_the_wait_ends() {
        let thing = Thing::make(0, Arc::default());
        let left = Arc::downgrade(thing);
        let destroy_at_first = |parts: &AtomicU32| match parts.fetch_add(1, Ordering::Relaxed) {
            0 => {
                thing.destroy();
                Ok(None)
            }
            1 => Ok(None),
            _ => {
                assert_eq!(left.strong_count(), 1);
                Ok(Some(MinusOne::DONE))
            }
        };
        assert_eq!(
            wait("call", || Ok(Arc::clone(thing)), destroy_at_first).0,
            0
        );
        assert_eq!(left.strong_count(), 0);
    }

    #[test]
    fn waiting_for_an_invalid_object_fails() {
        let nothing = || Err::<Arc<AtomicU32>, _>(Errno::INVALID);
        assert_eq!(wait("call", nothing, |_| Ok(Some(MinusOne::DONE))).0, -1);
    }
}
