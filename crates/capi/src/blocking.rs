//! Blocking calls. The object that a thread waits for lives until the wait ends, even if the program destroys
//! its handle meanwhile, as a kernel keeps a file that is being read.

use std::any::Any;
use std::cell::RefCell;
use std::mem;
use std::sync::Arc;

use crate::conversion::{MinusOne, guard_wait};
use crate::errno::Errno;
use crate::interruption;

thread_local! {
    /// The objects that this thread waits for while it can be cancelled. The stack of a cancelled thread is
    /// not unwound, but its thread-local variables are dropped.
    static WAITED_ON: RefCell<Vec<Arc<dyn Any + Send + Sync>>> = const { RefCell::new(Vec::new()) };
}

/// Waits for the object of `begin` until `step` returns something. Between two steps the thread may be
/// cancelled, so both closures are `Copy`: they have nothing to drop.
pub(crate) fn wait<T: Any + Send + Sync>(
    begin: impl Fn() -> Result<Arc<T>, Errno> + Copy,
    step: impl Fn(&T) -> Result<Option<MinusOne>, Errno> + Copy,
) -> MinusOne {
    let mut started = false;
    loop {
        let result = guard_wait(|| {
            let object = if mem::replace(&mut started, true) {
                resume()
            } else {
                begin()?
            };
            let result = step(&object);
            if let Ok(None) = result {
                WAITED_ON.with_borrow_mut(|objects| objects.push(object));
            }
            result
        });
        if let Some(result) = result {
            return result;
        }
        interruption::cancellation_point();
    }
}

fn resume<T: Any + Send + Sync>() -> Arc<T> {
    let object = WAITED_ON.with_borrow_mut(Vec::pop);
    let object = object.and_then(|object| object.downcast().ok());
    object.expect("the step before stored it")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::object::Object;

    type Thing = Object<u64, Arc<AtomicU32>>;

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
        assert_eq!(wait(|| Ok(Arc::clone(thing)), destroy_at_first).0, 0);
        assert_eq!(left.strong_count(), 0);
    }

    #[test]
    fn waiting_for_an_invalid_object_fails() {
        let nothing = || Err::<Arc<u32>, _>(Errno::INVALID);
        assert_eq!(wait(nothing, |_| Ok(Some(MinusOne::DONE))).0, -1);
    }
}
