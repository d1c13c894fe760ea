//! The connection of a ping, with its memory and completion queue.

use std::io::Write as _;
use std::time::Duration;

use anyhow::anyhow;
use rocinante::{
    Access, CompletedWork, Completion, CompletionQueue, ConnectOptions, Connection, Context, Key,
    MemoryRegion, PostError, ProtectionDomain, QueuePairBuilder, RemoteMemory, Request, Segment,
    Status,
};

use super::advertisement::Advertisement;
use super::interrupt;
use crate::output::print_line;

/// How long to wait for a completion before checking whether the peer has disconnected. Doubled each time: a
/// peer disconnects soon after the last ping, and waits for our response.
const MIN_PEER_CHECK_INTERVAL: Duration = Duration::from_millis(1);
const MAX_PEER_CHECK_INTERVAL: Duration = Duration::from_millis(64);

/// After this time without a completion, a probe checks whether the peer is still there.
const PROBE_DELAY: Duration = Duration::from_secs(1);

/// How long after a flushed receive the end of the connection may be reported.
const END_REPORT_TIMEOUT: Duration = Duration::from_millis(500);
/// How long to wait for the peer's response to the disconnection, after all pings. The peer's program gives it, and may wait for a
/// processor; a lost message is sent again after 1.5 and 3 seconds.
const FAREWELL_TIMEOUT: Duration = Duration::from_secs(10);
/// The same after an interrupt or an error: then the peer may be gone.
const DISCONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// The numbers of work requests.
const MESSAGE: u64 = 0;
const TRANSFER: u64 = 1;
const PROBE: u64 = 2;

/// Which side this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Client,
    Server,
}

/// Why a ping session ended.
pub(super) enum Stop {
    /// The peer has ended the connection while this was awaited.
    Left(&'static str),
    /// The user has interrupted it.
    Interrupted,
    /// An error.
    Failed(anyhow::Error),
}

impl From<anyhow::Error> for Stop {
    fn from(error: anyhow::Error) -> Self {
        Self::Failed(error)
    }
}

impl From<PostError> for Stop {
    fn from(error: PostError) -> Self {
        Self::Failed(error.into())
    }
}

/// The objects that are created before the connection.
pub(super) struct Resources {
    domain: ProtectionDomain,
    completions: CompletionQueue,
    inbox: MemoryRegion,
    debug: bool,
}

impl Resources {
    pub(super) fn at(context: &Context, debug: bool) -> anyhow::Result<Self> {
        let domain = context.allocate_protection_domain()?;
        Ok(Self {
            completions: context.create_completion_queue(32)?,
            inbox: domain.allocate_memory(Advertisement::LENGTH, Access::LOCAL_WRITE)?,
            domain,
            debug,
        })
    }

    /// Registers memory for the peer, with this access.
    pub(super) fn memory(&self, size: usize, access: Access) -> anyhow::Result<MemoryRegion> {
        Ok(self
            .domain
            .allocate_memory(size, Access::LOCAL_WRITE | access)?)
    }

    /// The queue pair, as in rping: one READ at a time.
    pub(super) fn queue_pair_builder(&self) -> QueuePairBuilder {
        let connect_options = ConnectOptions {
            reads: 1,
            ..ConnectOptions::default()
        };
        let builder = self.domain.queue_pair_builder(&self.completions);
        builder.depth(16, 2).connect_options(connect_options)
    }

    /// Posts the receive of the next message.
    pub(super) fn inbox(&self) -> [Segment; 1] {
        [self.inbox.all()]
    }
}

/// Prints a step, if debug output is on.
pub(super) fn debug(wanted: bool, step: impl FnOnce() -> String) -> anyhow::Result<()> {
    if wanted { print_line(step()) } else { Ok(()) }
}

/// A connected session.
pub(super) struct Session {
    side: Side,
    connection: Connection,
    resources: Resources,
}

impl Session {
    pub(super) fn new(side: Side, connection: Connection, resources: Resources) -> Self {
        Self {
            side,
            connection,
            resources,
        }
    }

    /// Advertises a buffer to the peer.
    pub(super) fn advertise(&self, memory: &MemoryRegion) -> Result<(), Stop> {
        let advertisement = Advertisement::of(memory);
        self.debug(|| {
            let RemoteMemory { address, key } = advertisement.remote;
            let (key, length) = (key.value(), advertisement.length);
            format!("RDMA addr {address:x} rkey {key:x} len {length}")
        })?;
        self.send_message(advertisement.to_bytes())
    }

    /// Sends a "go ahead".
    pub(super) fn go_ahead(&self) -> Result<(), Stop> {
        self.send_message(Advertisement::NOTHING)?;
        self.debug(|| "server posted go ahead".to_owned())
    }

    /// Waits for the peer's message, which `awaited` names as rping does.
    pub(super) fn receive_message(&self, awaited: &'static str) -> Result<Advertisement, Stop> {
        let completion = self.wait(CompletedWork::Receive, awaited)?;
        let length = completion.length;
        if length as usize != Advertisement::LENGTH {
            return Err(Stop::Failed(anyhow!(
                "{} sends messages of {length} bytes, which rping does not do: is it another program?",
                self.peer()
            )));
        }
        let mut bytes = Advertisement::NOTHING;
        self.resources.inbox.read(0, &mut bytes);
        self.connection.post_receive(0, self.resources.inbox())?;
        Ok(Advertisement::from_bytes(bytes))
    }

    /// Posts a READ or WRITE; [`wait`](Self::wait) waits until it is done.
    pub(super) fn transfer(&self, request: Request) -> Result<(), Stop> {
        Ok(self.connection.post_send(request.id(TRANSFER))?)
    }

    /// Waits until a work request of this type is done.
    pub(super) fn wait(
        &self,
        work: CompletedWork,
        awaited: &'static str,
    ) -> Result<Completion, Stop> {
        loop {
            let completion = self.next(awaited)?;
            if completion.status != Status::Success {
                return Err(self.failure(&completion, awaited));
            }
            if completion.id == PROBE {
                continue;
            }
            self.debug(|| format!("{} completion", name(completion.work)))?;
            if completion.work == work {
                return Ok(completion);
            }
            if completion.work != CompletedWork::Send {
                return Err(Stop::Failed(anyhow!(
                    "{} sends messages in the wrong order: is it another program than rping?",
                    self.peer()
                )));
            }
        }
    }

    /// Prints a step, if debug output is on.
    pub(super) fn debug(&self, step: impl FnOnce() -> String) -> Result<(), Stop> {
        Ok(debug(self.resources.debug, step)?)
    }

    /// The peer's address.
    pub(super) fn peer(&self) -> String {
        let peer = self.connection.peer_address();
        peer.map_or_else(|| "the peer".to_owned(), |peer| peer.to_string())
    }

    /// Ends the session, and prints the messages of rping.
    pub(super) fn end(self, outcome: Result<(), Stop>) -> anyhow::Result<()> {
        let has_left = matches!(outcome, Err(Stop::Left(_)));
        // If the connection is broken, there is nothing to end.
        let _ = self.connection.disconnect();
        let timeout = if outcome.is_ok() {
            FAREWELL_TIMEOUT
        } else {
            DISCONNECT_TIMEOUT
        };
        let over = has_left || self.connection.wait_disconnected(timeout);
        let end = self.end_event();
        match outcome {
            Ok(()) if over => note(&end),
            Ok(()) | Err(Stop::Interrupted) => {}
            // One text, because a server's other sessions write to the same stream. The number is that of rping's state after a
            // disconnection.
            Err(Stop::Left(awaited)) => note(&format!("{end}\nwait for {awaited} state 10")),
            Err(Stop::Failed(error)) => return Err(error),
        }
        Ok(())
    }

    fn send_message(&self, message: [u8; Advertisement::LENGTH]) -> Result<(), Stop> {
        let request = Request::send().inline(&message).id(MESSAGE);
        Ok(self.connection.post_send(request)?)
    }

    fn next(&self, awaited: &'static str) -> Result<Completion, Stop> {
        let (mut interval, mut silence) = (MIN_PEER_CHECK_INTERVAL, Duration::ZERO);
        loop {
            if interrupt::is_asked() {
                return Err(self.stop_at_interrupt(awaited));
            }
            if let Some(completion) = self.resources.completions.wait_for(interval) {
                return Ok(completion);
            }
            if self.has_left() {
                return Err(Stop::Left(awaited));
            }
            silence += interval;
            if silence >= PROBE_DELAY {
                self.probe()?;
                silence = Duration::ZERO;
            }
            interval = MAX_PEER_CHECK_INTERVAL.min(2 * interval);
        }
    }

    /// A peer that disconnected before the interrupt is reported, even if both are noticed at once.
    fn stop_at_interrupt(&self, awaited: &'static str) -> Stop {
        if self.has_left() {
            Stop::Left(awaited)
        } else {
            Stop::Interrupted
        }
    }

    fn has_left(&self) -> bool {
        self.connection.wait_disconnected(Duration::ZERO)
    }

    /// Writes nothing (C9-88: that needs no key). Its completion fails if the peer is gone.
    fn probe(&self) -> Result<(), Stop> {
        let nowhere = RemoteMemory {
            address: 0,
            key: Key::new(0),
        };
        Ok(self
            .connection
            .post_send(Request::write(nowhere).empty().id(PROBE))?)
    }

    fn failure(&self, completion: &Completion, awaited: &'static str) -> Stop {
        // A peer that exits does not answer; that is not a failure. An iWARP device flushes receives before it reports the end.
        let has_left = match completion.status {
            Status::Flushed => self.connection.wait_disconnected(END_REPORT_TIMEOUT),
            _ => self.has_left(),
        };
        if has_left {
            return Stop::Left(awaited);
        }
        let peer = self.peer();
        Stop::Failed(match completion.status {
            Status::RetriesExhausted => anyhow!(
                "{peer} no longer answers: its program may have ended, or the network is down"
            ),
            status => anyhow!("the RDMA {} failed: {status}", name(completion.work)),
        })
    }

    /// What rping says when the connection has ended.
    fn end_event(&self) -> String {
        let side = match self.side {
            Side::Client => "client",
            Side::Server => "server",
        };
        format!("{side} DISCONNECT EVENT...")
    }
}

/// Writes to the stream on which rping reports the end of a connection.
fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Rping's name of an operation.
fn name(work: CompletedWork) -> &'static str {
    match work {
        CompletedWork::Send => "send",
        CompletedWork::Read => "rdma read",
        CompletedWork::Write => "rdma write",
        CompletedWork::Receive => "recv",
        _ => "unknown",
    }
}
