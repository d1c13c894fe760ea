//! What the program of a host can do beyond the verbs.

use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use driver::OpenError;
use driver::simulation::note_wait;

use super::runtime::{Command, Inner};

/// The host of a program. Cheap to clone.
#[derive(Clone)]
pub struct Host {
    pub(super) inner: Rc<Inner>,
    pub(super) index: usize,
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Host").field(&self.name()).finish()
    }
}

impl Host {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.inner.hosts[self.index].name
    }

    /// Its address.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.inner.address(self.index)
    }

    /// The address of a host, itself or another one, and a port.
    ///
    /// # Panics
    /// If there is no such host.
    #[must_use]
    pub fn address_of(&self, host: &str, port: u16) -> SocketAddr {
        SocketAddr::new(self.inner.address(self.inner.find(host)), port)
    }

    /// Opens its device.
    pub fn open(&self) -> Result<crate::Context, OpenError> {
        crate::Context::open("roci0")
    }

    /// The time since the simulation began.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.inner.world.elapsed()
    }

    /// Waits in simulated time. Other tasks and hosts go on.
    pub fn sleep(&self, duration: Duration) -> Sleep {
        let deadline = self.inner.world.now().checked_add(duration);
        Sleep {
            key: deadline.map(|at| (at, self.inner.next_number())),
            until: self.elapsed().saturating_add(duration),
            inner: Rc::clone(&self.inner),
        }
    }

    /// The result of a future; `None` if it takes longer than `limit`.
    pub async fn timeout<F: Future>(&self, limit: Duration, future: F) -> Option<F::Output> {
        let (mut future, mut sleep) = (pin!(future), self.sleep(limit));
        std::future::poll_fn(|context| {
            if let Poll::Ready(output) = future.as_mut().poll(context) {
                return Poll::Ready(Some(output));
            }
            Pin::new(&mut sleep).poll(context).map(|()| None)
        })
        .await
    }

    /// Starts another task of this host. It runs until it ends, or until the program of the host ends or crashes.
    pub fn spawn<F>(&self, future: F) -> Task<F::Output>
    where
        F: Future + 'static,
    {
        let shared = Rc::new(RefCell::new(Ended {
            output: None,
            waker: None,
        }));
        let ended = Rc::clone(&shared);
        let work = async move {
            let output = future.await;
            let waker = {
                let mut ended = ended.borrow_mut();
                ended.output = Some(output);
                ended.waker.take()
            };
            if let Some(waker) = waker {
                waker.wake();
            }
            Ok(())
        };
        self.inner.spawn(self.index, Box::pin(work));
        Task(shared)
    }

    /// A random number, which depends on the seed.
    #[must_use]
    pub fn random(&self) -> u64 {
        self.inner.world.random()
    }

    /// A random number below `bound`, which depends on the seed; 0 if `bound` is 0.
    #[must_use]
    pub fn random_below(&self, bound: u64) -> u64 {
        ((u128::from(self.random()) * u128::from(bound)) >> 64) as u64
    }

    /// Crashes and restarts hosts, and cuts the network.
    #[must_use]
    pub fn control(&self) -> Control {
        Control {
            inner: Rc::clone(&self.inner),
        }
    }
}

/// Crashes and restarts hosts, and cuts the network between them. All methods panic if there is no host of the name.
#[derive(Clone)]
pub struct Control {
    pub(super) inner: Rc<Inner>,
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Control").field(&self.elapsed()).finish()
    }
}

impl Control {
    /// Ends the program of a host, as a failure of its machine does: its peers are not told. Packets that it has sent stay in
    /// flight. The destructors of its objects run, but send nothing.
    pub fn crash(&self, host: &str) {
        self.inner.request(Command::Crash(self.inner.find(host)));
    }

    /// Starts the program of a host again, from its beginning. A host that still runs crashes first.
    pub fn restart(&self, host: &str) {
        self.inner.request(Command::Restart(self.inner.find(host)));
    }

    /// Cuts the network between two hosts: packets in both directions are lost.
    pub fn partition(&self, one: &str, other: &str) {
        self.inner.set_cut(one, other, true);
    }

    /// Ends a [partition](Self::partition).
    pub fn heal(&self, one: &str, other: &str) {
        self.inner.set_cut(one, other, false);
    }

    /// The time since the simulation began.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.inner.world.elapsed()
    }
}

/// Waits in simulated time.
#[must_use = "futures do nothing unless they are awaited"]
pub struct Sleep {
    inner: Rc<Inner>,
    /// The key of its timer; `None` if it ends later than there are times.
    key: Option<(Instant, u64)>,
    until: Duration,
}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleep")
            .field("until", &self.until)
            .finish_non_exhaustive()
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if let Some(key) = self.key {
            if key.0 <= self.inner.world.now() {
                return Poll::Ready(());
            }
            self.inner.set_task_timer(key, context.waker());
        }
        note_wait(|| format!("the time {:?}", self.until));
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.inner.cancel_task_timer(key);
        }
    }
}

/// A task of a host, and its result when it is awaited. Dropping it does not end the task.
pub struct Task<T>(Rc<RefCell<Ended<T>>>);

struct Ended<T> {
    output: Option<T>,
    waker: Option<Waker>,
}

impl<T> fmt::Debug for Task<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let has_ended = self.0.borrow().output.is_some();
        f.debug_struct("Task")
            .field("has_ended", &has_ended)
            .finish()
    }
}

impl<T> Future for Task<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let mut ended = self.0.borrow_mut();
        if let Some(output) = ended.output.take() {
            return Poll::Ready(output);
        }
        ended.waker = Some(context.waker().clone());
        note_wait(|| "another task of the host".to_owned());
        Poll::Pending
    }
}
