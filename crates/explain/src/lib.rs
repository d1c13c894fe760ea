//! Reads captures of RoCEv2 and reports what happened.
//!
//! ```no_run
//! let file = std::fs::File::open("trace.pcapng")?;
//! let analysis = explain::Analysis::read(file)?;
//! for anomaly in &analysis.anomalies {
//!     println!("{} ({})", anomaly.sentence, anomaly.kind.explanation().rule);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The analysis needs no device, and of the other crates only [`wire`]:
//!
//! 1. `merge` sorts several captures by time, so that a packet that left one process and arrived at another is one packet.
//! 2. `collect` turns each frame (`capture`) into a small record in a *track*: all packets from one address to one queue pair.
//! 3. `captured_twice` recognizes packets that were captured at two places, so that they are not taken for retransmissions, and
//!    `segmentation_offload` splits datagrams that segmentation offload has combined.
//! 4. `pairing` joins two tracks into a connection.
//! 5. `lost_packets` decides for each connection whether both of its ends are captured. Only then is a packet lost that was
//!    captured at its sender alone.
//! 6. `reconstruct` follows the requests of each direction packet by packet: messages, retransmissions and their reasons, responses.
//! 7. `work_request` joins posts, messages and completions, which our own captures contain as journal entries (`journal`).
//!
//! The result is an [`Analysis`]. The text for the terminal, the JSON and the page are made from it.
#![forbid(unsafe_code)]

mod analysis;
mod anomaly;
mod capture;
mod capture_summary;
mod captured_twice;
mod cm_exchanges;
mod collect;
mod connection;
mod connection_end;
mod handshake;
mod html;
mod journal;
mod json;
mod lost_packets;
mod merge;
mod message;
mod packet;
mod packet_headers;
mod pairing;
mod reconstruct;
mod segmentation_offload;
mod statistics;
pub mod terminal;
mod text_format;
mod track;
mod typed_index;
mod work_request;

pub use analysis::Analysis;
pub use anomaly::{Anomaly, AnomalyKind, Explanation, Severity};
pub use capture::ReadError;
pub use capture_summary::CaptureSummary;
pub use connection::{Connection, End, Endpoint, Pairing, QueuePair, State, StateChange};
pub use connection_end::Side;
pub use handshake::{Handshake, HandshakeOutcome, Step};
pub use message::{Message, Outcome, describe};
pub use packet::{Marks, Packet, Role};
pub use packet_headers::{Field, Layer};
pub use statistics::{OpcodeCount, ResponseTimes, Statistics};
pub use typed_index::{AnomalyId, ConnectionId, EndpointId, MessageId, PacketId, QueuePairId};
pub use work_request::WorkRequest;

/// Compiles and runs the example of the front page in the registry.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
