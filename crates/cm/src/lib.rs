//! The RDMA connection manager without I/O or clock.
//!
//! [`Manager`] speaks the messages with which RDMA programs find each other, over queue pair 1 and
//! the way Linux speaks them (`ib_cm` and `rdma_cm`). It knows neither sockets nor time nor queue
//! pairs: it is told what the application wants, what came and what time it is; it is asked for
//! events, for datagrams to send, for what the driver should do and for when to be called again.
//!
//! ```
//! # use std::time::{Duration, Instant};
//! use cm::{Arrival, Config, EventKind, Kind, Manager, Parameters, Route};
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
//! // Datagrams and time are all that connects two managers.
//! fn exchange(now: Instant, from: &mut Manager, to: &mut Manager) {
//!     while let Some(sent) = from.poll_transmit() {
//!         let arrival = Arrival { source: sent.source, destination: sent.destination };
//!         to.handle_datagram(now, arrival, &*sent.datagram);
//!     }
//! }
//!
//! let listener = server.create(PortSpace::Tcp, Kind::ReliableConnection)?;
//! server.bind(listener, "0.0.0.0:7174".parse()?)?;
//! server.listen(listener, 8)?;
//!
//! // The driver answers instructions; here it knows everything at once.
//! let id = client.create(PortSpace::Tcp, Kind::ReliableConnection)?;
//! let second = Duration::from_secs(1);
//! client.resolve_address(now, id, None, "10.0.0.2:7174".parse()?, second)?;
//! client.address_resolved(id, Ok(client_ip));
//! client.resolve_route(now, id, second)?;
//! client.route_resolved(id, Ok(Route::new(PathMtu::Mtu1024)));
//! client.connect(now, id, &Parameters { private_data: b"hello", ..Parameters::new(Qpn::new(17)) })?;
//!
//! exchange(now, &mut client, &mut server); // REQ
//! let event = server.poll_event().expect("a request");
//! assert!(matches!(event.kind, EventKind::ConnectRequest { .. }));
//! let guest = event.id;
//! let _to_set = (server.receive_attributes(guest)?, server.send_attributes(guest)?);
//! server.accept(now, guest, &Parameters::new(Qpn::new(34)))?;
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
//! - It hands in every management datagram that comes to queue pair 1, sends what
//!   [`Manager::poll_transmit`] gives (from queue pair 1, with the well-known Q_Key), and calls
//!   [`Manager::handle_timeout`] when [`Manager::poll_timeout`] says so.
//! - It does what [`Manager::poll_instruction`] asks for: find addresses and routes, join groups,
//!   break queue pairs.
//! - It passes on events, and calls [`Manager::request_taken`] when the application has seen a
//!   request, because that is what a backlog counts.
//! - It moves queue pairs with [`Manager::init_attributes`], [`Manager::receive_attributes`] and
//!   [`Manager::send_attributes`]: the passive side before [`Manager::accept`], the active side
//!   between [`EventKind::ConnectResponse`] and [`Manager::establish`].
//! - It tells with [`Manager::notify_established`] that a queue pair got its first packet, and
//!   keeps the numbers of queue pairs unused while [`Manager::is_lingering`].
//! - If it has set [`Config::exit_notices`], it keeps what [`Manager::poll_exit_notice`] gives where
//!   it outlives the process, to be sent when the process dies without a word.
//!
//! Where several processes share an address, each takes a [`Slice`] of the communication
//! identifiers, and [`owner_of`] tells whom a message is for.
//!
//! # Where it differs from Linux
//!
//! What goes over the wire means the same. On purpose different are only reactions to trouble:
//! - a repeated REQ gets the REP, or the refusal, at once, and does not come to the application
//!   again (Linux waits for its own timer, and forgets what it refused);
//! - when both sides say good-bye at once, both agree (Linux waits for its application);
//! - the name of a connection stays known while stray packets may be under way;
//! - a LAP is answered (Linux is silent on RoCE);
//! - a request that the peer calls stale is sent once more, because the peer ends the old connection
//!   meanwhile;
//! - the number of half-open requests is limited, in all and for each address, and a peer can't
//!   make us wait for hours, whatever timeouts it names;
//! - a request whose addresses are not those of its packet is refused, a message of a conversation
//!   that does not come from the peer's address is dropped, and a peer's GUID counts only together
//!   with its address.
#![forbid(unsafe_code)]

mod attributes;
mod config;
mod counters;
mod endpoints;
mod error;
mod event;
mod exit;
mod id;
mod link;
mod manager;
mod memory;
mod parameters;
mod random;
mod routing;
mod sabotage;
mod timing;

pub use attributes::{
    Access, InitAttributes, PathAttributes, ReceiveAttributes, ReliableReceive, ReliableSend,
    SendAttributes,
};
pub use config::{Config, Slice};
pub use counters::{Counters, PerMessage};
pub use error::{BindError, CallError, TooManyIds};
pub use event::{
    Event, EventKind, Failure, Group, Instruction, Offer, Request, ServiceFound, Unreachable,
};
pub use exit::ExitNotice;
pub use id::{Id, Kind, Phase, Route, State};
pub use manager::{Arrival, Load, Manager, Transmit};
pub use parameters::{DEFAULT_QUEUE_KEY, Parameters, private_data};
pub use routing::{Recipient, owner_of};
pub use sabotage::Bug;
