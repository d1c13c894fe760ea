//! Waiting for packets at the reactor of tokio.

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

use driver::{TaskDescriptor, TaskWakeups};
use tokio::io::unix::AsyncFd;
use tokio::runtime::Handle;
use tokio::task::yield_now;

/// A runtime of this process has no reactor.
static IS_WITHOUT_REACTOR: AtomicBool = AtomicBool::new(false);

/// Who receives the packets of a task that runs here: its runtime, if it is one of tokio.
pub(crate) fn wakeups() -> TaskWakeups<'static> {
    if Handle::try_current().is_ok() && !IS_WITHOUT_REACTOR.load(Ordering::Relaxed) {
        TaskWakeups::Executor(&serve)
    } else {
        TaskWakeups::LaneThread
    }
}

/// Starts a task that waits for packets, and receives them for all others. It ends with the device or with the runtime.
fn serve(descriptor: TaskDescriptor) {
    Handle::current().spawn(async move {
        // What arrived before.
        let mut received = descriptor.receive();
        let Some(descriptor) = register(descriptor) else {
            return;
        };
        while let ControlFlow::Continue(has_more) = received {
            if has_more {
                yield_now().await;
            } else {
                match descriptor.readable().await {
                    Ok(mut ready) => ready.clear_ready(),
                    // The runtime ends.
                    Err(_) => return,
                }
            }
            received = descriptor.get_ref().receive();
        }
    });
}

/// Registers it at the reactor. A runtime without one says so by a panic, which tokio prints; then the threads of the devices wake all tasks.
#[expect(deprecated, reason = "what replaces it is an unsafe function")]
fn register(descriptor: TaskDescriptor) -> Option<AsyncFd<TaskDescriptor>> {
    let registered = catch_unwind(AssertUnwindSafe(|| AsyncFd::new(descriptor)));
    IS_WITHOUT_REACTOR.fetch_or(registered.is_err(), Ordering::Relaxed);
    registered.ok()?.ok()
}
