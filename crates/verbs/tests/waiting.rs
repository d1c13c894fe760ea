//! Threads that wait for completions and notifications, and callers' code that uses the device itself.

mod support;

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rocinante::{
    CompletionChannel, CompletionQueue, ConnectOptions, Notify, QueuePair, Request, Status,
};
use support::{ConnectedPair, End, TIMEOUT};

/// Runs `work` on a thread of its own and fails if it hangs.
fn within_timeout(work: impl FnOnce() + Send + 'static) {
    let (done, finished) = mpsc::channel();
    let worker = thread::spawn(move || {
        work();
        let _ = done.send(());
    });
    if finished.recv_timeout(TIMEOUT) == Err(mpsc::RecvTimeoutError::Timeout) {
        panic!("it hangs");
    }
    worker.join().expect("it succeeds");
}

#[test]
fn two_completions_wake_two_threads_that_wait_at_one_queue() {
    within_timeout(|| {
        let pair = ConnectedPair::connected("127.55.1.1", "127.55.1.2");
        for _ in 0..50 {
            for id in 0..2 {
                let room = pair.right.memory.slice(0..8);
                pair.from_right.post_receive(id, [room]).expect("room");
            }
            thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| pair.right.completions.wait());
                }
                thread::sleep(Duration::from_millis(2));
                let sends = (0..2).map(|id| Request::send().inline(b"both").id(id));
                pair.from_left.post_send_many(sends).expect("room");
                for _ in 0..2 {
                    pair.left.success();
                }
            });
        }
    });
}

#[test]
fn notifications_wake_all_threads_that_wait_at_a_channel() {
    within_timeout(|| {
        let pair = ConnectedPair::connected("127.55.1.3", "127.55.1.4");
        let (channel, queues) = channel_of_two(&pair.right);
        let pairs = connections(&pair, &queues);
        for _ in 0..50 {
            for ((_, right), queue) in pairs.iter().zip(&queues) {
                queue.arm(Notify::Any);
                let room = pair.right.memory.slice(0..8);
                right.post_receive(0, [room]).expect("room");
            }
            thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| channel.wait());
                }
                thread::sleep(Duration::from_millis(2));
                for (left, _) in &pairs {
                    left.post_send(Request::send().inline(b"both"))
                        .expect("room");
                }
                for _ in 0..2 {
                    pair.left.success();
                }
            });
            assert!(queues.iter().all(|queue| queue.poll().is_some()));
        }
    });
}

fn channel_of_two(end: &End) -> (CompletionChannel, [CompletionQueue; 2]) {
    let channel = end.context.create_completion_channel().expect("room");
    let queues = [(); 2].map(|()| channel.create_completion_queue(64).expect("room"));
    (channel, queues)
}

/// One more connection for each queue, whose receives complete there.
fn connections(pair: &ConnectedPair, queues: &[CompletionQueue]) -> Vec<(QueuePair, QueuePair)> {
    let connect = |queue| connect(&pair.left, &pair.right, queue);
    queues.iter().map(connect).collect()
}

fn connect(left: &End, right: &End, queue: &CompletionQueue) -> (QueuePair, QueuePair) {
    let here = left.prepare(ConnectOptions::default());
    let there = right
        .domain
        .queue_pair_builder(queue)
        .create_reliable()
        .expect("room");
    let (our_end, their_end) = (here.endpoint(), there.endpoint());
    (
        here.connect(their_end).expect("a peer"),
        there.connect(our_end).expect("a peer"),
    )
}

#[test]
fn waiting_at_a_queue_leaves_the_notifications_of_its_channel_alone() {
    within_timeout(|| {
        let pair = ConnectedPair::connected("127.55.1.5", "127.55.1.6");
        let (channel, queues) = channel_of_two(&pair.right);
        let pairs = connections(&pair, &queues);
        for (_, right) in &pairs {
            let room = pair.right.memory.slice(0..8);
            right.post_receive(0, [room]).expect("room");
        }
        queues[0].arm(Notify::Any);
        thread::scope(|scope| {
            let waiter = scope.spawn(|| queues[1].wait());
            thread::sleep(Duration::from_millis(20));
            for (left, _) in &pairs {
                left.post_send(Request::send().inline(b"one"))
                    .expect("room");
                pair.left.success();
            }
            waiter.join().expect("a completion");
        });
        assert_eq!(channel.wait_for(TIMEOUT), Some(queues[0].token()));
        // The other queue was not armed, so waiting at it does not affect the channel.
        assert_eq!(channel.poll(), None);
    });
}

#[test]
fn an_iterator_of_requests_may_use_the_device() {
    within_timeout(|| {
        let pair = ConnectedPair::connected("127.55.1.7", "127.55.1.8");
        let (memory, remote) = (&pair.left.memory, &pair.right.memory);
        let requests = (0..100_u8).map(|index| {
            let place = usize::from(index);
            memory.write(place, &[index]);
            let data = memory.slice(place..place + 1);
            Request::write(remote.remote(place)).data(data)
        });
        pair.from_left.post_send_many(requests).expect("room");
        for _ in 0..100 {
            pair.left.success();
        }
        let expected: Vec<u8> = (0..100).collect();
        assert_eq!(pair.right.memory.to_vec(0..100), expected);
    });
}

#[cfg(feature = "async")]
mod tasks {
    use std::future::Future;
    use std::pin::pin;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::{Arc, Mutex};
    use std::task::{Context, Poll, Wake, Waker};

    use super::*;

    /// Polls the queue inside of the wake-up, as an executor may do.
    struct PollsInline {
        queue: CompletionQueue,
        found: Mutex<Option<u64>>,
        woken: AtomicU32,
    }

    impl Wake for PollsInline {
        fn wake(self: Arc<Self>) {
            if let Some(completion) = self.queue.poll() {
                *self.found.lock().expect("no panic") = Some(completion.id);
            }
            self.woken.fetch_add(1, Ordering::Release);
        }
    }

    #[test]
    fn a_waker_may_poll_at_once() {
        within_timeout(|| {
            let pair = ConnectedPair::connected("127.55.1.9", "127.55.1.10");
            let queue = pair.right.completions.clone();
            let inline = Arc::new(PollsInline {
                queue: queue.clone(),
                found: Mutex::default(),
                woken: AtomicU32::new(0),
            });
            let room = pair.right.memory.slice(0..8);
            pair.from_right.post_receive(9, [room]).expect("room");
            let waker = Waker::from(Arc::clone(&inline));
            let mut next = pin!(queue.next());
            let first = next.as_mut().poll(&mut Context::from_waker(&waker));
            assert!(first.is_pending());
            let send = Request::send().inline(b"wake");
            pair.from_left.post_send(send).expect("room");
            while inline.woken.load(Ordering::Acquire) == 0 {
                thread::yield_now();
            }
            assert_eq!(*inline.found.lock().expect("no panic"), Some(9));
        });
    }

    #[test]
    fn awaiting_leaves_nothing_behind_in_the_channel() {
        within_timeout(|| {
            let pair = ConnectedPair::connected("127.55.1.11", "127.55.1.12");
            let channel = pair
                .right
                .context
                .create_completion_channel()
                .expect("room");
            let queue = channel.create_completion_queue(64).expect("room");
            let (left, right) = connect(&pair.left, &pair.right, &queue);
            let mut context = Context::from_waker(Waker::noop());
            for _ in 0..100 {
                let room = pair.right.memory.slice(0..8);
                right.post_receive(0, [room]).expect("room");
                let mut next = pin!(queue.next());
                assert!(next.as_mut().poll(&mut context).is_pending());
                left.post_send(Request::send().inline(b"one"))
                    .expect("room");
                pair.left.success();
                while next.as_mut().poll(&mut context) == Poll::Pending {
                    thread::yield_now();
                }
            }
            let left_behind = std::iter::from_fn(|| channel.poll()).count();
            assert_eq!(left_behind, 0);
        });
    }
}

/// Only some of many waiting threads receive packets; they wake the others.
#[test]
fn each_of_many_threads_gets_the_completions_of_its_own_queue() {
    const THREADS: usize = 12;
    within_timeout(|| {
        let pair = ConnectedPair::connected("127.55.1.11", "127.55.1.12");
        let context = &pair.right.context;
        let queues = [(); THREADS].map(|()| context.create_completion_queue(64).expect("room"));
        let pairs: Vec<_> = (queues.iter())
            .map(|queue| connect(&pair.left, &pair.right, queue))
            .collect();
        thread::scope(|scope| {
            let (tell, received) = mpsc::channel();
            for (number, (queue, (_, right))) in queues.iter().zip(&pairs).enumerate() {
                let memory = &pair.right.memory;
                let room = move || memory.slice(number * 8..number * 8 + 8);
                let tell = tell.clone();
                right.post_receive(0, [room()]).expect("room");
                scope.spawn(move || {
                    for _ in 0..50 {
                        let completion = queue.wait();
                        assert_eq!(completion.status, Status::Success);
                        right.post_receive(0, [room()]).expect("room");
                        tell.send(number).expect("it is awaited");
                    }
                });
            }
            for round in 0..50 {
                for step in 0..THREADS {
                    let number = (round + step * 5) % THREADS;
                    let (left, _) = &pairs[number];
                    left.post_send(Request::send().inline(b"yours"))
                        .expect("room");
                    pair.left.success();
                    assert_eq!(received.recv_timeout(TIMEOUT), Ok(number));
                }
            }
        });
    });
}
