//! The RDMA connection manager without I/O or clock.
//!
//! [`Manager`] implements the protocol of `ib_cm` and `rdma_cm` over queue pair 1, as Linux does. It
//! has no sockets, clock or queue pairs. The driver passes in the application's calls, received
//! datagrams and the current time. It fetches events, datagrams to send, instructions, and the time
//! of the next call.
//!
//! ```
//! # use std::time::{Duration, Instant};
//! use cm::{Addresses, Config, EventKind, ServiceType, Manager, Parameters, ResolvedRoute};
//! use wire::cm::PortSpace;
//! use wire::{PathMtu, Qpn};
//!
//! # #[allow(clippy::disallowed_methods)]
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let now = Instant::now();
//! let (client_ip, server_ip) = ("10.0.0.1".parse()?, "10.0.0.2".parse()?);
//! let mut client = Manager::new(Config::new(1, [1; 32]));
//! let mut server = Manager::new(Config::new(2, [2; 32]));
//! client.add_address(client_ip);
//! server.add_address(server_ip);
//!
//! // Two managers share nothing but datagrams and time.
//! fn exchange(now: Instant, from: &mut Manager, to: &mut Manager) {
//!     while let Some(sent) = from.poll_transmit() {
//!         let addresses = Addresses { source: sent.source, destination: sent.destination };
//!         to.handle_datagram(now, addresses, &*sent.datagram);
//!     }
//! }
//!
//! let listener = server.create_id(PortSpace::Tcp, ServiceType::ReliableConnection)?;
//! server.bind(listener, "0.0.0.0:7174".parse()?)?;
//! server.listen(listener, 8)?;
//!
//! // A driver looks these results up when it gets an instruction. Here they are constants.
//! let id = client.create_id(PortSpace::Tcp, ServiceType::ReliableConnection)?;
//! let second = Duration::from_secs(1);
//! client.resolve_address(now, id, None, "10.0.0.2:7174".parse()?, second)?;
//! client.address_resolved(id, Ok(client_ip));
//! client.resolve_route(now, id, second)?;
//! client.route_resolved(id, Ok(ResolvedRoute::new(PathMtu::Mtu1024)));
//! client.connect(now, id, &Parameters { private_data: b"hello", ..Parameters::new(Qpn::new(17)) })?;
//!
//! exchange(now, &mut client, &mut server); // REQ
//! let event = server.poll_event().expect("a request");
//! assert!(matches!(event.kind, EventKind::ConnectRequest { .. }));
//! let child = event.id;
//! let _to_set = (server.receive_attributes(child)?, server.send_attributes(child)?);
//! server.accept(now, child, &Parameters::new(Qpn::new(34)))?;
//!
//! exchange(now, &mut server, &mut client); // REP
//! let response = std::iter::from_fn(|| client.poll_event()).last().expect("a response");
//! assert!(matches!(response.kind, EventKind::ConnectResponse(_)));
//! assert_eq!(client.receive_attributes(id)?.remote_qpn, Qpn::new(34));
//! client.establish(id)?;
//!
//! exchange(now, &mut client, &mut server); // RTU
//! assert_eq!(server.poll_event().map(|event| event.kind), Some(EventKind::Established));
//! # Ok(())
//! # }
//! ```
//!
//! # What a driver does
//!
//! - It passes every management datagram that queue pair 1 receives to [`Manager::handle_datagram`],
//!   sends what [`Manager::poll_transmit`] returns (from queue pair 1, with the well-known Q_Key), and
//!   calls [`Manager::handle_timeout`] at the time that [`Manager::poll_timeout`] returns.
//! - It carries out the instructions of [`Manager::poll_instruction`]: resolve addresses and routes,
//!   join groups, move queue pairs to ERROR.
//! - It delivers events to the application, and calls [`Manager::request_taken`] when the application
//!   takes a request. A backlog counts the requests that the application has not taken.
//! - It moves queue pairs to INIT, RTR and RTS with [`Manager::init_attributes`], [`Manager::receive_attributes`] and
//!   [`Manager::send_attributes`]: the passive side before [`Manager::accept`], the active side
//!   between [`EventKind::ConnectResponse`] and [`Manager::establish`].
//! - It calls [`Manager::notify_established`] when a queue pair receives its first packet, and does
//!   not reuse a queue pair number while [`Manager::is_in_time_wait`].
//! - If it sets [`Config::exit_notices`], it stores what [`Manager::poll_exit_notice`] returns outside
//!   the process. The notices are sent if the process dies without destroying its ids.
//!
//! Where several processes share an address, each takes an [`IdRange`] of the communication ids, and
//! [`owner_of`] returns the process that a message is for.
//!
//! # Where it differs from Linux
//!
//! The messages have the same meaning. The differences are deliberate and concern errors only:
//! - A duplicate REQ is answered with the REP or REJ at once, and is not delivered to the application
//!   again. Linux waits for its own timer, and does not remember what it rejected.
//! - When both sides send a DREQ at the same time, both answer with a DREP. Linux waits for its
//!   application.
//! - The communication id of a connection stays reserved during time-wait.
//! - A LAP is answered. Linux does not answer it on RoCE.
//! - A request that the peer rejects as stale is sent once more, because the peer ends the old
//!   connection meanwhile.
//! - The number of half-open requests is limited, in total and per address. Timeouts that a peer
//!   names are bounded.
//! - A request is rejected if its addresses differ from those of its packet. A message is dropped if
//!   its source is not the peer's address. A peer's GUID is valid only together with its address.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]
// Nothing in this crate may be excepted from the bans in clippy.toml.
#![forbid(clippy::disallowed_methods, clippy::disallowed_types)]

mod config;
mod counters;
mod error;
mod event;
mod exchange;
mod exchange_state;
mod exit_notice;
mod id;
mod id_table;
mod manager;
mod parameters;
#[cfg_attr(not(feature = "planted-bugs"), allow(dead_code, unreachable_pub))]
mod planted_bug;
mod qp_attributes;
mod random;
mod recipient;
mod retained_state;
mod service_type;
mod timing;
mod transmit;

pub use config::{Config, IdRange};
pub use counters::{Counters, PerMessage};
pub use error::{BindError, CallError, TooManyIds};
pub use event::{
    Event, EventKind, Failure, Group, Instruction, MtuLimit, PeerParameters, Request, ServiceFound,
    Unanswered, Unreachable,
};
pub use exchange_state::ExchangeState;
pub use exit_notice::ExitNotice;
pub use id::{Id, ResolvedRoute, State};
pub use manager::{Addresses, Manager, TableSizes};
pub use parameters::{DEFAULT_QUEUE_KEY, Parameters, private_data};
#[cfg(feature = "planted-bugs")]
pub use planted_bug::Bug;
pub use qp_attributes::{
    Access, InitAttributes, PathAttributes, ReceiveAttributes, ReliableReceive, ReliableSend,
    SendAttributes,
};
pub use recipient::{Recipient, owner_of};
pub use service_type::ServiceType;

/// Compiles and runs the example of the front page in the registry.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
pub use transmit::Transmit;
