//! Messages whose ids and addresses are mostly valid.

use cm::Addresses;
use wire::cm::{
    AcknowledgedMessage, AddressHeader, AlternatePathResponse, CommunicationId, ConnectReply,
    ConnectRequest, DisconnectReply, DisconnectRequest, LoadAlternatePath, Message, Path,
    PrivateData, ReadyToUse, ReceiptAcknowledge, Reject, RejectReason, RejectedMessage, Service,
    ServiceId, ServiceReply, ServiceRequest, ServiceStatus, Timeout,
};
use wire::{AckTimeout, Gid, PathMtu, Qpn, QueueKey};

use super::draw_addresses;
use super::victim::{GUID, Known, THEIR_GUID, Victim};
use crate::fuzz_input::Input;

/// A valid request for a given service.
pub(super) fn request(addresses: Addresses, service: ServiceId, name: u32, qpn: u32) -> Message {
    valid_request(addresses, service, name, qpn).into()
}

fn valid_request(addresses: Addresses, service: ServiceId, name: u32, qpn: u32) -> ConnectRequest {
    ConnectRequest {
        local_id: CommunicationId::new(name),
        service_id: service,
        local_guid: THEIR_GUID,
        local_qpn: Qpn::new(qpn),
        path_mtu: Some(PathMtu::Mtu1024),
        local_response_timeout: Timeout::new(20).expect("a code has five bits"),
        max_cm_retries: 3,
        primary: Path {
            local_gid: Gid::from(addresses.source),
            remote_gid: Gid::from(addresses.destination),
            hop_limit: 64,
            ..Path::default()
        },
        private_data: PrivateData::new(&header(addresses)).expect("a header fits"),
        ..ConnectRequest::default()
    }
}

fn header(addresses: Addresses) -> [u8; AddressHeader::LENGTH] {
    let header = AddressHeader {
        source_port: 40_000,
        source: addresses.source,
        destination: addresses.destination,
    };
    header.emit()
}

impl Victim {
    /// A message of any kind: valid, damaged or truncated.
    pub(super) fn receive_drawn_message(&mut self, input: &mut Input<'_>) {
        let known = self.draw_known(input);
        let addresses = match input.byte() {
            0..220 => known.addresses,
            _ => draw_addresses(input),
        };
        let message = self.draw_message(addresses, known, input);
        let transaction = u64::from(input.byte());
        let mut datagram = message.emit(transaction);
        match input.byte() {
            0..200 => return self.receive_message(addresses, transaction, &message),
            200..240 => {
                let index = usize::from(input.byte());
                datagram[index] = input.byte();
            }
            _ => {
                let length = usize::from(input.byte());
                return self.receive(addresses, &datagram[..length]);
            }
        }
        self.receive(addresses, &datagram);
    }

    fn draw_known(&mut self, input: &mut Input<'_>) -> Known {
        let unknown = Known {
            addresses: draw_addresses(input),
            ours: CommunicationId::new(input.byte().into()),
            theirs: CommunicationId::new(1 + u32::from(input.byte() % 8)),
            our_qpn: Qpn::new(1 + u32::from(input.byte() % 8)),
            heard: 0,
        };
        let newest = usize::from(input.byte() % 4);
        let index = self.known.len().checked_sub(1 + newest);
        index.map_or(unknown, |index| self.known[index])
    }

    fn draw_message(
        &mut self,
        addresses: Addresses,
        known: Known,
        input: &mut Input<'_>,
    ) -> Message {
        let (local_id, remote_id) = (known.theirs, known.ours);
        let kind = match input.byte() {
            free @ 0..96 => free % 16,
            other => fitting(known.heard).unwrap_or(other % 16),
        };
        match kind {
            0..4 => self.draw_request(addresses, input).into(),
            4 | 5 => self.draw_reply(known, input).into(),
            6 | 7 => ReadyToUse {
                local_id,
                remote_id,
                ..ReadyToUse::default()
            }
            .into(),
            8 => draw_reject(known, input).into(),
            9 => DisconnectRequest {
                local_id,
                remote_id,
                remote_qpn: known.our_qpn,
                ..DisconnectRequest::default()
            }
            .into(),
            10 => DisconnectReply {
                local_id,
                remote_id,
                ..DisconnectReply::default()
            }
            .into(),
            11 => ReceiptAcknowledge {
                local_id,
                remote_id,
                message: AcknowledgedMessage::from_code(input.byte() % 4),
                service_timeout: Timeout::new(input.byte() % 32).expect("five bits"),
                ..ReceiptAcknowledge::default()
            }
            .into(),
            12 => self.draw_service_request(addresses, input).into(),
            13 => ServiceReply {
                request_id: remote_id,
                status: ServiceStatus::from_code(input.byte() % 2),
                qpn: Qpn::new(input.byte().into()),
                queue_key: QueueKey::new(input.pick(&[0, 0x0123_4567, 7])),
                ..ServiceReply::default()
            }
            .into(),
            14 => LoadAlternatePath {
                local_id,
                remote_id,
                ..LoadAlternatePath::default()
            }
            .into(),
            _ => AlternatePathResponse {
                local_id,
                remote_id,
                ..AlternatePathResponse::default()
            }
            .into(),
        }
    }

    /// A request that is valid, or wrong in one field.
    fn draw_request(&mut self, addresses: Addresses, input: &mut Input<'_>) -> ConnectRequest {
        let service = self.draw_service(input);
        let name = 1 + u32::from(input.byte() % 16);
        let qpn = u32::from(input.byte() % 16);
        let mut request = valid_request(addresses, service, name, qpn);
        match input.byte() {
            0..140 => {}
            140..150 => request.path_mtu = None,
            150..160 => request.primary.local_gid = request.primary.remote_gid,
            160..170 => request.private_data = PrivateData::default(),
            170..180 => request.service = Service::from_code(input.byte() % 4),
            180..190 => request.local_guid = GUID,
            190..200 => request.max_cm_retries = 15,
            200..210 => request.primary.local_ack_timeout = draw_timeout(input),
            210..220 => {
                let code = input.byte() % 32;
                request.local_response_timeout = Timeout::new(code).expect("five bits");
            }
            220..230 => request.local_id = CommunicationId::new(0),
            _ => request.service = Service::UnreliableConnection,
        }
        request
    }

    fn draw_reply(&mut self, known: Known, input: &mut Input<'_>) -> ConnectReply {
        ConnectReply {
            local_id: CommunicationId::new(1 + u32::from(input.byte() % 8)),
            remote_id: known.ours,
            local_qpn: Qpn::new(u32::from(input.byte() % 16)),
            local_guid: input.pick(&[THEIR_GUID, THEIR_GUID, GUID]),
            target_ack_delay: Timeout::new(input.byte() % 32).expect("five bits"),
            responder_resources: input.byte(),
            initiator_depth: input.byte(),
            ..ConnectReply::default()
        }
    }

    fn draw_service_request(
        &mut self,
        addresses: Addresses,
        input: &mut Input<'_>,
    ) -> ServiceRequest {
        let private_data = match input.byte() {
            0..230 => PrivateData::new(&header(addresses)).expect("a header fits"),
            _ => PrivateData::default(),
        };
        ServiceRequest {
            request_id: CommunicationId::new(1 + u32::from(input.byte() % 8)),
            service_id: self.draw_service(input),
            private_data,
            ..ServiceRequest::default()
        }
    }
}

/// The kind of message that a peer answers with, by its number in `draw_message`.
fn fitting(heard: u16) -> Option<u8> {
    Some(match heard {
        ConnectRequest::ATTRIBUTE => 4,
        ConnectReply::ATTRIBUTE => 6,
        ReadyToUse::ATTRIBUTE => 9,
        DisconnectRequest::ATTRIBUTE => 10,
        ServiceRequest::ATTRIBUTE => 13,
        _ => return None,
    })
}

fn draw_reject(known: Known, input: &mut Input<'_>) -> Reject {
    let reasons = [
        RejectReason::Consumer,
        RejectReason::Timeout,
        RejectReason::StaleConnection,
        RejectReason::InvalidServiceId,
    ];
    let mut reject = Reject {
        local_id: known.theirs,
        remote_id: known.ours,
        message: RejectedMessage::from_code(input.byte() % 4),
        reason: input.pick(&reasons),
        ..Reject::default()
    };
    if reject.message == RejectedMessage::Request {
        reject.local_id = CommunicationId::default();
    }
    if reject.reason == RejectReason::Timeout {
        reject.local_id = known.theirs;
        reject.information = PrivateData::new(&THEIR_GUID.to_be_bytes()).expect("a GUID fits");
    }
    reject
}

fn draw_timeout(input: &mut Input<'_>) -> AckTimeout {
    AckTimeout::new(input.byte() % 32).expect("a code has five bits")
}
