//! Calls that wait. What a thread waits at stays until it is done, whatever the program does meanwhile
//! with the object that it has: a kernel keeps a file that is being read, too.

use std::any::Any;
use std::cell::RefCell;
use std::mem;
use std::sync::Arc;

use crate::entry::{MinusOne, guard_wait};
use crate::errno::Errno;
use crate::interruption;

thread_local! {
    /// What this thread waits at, while it can be cancelled. A cancelled thread leaves its stack as it
    /// is, but what lies here is dropped.
    static LAID_DOWN: RefCell<Vec<Arc<dyn Any + Send + Sync>>> = const { RefCell::new(Vec::new()) };
}

/// Waits at what `begin` gives, until `part` gives something; between two parts the thread may be
/// cancelled. Who is `Copy` has nothing to drop then.
pub(crate) fn wait<T: Any + Send + Sync>(
    begin: impl Fn() -> Result<Arc<T>, Errno> + Copy,
    part: impl Fn(&T) -> Result<Option<MinusOne>, Errno> + Copy,
) -> MinusOne {
    let mut begun = false;
    loop {
        let result = guard_wait(|| {
            let place = if mem::replace(&mut begun, true) {
                take_up()
            } else {
                begin()?
            };
            let result = part(&place);
            if let Ok(None) = result {
                LAID_DOWN.with_borrow_mut(|places| places.push(place));
            }
            result
        });
        if let Some(result) = result {
            return result;
        }
        interruption::cancellation_point();
    }
}

fn take_up<T: Any + Send + Sync>() -> Arc<T> {
    let place = LAID_DOWN.with_borrow_mut(Vec::pop);
    let place = place.and_then(|place| place.downcast().ok());
    place.expect("the part before laid it down")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::object::Object;

    type Thing = Object<u64, Arc<AtomicU32>>;

    #[test]
    fn what_is_waited_at_stays_until_the_wait_is_over() {
        let thing = Thing::make(0, Arc::default());
        let left = Arc::downgrade(thing);
        let destroy_at_first = |parts: &AtomicU32| match parts.fetch_add(1, Ordering::Relaxed) {
            0 => {
                thing.take_back();
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
    fn nobody_waits_at_nothing() {
        let nothing = || Err::<Arc<u32>, _>(Errno::INVALID);
        assert_eq!(wait(nothing, |_| Ok(Some(MinusOne::DONE))).0, -1);
    }
}
