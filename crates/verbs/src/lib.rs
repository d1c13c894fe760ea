//! RDMA for any Linux machine: the safe API of a RoCEv2 device in user space.
//!
//! No RDMA hardware, no kernel module, no root, no daemon. Every network interface is a device, and
//! its packets have the same format as those of the kernel's Soft-RoCE and of hardware NICs.
//!
//! ```toml
//! [dependencies]
//! rocinante = { path = "rocinante/crates/verbs", features = ["async"] }   # `async` only if you await
//! ```
//!
//! # A server and a client
//!
//! They find each other through the connection manager, as `rdma_cm` programs do. The peer may run on
//! another machine, and use the kernel's Soft-RoCE or a NIC.
//!
//! ```
//! use rocinante::{Access, Connector, Listener, Request};
//!
//! fn serve(listener: Listener) -> Result<String, Box<dyn std::error::Error + Send + Sync>> {
//!     let request = listener.wait();
//!     let context = request.context().clone(); // the device that received the request
//!     let domain = context.allocate_protection_domain()?;
//!     let completions = context.create_completion_queue(16)?;
//!     let memory = domain.allocate_memory(64, Access::LOCAL_WRITE)?;
//!     let prepared = request.prepare(domain.queue_pair_builder(&completions))?;
//!     prepared.post_receive(1, memory.all())?; // before the client can send
//!     let _connection = prepared.accept(b"welcome")?;
//!     let received = completions.wait().into_result()?; // an error says why the receive failed
//!     Ok(String::from_utf8(memory.to_vec(..received.length as usize))?)
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//! let listener = Listener::bind("127.0.0.1:0")?;
//! let address = listener.local_address();
//! let server = std::thread::spawn(|| serve(listener));
//!
//! let connector = Connector::resolve(address)?;
//! let context = connector.context().clone();
//! let domain = context.allocate_protection_domain()?;
//! let completions = context.create_completion_queue(16)?;
//! let prepared = connector.prepare(domain.queue_pair_builder(&completions))?;
//! let connection = prepared.connect(b"a few words for the server")?;
//! assert!(connection.private_data().starts_with(b"welcome"));
//! connection.post_send(Request::send().inline(b"hello"))?;
//! completions.wait().into_result()?;
//! assert_eq!(server.join().expect("no panic")?, "hello");
//! # Ok(())
//! # }
//! ```
//!
//! # Without the connection manager
//!
//! The two ends exchange their [`Endpoint`]s by other means, such as a TCP connection; here they are in one
//! process. RDMA needs an address and a key:
//!
//! ```
//! use rocinante::{Access, Context, Request};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let context = Context::open("127.0.0.1")?;
//! let domain = context.allocate_protection_domain()?;
//! let completions = context.create_completion_queue(16)?;
//! let memory = domain.allocate_memory(64, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
//!
//! let prepare = || domain.queue_pair_builder(&completions).depth(4, 4).create_reliable();
//! let (left, right) = (prepare()?, prepare()?); // 16 requests in all: they fit into the completion queue
//! let (here, there) = (left.endpoint(), right.endpoint());
//! let left = left.connect(there)?;
//! let _right = right.connect(here)?;
//!
//! left.post_send(Request::write(memory.remote(32)).inline(b"one-sided"))?;
//! completions.wait().into_result()?;
//! assert_eq!(memory.to_vec(32..41), b"one-sided");
//! # Ok(())
//! # }
//! ```
//!
//! # Async
//!
//! With the feature `async`, each request can be a future: a queue pair of `ProtectionDomain::requests_builder` resolves each to its own
//! result (`Requests`). Connection requests, connections and the events of [`rdma_cm`] can be awaited, too, on any executor. The functions
//! that block there have an async form: `connect_async` for `connect`, `resolve_async` for [`Connector::resolve`]. The latter takes an address,
//! because looking up a name blocks. Asynchronous events have none: a task polls [`Context::poll_event`].
//!
//! ```
//! # #[cfg(feature = "async")] mod program {
//! use std::{error::Error, net::SocketAddr};
//!
//! use rocinante::{Access, Connector, Listener};
//!
//! async fn echo(listener: Listener) -> Result<(), Box<dyn Error>> {
//!     let request = listener.next().await;
//!     let domain = request.context().allocate_protection_domain()?;
//!     let memory = domain.allocate_memory(64, Access::LOCAL_WRITE)?;
//!     let prepared = request.prepare(domain.requests_builder())?;
//!     let message = prepared.receive(memory.all()); // before the client can send
//!     let connection = prepared.accept_async(b"").await?;
//!     let length = message.await?.length as usize;
//!     connection.send(memory.slice(..length)).await?;
//!     connection.disconnected().await;
//!     Ok(())
//! }
//!
//! async fn ask(server: SocketAddr) -> Result<Vec<u8>, Box<dyn Error>> {
//!     let connector = Connector::resolve_async(server).await?;
//!     let domain = connector.context().allocate_protection_domain()?;
//!     let memory = domain.allocate_memory(64, Access::LOCAL_WRITE)?;
//!     let prepared = connector.prepare(domain.requests_builder())?;
//!     let reply = prepared.receive(memory.all());
//!     let connection = prepared.connect_async(b"").await?;
//!     connection.send(b"hello").await?;
//!     let length = reply.await?.length as usize;
//!     connection.disconnect()?;
//!     Ok(memory.to_vec(..length))
//! }
//!
//! #[tokio::main(flavor = "current_thread")]
//! # pub
//! async fn main() -> Result<(), Box<dyn Error>> {
//!     let listener = Listener::bind("127.0.0.1:0")?;
//!     let server = listener.local_address();
//!     let (served, reply) = tokio::join!(echo(listener), ask(server));
//!     served?;
//!     assert_eq!(reply?, b"hello");
//!     Ok(())
//! }
//! # }
//! # #[cfg(feature = "async")] program::main().unwrap();
//! ```
//!
//! A task of a program that wants one completion queue for many queue pairs awaits `completions.next()`, the async form of
//! [`CompletionQueue::wait`].
//!
//! # Byte streams
//!
//! A program that was written for TCP needs no messages: `Stream`, with the feature `async`, is a reliable byte stream over a connection. It implements the traits
//! `Read`, `Write` and `BufRead` of the standard library, and with the feature `tokio` the asynchronous ones of tokio.
//!
//! # Who receives the packets of tasks
//!
//! Who receives the packets of a task that waits depends on what runs it. A thread in `block_on` sleeps on the sockets, so that a packet wakes it
//! directly. With the feature `tokio`, the reactor of tokio waits for them; the runtime needs `enable_io` or `enable_all`. For
//! other executors a thread of the device receives the packets, and wakes the tasks.
//!
//! # Tracing
//!
//! With the feature `tracing`, the crate of that name gets a span for each post, and events for packets (target
//! `rocinante::packet`, level trace), completions, retransmissions, changes of state, asynchronous events and connection events
//! (target `rocinante`). A subscriber runs while no lock of the device is held, so it may use the device. Packets of a device to
//! its own queue pairs are handed over in memory and have no events.
//!
//! # Tests
//!
//! Every address of 127.0.0.0/8 is a device of its own, so one test can have several hosts, and tests that use
//! different addresses run side by side. [`OpenOptions::faults`] loses, delays and reorders packets, and
//! [`OpenOptions::capture`] writes a capture for Wireshark or `roci explain`:
//!
//! ```
//! use rocinante::{Access, Context, OpenOptions, Request};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let lossy = OpenOptions {
//!     faults: Some("loss=10%,seed=7".to_owned()),
//!     ..OpenOptions::default()
//! };
//! let client = Context::open_with("127.8.0.1", &lossy)?;
//! let server = Context::open("127.8.0.2")?;
//! let end = |context: &Context| -> Result<_, Box<dyn std::error::Error>> {
//!     let domain = context.allocate_protection_domain()?;
//!     let completions = context.create_completion_queue(64)?;
//!     let memory = domain.allocate_memory(4096, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
//!     let queue_pair = domain.queue_pair_builder(&completions).create_reliable()?;
//!     Ok((completions, memory, queue_pair))
//! };
//! let (completions, source, left) = end(&client)?;
//! let (_, target, right) = end(&server)?;
//! let (here, there) = (left.endpoint(), right.endpoint());
//! let (left, _right) = (left.connect(there)?, right.connect(here)?);
//!
//! source.write(0, &[7; 4096]);
//! for _ in 0..32 {
//!     left.post_send(Request::write(target.remote(0)).data(source.all()))?;
//!     completions.wait().into_result()?; // lost packets are retransmitted
//! }
//! assert_eq!(target.to_vec(..), [7; 4096]);
//! # Ok(())
//! # }
//! ```
//!
//! With the feature `sim`, the module `sim` runs all hosts of an async program in one thread, with a simulated network and clock.
//! One seed decides everything that happens, and `#[rocinante::test]` makes a test that runs many seeds. Enable it for tests alone:
//!
//! ```toml
//! [dev-dependencies]
//! rocinante = { path = "rocinante/crates/verbs", features = ["sim"] }
//! ```
//!
//! With this feature, import what you need by name: after `use rocinante::*`, `#[test]` is ambiguous, because the attribute is imported, too.
//!
//! # Devices of the system
//!
//! [`Context::open`] also opens the RDMA devices of the system, such as `mlx5_0` or the kernel's `rxe0`, through the system's libibverbs.
//! It is loaded when the first of them is opened. [`Listener::bind_on`] and [`Connector::resolve_on`] connect their queue pairs through the system's
//! librdmacm; with `ROCI_DEVICES=system`, [`Listener::bind`] and [`Connector::resolve`] do so, too. All types are the same; what is not offered there yet is an error
//! ([`SystemRefusal`]), and `docs/hardware.md` lists it. [`devices`] lists both kinds, and [`OpenOptions::devices`] chooses.
//!
//! # Environment
//!
//! | variable | meaning |
//! |---|---|
//! | `ROCI_DEVICES` | the devices: `name=address,…`; otherwise, or with `software`, every interface is one |
//! | `ROCI_PCAP` | the capture file; `%p` is the process id |
//! | `ROCI_PCAP_RING` | the size of the capture, such as `64M`; only the newest packets are kept, in two files |
//! | `ROCI_PCAP_SNAPLEN` | how many bytes of each packet are captured |
//! | `ROCI_FAULT` | faults to inject, such as `loss=1%,seed=7` |
//! | `ROCI_FAULT_LOG` | the file in which injected faults are recorded; processes can share it |
//! | `ROCI_EXPLAIN` | `1`: failures are explained on stderr |
//! | `ROCI_CHECK` | `1`: the program is checked for violations of the rules of the verbs, and failures are explained; `fail`: and it exits with status 66 if there are any |
//! | `ROCI_CHECK_JSON` | a file to which the findings are appended, one line of JSON each |
//! | `ROCI_CHECK_PROCESSES` | `1`: requests of several processes, which wait for each other by RDMA alone, are compared, too |
//! | `ROCI_CHECK_PROFILE` | a device whose limits the program must obey: `cx5`, `cx7`, `e810`, `efa`, `rxe` |
//! | `ROCI_CHECK_SUPPRESS` | a file that names findings that are not reported |
//! | `ROCI_SHORTCUT` | `0`: packets to queue pairs of this machine go through sockets; `1`: through memory, even while a program captures on loopback; not set: through memory while none does |
//! | `ROCI_LANES` | how many engines a device may run for the threads of a program; not set: one for each processor, at most 8 |
//! | `ROCI_HELD_LISTS` | `0`: peers are not told what arrived behind a lost packet |
//! | `ROCI_WATCHER` | `0`: no second process that tells peers when this one dies |
//! | `ROCI_SEED` | the only seed that `#[rocinante::test]` runs, with a capture |
//! | `ROCI_SEEDS` | how many seeds `#[rocinante::test]` runs |
//! | `ROCI_GSO` | `0`: the kernel does not segment batches of packets |
//! | `XDG_RUNTIME_DIR` | where the processes of an address find each other |
//! | `XDG_CONFIG_HOME` | where the file `roci/links` is, with the devices that `roci link add` has added; not set: `~/.config` |
//!
//! # Ownership
//!
//! Handles keep the objects that they use alive and can be dropped in any order. An operation that is not allowed has no
//! method: a queue pair without a peer can't send, and registered memory can't be borrowed as a
//! slice, because a peer may write it at any time:
//!
//! ```compile_fail
//! # fn demo(memory: rocinante::MemoryRegion) {
//! let bytes: &[u8] = memory.as_ref();
//! # }
//! ```
//!
//! [`MemoryRegion::read`] and [`write`](MemoryRegion::write) copy. [`MemoryRegion::lend`] gives a slice for a
//! while in which the device can't reach the memory. [`ProtectionDomain::register`] registers a
//! `Vec<u8>` or other memory of yours and gives it back.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]
#![warn(missing_debug_implementations)]

mod async_event;
mod completion_channel;
mod completion_queue;
mod connection;
mod context;
mod datagram;
mod error;
#[cfg(feature = "async")]
mod executor;
mod memory;
#[cfg(feature = "async")]
mod next_completion;
mod protection_domain;
mod queue_pair;
pub mod rdma_cm;
mod request;
#[cfg(feature = "async")]
mod requests;
mod shared_receive_queue;
#[cfg(feature = "sim")]
pub mod sim;
#[cfg(feature = "async")]
mod stream;
mod system_device;
#[cfg(feature = "async")]
mod task_timer;
#[cfg(feature = "tokio")]
mod tokio_reactor;
mod xrc;
mod xrc_domain;

pub use async_event::AsyncEvent;
pub use completion_channel::{CompletionChannel, QueueToken};
pub use completion_queue::CompletionQueue;
pub use connection::{
    Connection, ConnectionRequest, Connector, Listener, PreparedAccept, PreparedConnect,
    ShutdownError,
};
pub use context::{Context, devices};
pub use datagram::{AddressHandle, DatagramQueuePair, JoinGroupError};
pub use error::{ConnectError, SetupError};
#[cfg(feature = "async")]
pub use executor::block_on;
pub use memory::{MemoryRegion, MemoryWindow, OwnedRegion, RegisterError};
#[cfg(feature = "async")]
pub use next_completion::NextCompletion;
pub use protection_domain::ProtectionDomain;
pub use queue_pair::{
    ConnectOptions, Endpoint, EndpointParseError, PreparedQueuePair, QueuePair, QueuePairBuilder,
};
pub use request::{Incoming, Outgoing, Request};
#[cfg(feature = "async")]
pub use requests::{
    Message, Outstanding, PreparedRequests, Received, RequestError, Requests, RequestsBuilder,
};
pub use shared_receive_queue::{ReceiveQueueToken, SharedReceiveQueue};
#[cfg(feature = "async")]
pub use stream::{Stream, StreamOptions};
pub use xrc::{PreparedXrcInitiator, PreparedXrcTarget, XrcInitiator, XrcReceiveQueue, XrcTarget};
pub use xrc_domain::XrcDomain;

pub use driver::{
    CheckOptions, DeviceChoice, Driver, OpenError, OpenOptions, Profile, Shortcut, device,
    device_at, enable_explanations,
};
pub use engine::{
    Access, Address, AddressError, Attribute, Attributes, CompletedWork, Completion, Counters,
    MAX_COMPLETIONS, MAX_MESSAGE, MAX_REQUESTS, MAX_SEGMENTS, MemoryError, ModifyError,
    MulticastError, Notify, ObjectError, OwnedMemory, PostError, RawMemory, RemoteMemory,
    RemoteMemoryParseError, Segment, State, Status, SystemRefusal, WindowKind, WorkError,
};
#[cfg(feature = "sim")]
pub use macros::test;
pub use net::socket::interface::{Device, DeviceKind, GidEntry, InterfaceId, LinkState};
pub use net::tap::capture::Limits as CaptureLimits;
pub use wire::{
    AckTimeout, FlushPlacement, FlushRange, Gid, Key, PathMtu, Psn, Qpn, QueueKey, RnrTimer,
};

/// Compiles and runs the example of the front page in the registry.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
