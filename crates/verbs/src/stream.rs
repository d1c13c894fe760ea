//! Byte streams over reliable connections.
//!
//! [`Transport`](transport::Transport) sends and receives messages, [`Flow`](flow::Flow) says how many, and this module makes bytes of them.

mod failure;
mod flow;
mod message;
mod setup;
#[cfg(feature = "tokio")]
mod tokio_io;
mod transport;
mod waiting;

use std::fmt;
use std::future::poll_fn;
use std::io::{self, BufRead, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use driver::clock;

pub use setup::StreamOptions;

use self::message::Message;
use self::transport::Transport;
use crate::executor::block_on;
use crate::task_timer::TaskTimer;

/// A reliable byte stream in both directions over a connection, for programs that were written for TCP.
///
/// It implements [`Read`] and [`Write`] of the standard library, also by a shared reference, so that one thread can read while another writes. With the
/// feature `tokio` it implements `AsyncRead`, `AsyncBufRead` and `AsyncWrite`; tasks on other executors use [`poll_read`](Self::poll_read),
/// [`poll_write`](Self::poll_write) and [`poll_finish`](Self::poll_finish).
///
/// ```
/// use std::io::{BufRead, Read, Write};
///
/// use rocinante::{Listener, Stream};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// let listener = Listener::bind("127.0.0.1:0")?;
/// let address = listener.local_address();
/// let server = std::thread::spawn(move || {
///     let mut client = Stream::accept(listener.wait())?;
///     let mut line = String::new();
///     client.read_line(&mut line)?;
///     write!(client, "you said: {line}")?;
///     client.finish()?;
///     Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
/// });
///
/// let mut stream = Stream::connect(address)?;
/// stream.write_all(b"hello\n")?;
/// let mut reply = String::new();
/// stream.read_to_string(&mut reply)?; // until the server finishes
/// assert_eq!(reply, "you said: hello\n");
/// # server.join().expect("no panic")
/// # }
/// ```
///
/// # What is as with TCP
///
/// A write returns when its bytes are on their way, and waits while the peer does not read. A peer that has [finished](Self::finish) its direction
/// ends the stream: reads return 0. Errors have the kinds that they have with TCP: [`ConnectionReset`](ErrorKind::ConnectionReset) for a read and
/// [`BrokenPipe`](ErrorKind::BrokenPipe) for a write after the connection was lost, and [`TimedOut`](ErrorKind::TimedOut) after a
/// [timeout](Self::set_read_timeout). What arrived before is read first. A peer that violates the protocol of the messages is an error of kind
/// [`InvalidData`](ErrorKind::InvalidData), and the connection ends.
///
/// # What is not
///
/// Dropping a stream ends the connection at once: what the peer's device has not acknowledged may be lost, and the peer gets `ConnectionReset` instead of
/// the end of the stream. So [`finish`](Self::finish) after the last write.
///
/// Each write is a message of its own, and takes one of the peer's buffers until it is read. A program that writes a few bytes at a time is faster with a
/// [`BufWriter`](io::BufWriter). No [`BufReader`](io::BufReader) is needed: [`fill_buf`](BufRead::fill_buf) gives what has arrived in its place.
#[must_use = "dropping it ends the connection"]
pub struct Stream {
    transport: Transport,
    /// The message that is being read.
    reader: Mutex<Option<Message>>,
    timeouts: Mutex<Timeouts>,
}

/// How long calls wait that block.
#[derive(Debug, Clone, Copy, Default)]
struct Timeouts {
    read: Option<Duration>,
    write: Option<Duration>,
}

impl Stream {
    fn new(transport: Transport) -> Self {
        Self {
            transport,
            reader: Mutex::default(),
            timeouts: Mutex::default(),
        }
    }

    /// The local address.
    #[must_use]
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.transport.connection().local_address()
    }

    /// The peer's address.
    #[must_use]
    pub fn peer_address(&self) -> Option<SocketAddr> {
        self.transport.connection().peer_address()
    }

    /// Ends this direction of the stream, as `shutdown` of a TCP stream: the peer reads its end after all bytes. Waits until the peer's device has
    /// acknowledged them, at most for the write timeout; then the stream can be dropped without a loss. Writes fail from now on, and reads go on.
    ///
    /// # Errors
    /// If bytes may be lost because the connection was: perhaps the peer has read them all, and has gone before the last acknowledgement arrived.
    pub fn finish(&self) -> io::Result<()> {
        self.block(self.timeouts().write, Self::try_finish)
    }

    /// Sets how long a read waits; without limit by default, and with `None`. A read that takes longer fails with
    /// [`TimedOut`](ErrorKind::TimedOut), and can be repeated. Tasks use the timeouts of their executor.
    ///
    /// # Errors
    /// If it is zero, as with TCP.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.timeouts().read = checked(timeout)?;
        Ok(())
    }

    /// As [`set_read_timeout`](Self::set_read_timeout), for writes and [`finish`](Self::finish).
    ///
    /// # Errors
    /// If it is zero, as with TCP.
    pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.timeouts().write = checked(timeout)?;
        Ok(())
    }

    /// Reads for a task. Returns how many bytes; 0 at the end of the stream.
    pub fn poll_read(&self, task: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        self.poll_with(task, |stream| stream.try_read(into))
    }

    /// Writes for a task. Returns how many bytes.
    pub fn poll_write(&self, task: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_with(task, |stream| stream.try_write(from))
    }

    /// As [`finish`](Self::finish), for a task.
    pub fn poll_finish(&self, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_with(task, Self::try_finish)
    }

    fn try_read(&self, into: &mut [u8]) -> Option<io::Result<usize>> {
        if into.is_empty() {
            return Some(Ok(0));
        }
        let mut reader = self.reader();
        if let Err(error) = self.next_message(&mut reader)? {
            return Some(Err(error));
        }
        let length = reader.as_mut().map_or(0, |message| message.read(into));
        let read = reader.take_if(|message| message.is_read());
        drop(reader);
        self.give_back(read);
        Some(Ok(length))
    }

    fn try_fill(&self) -> Option<io::Result<()>> {
        self.next_message(&mut self.reader())
    }

    /// Takes the next message if there is none; none follows at the end of the stream.
    fn next_message(&self, reader: &mut Option<Message>) -> Option<io::Result<()>> {
        if reader.is_some() {
            return Some(Ok(()));
        }
        let next = self.transport.next_message()?;
        Some(match next {
            Ok(next) => {
                *reader = next;
                Ok(())
            }
            Err(failure) => Err(failure.of_read()),
        })
    }

    /// What was received and not read, in its place.
    fn filled(&mut self) -> &[u8] {
        let reader = self.reader.get_mut();
        let message = reader.unwrap_or_else(PoisonError::into_inner);
        message.as_mut().map_or(&[], Message::in_place)
    }

    fn skip(&mut self, length: usize) {
        let mut reader = self.reader();
        if let Some(message) = reader.as_mut() {
            message.skip(length);
        }
        let read = reader.take_if(|message| message.is_read());
        drop(reader);
        self.give_back(read);
    }

    fn give_back(&self, read: Option<Message>) {
        if let Some(message) = read {
            self.transport.give_back(message);
        }
    }

    fn try_write(&self, from: &[u8]) -> Option<io::Result<usize>> {
        if from.is_empty() {
            return Some(Ok(0));
        }
        let sent = self.transport.send(from)?;
        Some(sent.map_err(failure::Failure::of_write))
    }

    fn try_finish(&self) -> Option<io::Result<()>> {
        let ended = self.transport.finish()?;
        Some(ended.map_err(failure::Failure::of_write))
    }

    /// Tries something, now or when there is progress.
    fn poll_with<T>(
        &self,
        task: &mut Context<'_>,
        mut attempt: impl FnMut(&Self) -> Option<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if let Some(done) = attempt(self) {
            return Poll::Ready(done);
        }
        let waiting = self.transport.waiting();
        let seen = waiting.progress();
        self.transport.collect();
        if let Some(done) = attempt(self) {
            return Poll::Ready(done);
        }
        waiting.add(seen, task.waker());
        Poll::Pending
    }

    /// Tries something until it succeeds, on this thread.
    fn block<T>(
        &self,
        timeout: Option<Duration>,
        mut attempt: impl FnMut(&Self) -> Option<io::Result<T>>,
    ) -> io::Result<T> {
        if let Some(done) = attempt(self) {
            return done;
        }
        let deadline = timeout.and_then(clock::deadline);
        let mut timer = None;
        block_on(poll_fn(|task| {
            let polled = self.poll_with(task, &mut attempt);
            let Some(deadline) = deadline.filter(|_| polled.is_pending()) else {
                return polled;
            };
            let context = self.transport.connection().queue_pair().context();
            let timer = timer.get_or_insert_with(|| TaskTimer::new(context));
            if timer.poll(deadline, task.waker()).is_pending() {
                return Poll::Pending;
            }
            self.transport.waiting().remove(task.waker());
            Poll::Ready(Err(ErrorKind::TimedOut.into()))
        }))
    }

    fn reader(&self) -> MutexGuard<'_, Option<Message>> {
        self.reader.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn timeouts(&self) -> MutexGuard<'_, Timeouts> {
        self.timeouts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn checked(timeout: Option<Duration>) -> io::Result<Option<Duration>> {
    if timeout == Some(Duration::ZERO) {
        let text = "a timeout of zero: use `None` to wait without limit";
        return Err(io::Error::new(ErrorKind::InvalidInput, text));
    }
    Ok(timeout)
}

impl Read for &Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let timeout = self.timeouts().read;
        self.block(timeout, |stream| stream.try_read(into))
    }
}

impl Write for &Stream {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        let timeout = self.timeouts().write;
        self.block(timeout, |stream| stream.try_write(from))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        (&*self).read(into)
    }
}

impl Write for Stream {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        (&*self).write(from)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl BufRead for Stream {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        let timeout = self.timeouts().read;
        self.block(timeout, Self::try_fill)?;
        Ok(self.filled())
    }

    fn consume(&mut self, length: usize) {
        self.skip(length);
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream")
            .field("local_address", &self.local_address())
            .field("peer_address", &self.peer_address())
            .finish_non_exhaustive()
    }
}
