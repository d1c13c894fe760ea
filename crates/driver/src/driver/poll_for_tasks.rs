//! Polling for completions in a task.
//!
//! A task can't sleep, but it can receive its own packets, also those that arrive within a short look. Otherwise two threads must wake
//! up for each of its messages: that of the lane, which receives it, and that of the executor.

use std::sync::Arc;
use std::task::Waker;

use engine::Completion;

use super::{Driver, PolledQueue, TaskDescriptor};
use crate::clock::now;
use crate::lane::state::{Found, Intent, MANY};
use crate::lane::{Lane, prepare_descriptor};
use crate::times::LOOK;
use crate::turn::AfterVainPoll;
use crate::waiting::wait_set::WaitSet;

/// Who receives the packets of a task that waits.
#[derive(Clone, Copy)]
pub enum TaskWakeups<'e> {
    /// The thread that runs it, which sleeps in [`Driver::sleep`] next.
    OwnThread,
    /// The executor, which waits for a [`TaskDescriptor`] from the time on that it is given one.
    Executor(&'e dyn Fn(TaskDescriptor)),
    /// The thread of the lane.
    LaneThread,
}

/// What a task finds that polls a queue.
#[derive(Debug)]
pub enum TaskPoll {
    /// The oldest completion.
    Found(Completion),
    /// Nothing. It has found much before, so it lets other tasks run, and polls again.
    Yield,
    /// Nothing. It waits.
    Wait,
}

impl Driver {
    /// Polls for a task. If there is no completion, receives packets first, also those that arrive within a short look.
    pub fn poll_for_task(&self, queue: &PolledQueue) -> TaskPoll {
        if self.is_inherited() {
            return TaskPoll::Wait;
        }
        if let Some(found) = self.take_directly(queue) {
            return TaskPoll::Found(found);
        }
        let begin = now();
        let (lane, polled) = self.step(|lane, state| {
            state.note_polled(queue.id());
            lane.turn.note_poll(begin);
            let mut found = state.poll_completion(&queue.queue);
            if found.is_none() {
                found = state
                    .step(begin, Intent::Poll(&queue.queue))
                    .found
                    .completion();
            }
            // A task that has taken a message, and replies later, would reply even later.
            let may_look = state.port().is_real() && !state.has_unsent();
            (lane, found.ok_or(may_look))
        });
        let found = match polled {
            Ok(completion) => Some(completion),
            Err(false) => None,
            Err(true) => match lane.looks.tasks.next() {
                AfterVainPoll::Look => lane.look_for_task(queue),
                AfterVainPoll::Yield => return TaskPoll::Yield,
                AfterVainPoll::Wait => None,
            },
        };
        found.map_or(TaskPoll::Wait, TaskPoll::Found)
    }

    /// Lets the next completion wake a task. If there is one now, returns it instead.
    pub fn watch_for_task(
        &self,
        queue: &PolledQueue,
        waiting: &WaitSet,
        task: &Waker,
        wakeups: TaskWakeups<'_>,
    ) -> Option<Completion> {
        if self.is_inherited() {
            return None;
        }
        if let Some(found) = self.take_directly(queue) {
            return Some(found);
        }
        // Before the check, so that no completion is missed between them.
        waiting.add_task(task);
        let (lane, found, next, is_served) = self.step(|lane, state| {
            let mut found = loop {
                let found = state.poll_completion(&queue.queue);
                // A queue pair of another lane may add one at any time.
                if found.is_some() || state.device_mut().watch_completions(queue.id()) {
                    break found;
                }
            };
            let is_served = match wakeups {
                TaskWakeups::OwnThread => true,
                TaskWakeups::Executor(_) => state.packets_wake_tasks(),
                TaskWakeups::LaneThread => false,
            };
            if found.is_none() {
                state.send_waiting(now());
                if is_served && matches!(wakeups, TaskWakeups::Executor(_)) {
                    // From now on packets through shared memory wake it, too.
                    found = prepare_descriptor(state, &queue.queue).completion();
                }
            }
            (lane, found, state.next_deadline(), is_served)
        });
        lane.wake_thread_before(next);
        if found.is_none() && !is_served {
            let descriptor = match wakeups {
                TaskWakeups::Executor(give) => lane.task_descriptor().map(give),
                TaskWakeups::OwnThread | TaskWakeups::LaneThread => None,
            };
            if descriptor.is_none() {
                lane.end_standby(now());
            }
        }
        found
    }
}

impl Lane {
    /// A descriptor for an executor that has none yet; `None` if another one has it, or in a simulation.
    fn task_descriptor(self: &Arc<Self>) -> Option<TaskDescriptor> {
        self.step(|state| {
            let packets = state.offer_packets_to_executor()?;
            Some(TaskDescriptor::new(self, packets.signal()))
        })
    }

    /// Receives packets for an executor that they have woken. Returns whether there may be more.
    pub(crate) fn receive_for_tasks(&self) -> bool {
        let begin = now();
        self.turn.note_poll(begin);
        self.step(|state| {
            let outcome = state.step(begin, Intent::ForTasks);
            let has_many = outcome.arrived >= MANY;
            if !has_many && outcome.found == Found::Nothing {
                state.prepare_descriptor(begin, Intent::ForTasks);
            }
            self.schedule_unsent(state, begin);
            has_many
        })
    }

    /// Looks for a completion for a task, because a reply on the same machine often arrives before another thread is awake. The lock is
    /// free between the attempts.
    fn look_for_task(&self, queue: &PolledQueue) -> Option<Completion> {
        let begin = now();
        loop {
            std::hint::spin_loop();
            let result = self.step(|state| {
                let now = now();
                let step = state.step(now, Intent::PollAgain(&queue.queue));
                let found = step.found.completion();
                if found.is_none() && now < begin + LOOK {
                    return None;
                }
                self.looks.tasks.note(found.is_some());
                self.schedule_unsent(state, now);
                Some(found)
            });
            if let Some(found) = result {
                return found;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::ops::ControlFlow;
    use std::os::fd::AsFd;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::Wake;
    use std::time::Duration;

    use net::poll::{Interest, wait};

    use super::*;
    use crate::driver::connected_end::End;

    #[derive(Default)]
    struct Task(AtomicU32);

    impl Wake for Task {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn is_readable(descriptor: &TaskDescriptor, timeout: Duration) -> bool {
        let ready = wait(&[Interest::readable(descriptor.as_fd())], Some(timeout));
        !ready.expect("a descriptor").is_empty()
    }

    /// A message arrives at a device that no thread serves, but an executor whose task waits for it.
    fn an_executor_receives((here, there): (End, End)) {
        let queue = there.driver.polled_queue(there.completions);
        let queue = queue.expect("it exists");
        let waiting = Arc::<WaitSet>::default();
        there.driver.set_wait_set(there.completions, &waiting);
        let task = Arc::<Task>::default();
        let given = RefCell::new(None);
        let give = |descriptor| *given.borrow_mut() = Some(descriptor);
        let watch = || {
            let task = Waker::from(Arc::clone(&task));
            let wakeups = TaskWakeups::Executor(&give);
            (there.driver).watch_for_task(&queue, &waiting, &task, wakeups)
        };
        while watch().is_some() {}
        drop(given.take().expect("a descriptor"));
        assert!(watch().is_none());
        let descriptor = given.take().expect("nobody waits for the first any more");
        for round in 0..3 {
            while watch().is_some() {}
            assert!(given.borrow().is_none(), "the executor has one");
            let before = task.0.load(Ordering::Relaxed);
            here.send_to(&there);
            while task.0.load(Ordering::Relaxed) == before {
                assert!(is_readable(&descriptor, Duration::from_secs(20)), "{round}");
                assert!(descriptor.receive().is_continue());
            }
            let unsent = there.driver.lane().lock().has_unsent();
            assert!(unsent, "the acknowledgement leaves with the reply");
            let found = there.driver.poll_for_task(&queue);
            assert!(matches!(found, TaskPoll::Found(it) if it.work.is_receive()));
        }
        drop((queue, there));
        assert!(is_readable(&descriptor, Duration::from_secs(20)));
        assert_eq!(descriptor.receive(), ControlFlow::Break(()));
    }

    #[test]
    fn packets_wake_an_executor_that_receives_them_for_its_tasks() {
        an_executor_receives(End::pair_without_rings(["127.58.89.1", "127.58.89.2"]));
    }

    #[test]
    fn packets_through_memory_wake_an_executor_that_receives_them_for_its_tasks() {
        an_executor_receives(End::pair_with_rings(["127.58.89.3", "127.58.89.4"]));
    }
}
