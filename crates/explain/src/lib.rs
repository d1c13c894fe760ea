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
//! A frame of the file (`capture`) becomes a packet in a track (`collect`), two tracks become a
//! connection (`pairing`), and packets become messages with their outcome (`reconstruct`). The result
//! is an [`Analysis`]. The text for the terminal, the JSON and the page are made from it.
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
