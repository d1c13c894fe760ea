//! Groups the messages of connection managers by connection.

use std::collections::{HashMap, HashSet};

use wire::cm::{
    CommunicationId, Message, RejectReason, RejectedMessage, Service, ServiceId, ServiceStatus,
};
use wire::{PathMtu, Psn, Qpn, Transport};

use crate::packet_headers::{application_data, in_words_of_8};
use crate::track::{Sender, TrackId, TrackKey, Tracks};
use crate::typed_index::EndpointId;

/// The messages of two connection managers about one connection.
#[derive(Clone, Debug)]
pub(crate) struct Exchange {
    /// The active and the passive side.
    pub(crate) ends: [ExchangeSide; 2],
    pub(crate) service: Option<ServiceId>,
    pub(crate) transport: Transport,
    pub(crate) path_mtu: Option<PathMtu>,
    pub(crate) messages: Vec<ExchangeMessage>,
    /// The descriptions of all messages.
    words: HashSet<(Sender, String)>,
    tracks: [TrackId; 2],
}

/// One of the two sides.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExchangeSide {
    pub(crate) endpoint: EndpointId,
    pub(crate) number: Option<Qpn>,
    /// The PSN that the peer asked it to start with.
    pub(crate) starts_with: Option<Psn>,
}

/// One message.
#[derive(Clone, Debug)]
pub(crate) struct ExchangeMessage {
    pub(crate) packet: usize,
    pub(crate) by: Sender,
    pub(crate) name: &'static str,
    pub(crate) words: String,
    pub(crate) in_short: String,
    pub(crate) private_data: Vec<u8>,
    pub(crate) retransmitted: bool,
    /// The reason, if it is a rejection.
    pub(crate) rejection: Option<Rejection>,
}

/// Why a connection is rejected.
#[derive(Clone, Debug)]
pub(crate) struct Rejection {
    pub(crate) reason: u16,
    pub(crate) words: String,
    pub(crate) no_listener: bool,
}

/// All exchanges.
#[derive(Debug, Default)]
pub(crate) struct Exchanges {
    pub(crate) list: Vec<Exchange>,
    /// By the communication id of one side.
    names: HashMap<(EndpointId, CommunicationId), usize>,
}

impl Exchanges {
    /// Adds a message; returns the track of the packet that carried it.
    pub(crate) fn add(
        &mut self,
        message: &Message,
        from: EndpointId,
        to: EndpointId,
        packet: usize,
        tracks: &mut Tracks,
    ) -> TrackId {
        let (local, remote) = ids(message);
        let known = local.and_then(|id| self.names.get(&(from, id)).copied());
        let known = known.or_else(|| remote.and_then(|id| self.names.get(&(to, id)).copied()));
        let known = known.filter(|&index| !self.list[index].is_over_before(message, from));
        let index = known.unwrap_or_else(|| self.begin(message, from, to, tracks));
        if let Some(id) = local {
            self.names.insert((from, id), index);
        }
        let exchange = &mut self.list[index];
        let speaker = exchange.speaker(from, message);
        exchange.take(message, speaker, packet);
        exchange.settle(index, message, tracks);
        exchange.tracks[speaker as usize]
    }

    fn begin(
        &mut self,
        message: &Message,
        from: EndpointId,
        to: EndpointId,
        tracks: &mut Tracks,
    ) -> usize {
        let index = self.list.len();
        // If the capture starts late, the first message may be a response.
        let (active, passive) = if spoken_by(message) == Some(Sender::Passive) {
            (to, from)
        } else {
            (from, to)
        };
        let mut track = |from, to, speaker| {
            let key = TrackKey {
                from,
                to,
                number: Qpn::GSI,
                source: Some(Qpn::GSI),
            };
            tracks.add(key, Transport::Ud, Some((index, speaker)))
        };
        let tracks = [
            track(active, passive, Sender::Active),
            track(passive, active, Sender::Passive),
        ];
        let party = |endpoint| ExchangeSide {
            endpoint,
            number: None,
            starts_with: None,
        };
        self.list.push(Exchange {
            ends: [party(active), party(passive)],
            service: None,
            transport: Transport::Rc,
            path_mtu: None,
            messages: Vec::new(),
            words: HashSet::new(),
            tracks,
        });
        index
    }
}

impl Exchange {
    /// Whether it has messages.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.messages.iter().any(|message| message.name == name)
    }

    /// A request that reuses a communication id after its connection has ended starts a new exchange.
    fn is_over_before(&self, message: &Message, from: EndpointId) -> bool {
        match message {
            Message::ConnectRequest(request) => {
                self.ends[0].endpoint != from || self.ends[0].number != Some(request.local_qpn)
            }
            Message::ServiceRequest(request) => self.service != Some(request.service_id),
            _ => false,
        }
    }

    /// The side that sent a message. If both have the same address, only the message identifies it.
    fn speaker(&self, from: EndpointId, message: &Message) -> Sender {
        if self.ends[0].endpoint != self.ends[1].endpoint {
            return if self.ends[0].endpoint == from {
                Sender::Active
            } else {
                Sender::Passive
            };
        }
        let first_to_part = match message {
            Message::DisconnectRequest(request) => self.ends[0].number == Some(request.remote_qpn),
            Message::DisconnectReply(_) => self.last_was_by(Sender::Active),
            _ => false,
        };
        let default = if first_to_part {
            Sender::Passive
        } else {
            Sender::Active
        };
        spoken_by(message).unwrap_or(default)
    }

    fn last_was_by(&self, speaker: Sender) -> bool {
        self.messages
            .last()
            .is_some_and(|message| message.by == speaker)
    }

    fn take(&mut self, message: &Message, by: Sender, packet: usize) {
        let words = message.to_string();
        let known = !self.words.insert((by, words.clone()));
        let retransmitted = known && !self.is_disconnected_anew(message, by);
        self.messages.push(ExchangeMessage {
            packet,
            by,
            name: message.name(),
            in_short: in_short(message),
            private_data: in_words_of_8(private_data(message)).to_vec(),
            retransmitted,
            rejection: rejection(message),
            words,
        });
    }

    /// A DREQ after the response to the previous one is no retransmission, and neither is its DREP.
    fn is_disconnected_anew(&self, message: &Message, by: Sender) -> bool {
        let previous = match message {
            Message::DisconnectRequest(_) => "DREP",
            Message::DisconnectReply(_) => "DREQ",
            _ => return false,
        };
        let last = self.messages.last();
        last.is_some_and(|message| message.by == by.other() && message.name == previous)
    }

    /// Stores the negotiated values.
    fn settle(&mut self, index: usize, message: &Message, tracks: &mut Tracks) {
        let [active, passive] = &mut self.ends;
        match message {
            Message::ConnectRequest(request) => {
                active.number = Some(request.local_qpn);
                passive.starts_with = Some(request.starting_psn);
                self.service = Some(request.service_id);
                self.path_mtu = request.path_mtu;
                self.transport = transport(request.service);
            }
            Message::ConnectReply(reply) if passive.number != Some(reply.local_qpn) => {
                passive.number = Some(reply.local_qpn);
                active.starts_with = Some(reply.starting_psn);
                let (a, p) = (active.endpoint, passive.endpoint);
                tracks.agree(a, p, reply.local_qpn, (index, Sender::Active));
                if let Some(number) = active.number {
                    tracks.agree(p, a, number, (index, Sender::Passive));
                }
            }
            Message::ServiceRequest(request) => {
                self.service = Some(request.service_id);
                self.transport = Transport::Ud;
            }
            Message::ServiceReply(reply) if reply.status == ServiceStatus::Valid => {
                self.transport = Transport::Ud;
                passive.number = Some(reply.qpn);
                let (a, p) = (active.endpoint, passive.endpoint);
                tracks.agree(a, p, reply.qpn, (index, Sender::Active));
            }
            _ => {}
        }
    }
}

fn transport(service: Service) -> Transport {
    match service {
        Service::UnreliableConnection => Transport::Uc,
        Service::Extended => Transport::Xrc,
        _ => Transport::Rc,
    }
}

/// The side that sends messages of this kind, if only one does.
fn spoken_by(message: &Message) -> Option<Sender> {
    match message {
        Message::ConnectRequest(_) | Message::ReadyToUse(_) | Message::ServiceRequest(_) => {
            Some(Sender::Active)
        }
        Message::ConnectReply(_) | Message::ServiceReply(_) => Some(Sender::Passive),
        Message::Reject(reject) if reject.message == RejectedMessage::Request => {
            Some(Sender::Passive)
        }
        _ => None,
    }
}

/// The communication ids of the sender and the receiver of a message.
fn ids(message: &Message) -> (Option<CommunicationId>, Option<CommunicationId>) {
    let (local, remote) = match message {
        Message::ConnectRequest(message) => return (Some(message.local_id), None),
        Message::ServiceRequest(message) => return (Some(message.request_id), None),
        Message::ServiceReply(message) => return (None, Some(message.request_id)),
        Message::ConnectReply(message) => (message.local_id, message.remote_id),
        Message::ReadyToUse(message) => (message.local_id, message.remote_id),
        Message::Reject(message) => (message.local_id, message.remote_id),
        Message::ReceiptAcknowledge(message) => (message.local_id, message.remote_id),
        Message::DisconnectRequest(message) => (message.local_id, message.remote_id),
        Message::DisconnectReply(message) => (message.local_id, message.remote_id),
        Message::LoadAlternatePath(message) => (message.local_id, message.remote_id),
        Message::AlternatePathResponse(message) => (message.local_id, message.remote_id),
    };
    // 0 means that the communication id is not known yet.
    let named = |id: CommunicationId| (id.value() != 0).then_some(id);
    (named(local), named(remote))
}

fn private_data(message: &Message) -> &[u8] {
    match message {
        Message::ConnectRequest(message) => application_data(message.private_data.bytes()),
        Message::ConnectReply(message) => message.private_data.bytes(),
        Message::ReadyToUse(message) => message.private_data.bytes(),
        Message::Reject(message) => message.private_data.bytes(),
        Message::ReceiptAcknowledge(message) => message.private_data.bytes(),
        Message::DisconnectRequest(message) => message.private_data.bytes(),
        Message::DisconnectReply(message) => message.private_data.bytes(),
        Message::ServiceRequest(message) => application_data(message.private_data.bytes()),
        Message::ServiceReply(message) => message.private_data.bytes(),
        Message::LoadAlternatePath(_) | Message::AlternatePathResponse(_) => &[],
    }
}

fn rejection(message: &Message) -> Option<Rejection> {
    match message {
        Message::Reject(reject) => Some(Rejection {
            reason: reject.reason.code(),
            words: reject.reason.to_string(),
            no_listener: reject.reason == RejectReason::InvalidServiceId,
        }),
        Message::ServiceReply(reply) if reply.status != ServiceStatus::Valid => Some(Rejection {
            reason: reply.status.code().into(),
            words: reply.status.to_string(),
            no_listener: reply.status == ServiceStatus::NotSupported,
        }),
        _ => None,
    }
}

/// A short description of a message.
fn in_short(message: &Message) -> String {
    let name = message.name();
    match message {
        Message::ConnectRequest(request) => {
            let number = request.local_qpn.value();
            format!("CM {name} from QP {number:#x} to {}", request.service_id)
        }
        Message::ConnectReply(reply) => {
            format!("CM {name} from QP {:#x}", reply.local_qpn.value())
        }
        Message::Reject(reject) => format!("CM {name}: {}", reject.reason),
        Message::ReceiptAcknowledge(receipt) => {
            format!("CM {name}: response within {}", receipt.service_timeout)
        }
        Message::ServiceRequest(request) => format!("CM {name} for {}", request.service_id),
        Message::ServiceReply(reply) if reply.status == ServiceStatus::Valid => {
            format!("CM {name}: QP {:#x}", reply.qpn.value())
        }
        Message::ServiceReply(reply) => format!("CM {name}: {}", reply.status),
        Message::AlternatePathResponse(response) => format!("CM {name}: {}", response.status),
        Message::ReadyToUse(_)
        | Message::DisconnectRequest(_)
        | Message::DisconnectReply(_)
        | Message::LoadAlternatePath(_) => format!("CM {name}"),
    }
}
