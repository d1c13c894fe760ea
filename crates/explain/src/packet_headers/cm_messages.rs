//! The messages of the connection manager as text.

use wire::cm::{
    AddressHeader, CommunicationId, ConnectReply, ConnectRequest, DisconnectRequest,
    LoadAlternatePath, Message, ReceiptAcknowledge, Reject, ServiceReply, ServiceRequest,
};

use super::{Field, Layer};

/// A message as a layer, with its name in the specification.
pub(super) fn layer(message: &Message) -> Layer {
    let fields = match message {
        Message::ConnectRequest(message) => request(message),
        Message::ConnectReply(message) => reply(message),
        Message::ReadyToUse(message) => {
            let ids = ids(message.local_id, message.remote_id);
            with_data(ids, message.private_data.bytes())
        }
        Message::Reject(message) => reject(message),
        Message::ReceiptAcknowledge(message) => receipt(message),
        Message::DisconnectRequest(message) => disconnect(message),
        Message::DisconnectReply(message) => {
            let ids = ids(message.local_id, message.remote_id);
            with_data(ids, message.private_data.bytes())
        }
        Message::ServiceRequest(message) => service_request(message),
        Message::ServiceReply(message) => service_reply(message),
        Message::LoadAlternatePath(message) => load_alternate(message),
        Message::AlternatePathResponse(message) => {
            let mut fields = ids(message.local_id, message.remote_id);
            fields.push(Field::new("Status", message.status));
            fields
        }
    };
    Layer {
        name: message.name(),
        fields,
    }
}

fn ids(local: CommunicationId, remote: CommunicationId) -> Vec<Field> {
    vec![
        Field::new("Local communication id", local),
        Field::new("Remote communication id", remote),
    ]
}

fn with_data(mut fields: Vec<Field>, data: &[u8]) -> Vec<Field> {
    fields.push(Field::new("Private data", described(data)));
    fields
}

fn request(request: &ConnectRequest) -> Vec<Field> {
    let mtu = request
        .path_mtu
        .map_or("none".to_owned(), |mtu| mtu.to_string());
    let mut fields = vec![
        Field::new("Local communication id", request.local_id),
        Field::new("Service id", request.service_id),
        Field::new("Service", request.service),
        Field::new("Local QP", request.local_qpn),
        Field::new("Starting PSN (for the receiver)", request.starting_psn),
        Field::new("Path MTU", mtu),
        Field::new("Retry count", request.retry_count),
        Field::new("RNR retry count", request.rnr_retry_count),
        Field::new("Responder resources", request.responder_resources),
        Field::new("Initiator depth", request.initiator_depth),
        Field::new("Flow control", request.flow_control),
        Field::new("P_Key", request.partition),
        Field::new("Max CM retries", request.max_cm_retries),
        Field::new("Remote response timeout", request.remote_response_timeout),
        Field::new("Local response timeout", request.local_response_timeout),
        Field::new("Local GID", request.primary.local_gid),
        Field::new("Remote GID", request.primary.remote_gid),
        Field::new("Hop limit", request.primary.hop_limit),
        Field::new("Traffic class", request.primary.traffic_class),
    ];
    fields.extend(addresses(request.private_data.bytes()));
    with_data(fields, application_data(request.private_data.bytes()))
}

fn reply(reply: &ConnectReply) -> Vec<Field> {
    let mut fields = ids(reply.local_id, reply.remote_id);
    fields.extend([
        Field::new("Local QP", reply.local_qpn),
        Field::new("Starting PSN (for the receiver)", reply.starting_psn),
        Field::new("RNR retry count", reply.rnr_retry_count),
        Field::new("Responder resources", reply.responder_resources),
        Field::new("Initiator depth", reply.initiator_depth),
        Field::new("Flow control", reply.flow_control),
        Field::new("Target ACK delay", reply.target_ack_delay),
    ]);
    with_data(fields, reply.private_data.bytes())
}

fn reject(reject: &Reject) -> Vec<Field> {
    let mut fields = ids(reject.local_id, reject.remote_id);
    let reason = format!("{} {}", reject.reason.code(), reject.reason);
    fields.push(Field::new("Rejected message", reject.message));
    fields.push(Field::new("Reason", reason));
    with_data(fields, reject.private_data.bytes())
}

fn receipt(receipt: &ReceiptAcknowledge) -> Vec<Field> {
    let mut fields = ids(receipt.local_id, receipt.remote_id);
    fields.push(Field::new("Received message", receipt.message));
    fields.push(Field::new("Response within", receipt.service_timeout));
    with_data(fields, receipt.private_data.bytes())
}

fn disconnect(request: &DisconnectRequest) -> Vec<Field> {
    let mut fields = ids(request.local_id, request.remote_id);
    fields.push(Field::new("Remote QP", request.remote_qpn));
    with_data(fields, request.private_data.bytes())
}

fn service_request(request: &ServiceRequest) -> Vec<Field> {
    let mut fields = vec![
        Field::new("Request id", request.request_id),
        Field::new("Service id", request.service_id),
        Field::new("P_Key", request.partition),
    ];
    fields.extend(addresses(request.private_data.bytes()));
    with_data(fields, application_data(request.private_data.bytes()))
}

fn service_reply(reply: &ServiceReply) -> Vec<Field> {
    let fields = vec![
        Field::new("Request id", reply.request_id),
        Field::new("Service id", reply.service_id),
        Field::new("Status", reply.status),
        Field::new("QP", reply.qpn),
        Field::new("Q_Key", reply.queue_key),
    ];
    with_data(fields, reply.private_data.bytes())
}

fn load_alternate(load: &LoadAlternatePath) -> Vec<Field> {
    let mut fields = ids(load.local_id, load.remote_id);
    fields.push(Field::new("Remote QP", load.remote_qpn));
    fields.push(Field::new("Local GID", load.alternate.local_gid));
    fields.push(Field::new("Remote GID", load.alternate.remote_gid));
    fields
}

/// The addresses that `rdma_cm` puts before the application's data.
fn addresses(data: &[u8]) -> Vec<Field> {
    let Some(header) = address_header(data) else {
        return Vec::new();
    };
    vec![
        Field::new(
            "From",
            format!("{} port {}", header.source, header.source_port),
        ),
        Field::new("To", header.destination),
    ]
}

/// The application's part of the private data.
pub(crate) fn application_data(data: &[u8]) -> &[u8] {
    match address_header(data) {
        Some(_) => &data[AddressHeader::LENGTH..],
        None => data,
    }
}

fn address_header(data: &[u8]) -> Option<AddressHeader> {
    AddressHeader::parse(data.first_chunk()?).ok()
}

/// Bytes without the zero words at their end: the last byte of an address may be zero, too.
pub(crate) fn in_words_of_8(data: &[u8]) -> &[u8] {
    let end = filled(data).len().next_multiple_of(8);
    &data[..end.min(data.len())]
}

/// Bytes without the zeros at their end.
fn filled(data: &[u8]) -> &[u8] {
    let end = data
        .iter()
        .rposition(|&byte| byte != 0)
        .map_or(0, |last| last + 1);
    &data[..end]
}

/// Text if it is one, otherwise hexadecimal.
pub(crate) fn readable(data: &[u8]) -> String {
    let data = filled(data);
    match std::str::from_utf8(data) {
        _ if data.is_empty() => "none".to_owned(),
        Ok(text) if text.chars().all(|char| !char.is_control()) => format!("{text:?}"),
        _ => hexadecimal(data),
    }
}

/// Text if it is one, otherwise the length, the printable part and the bytes in hexadecimal.
pub(crate) fn described(data: &[u8]) -> String {
    let text = readable(data);
    if text == "none" || text.starts_with('"') {
        return text;
    }
    let data = in_words_of_8(data);
    let words: Vec<String> = data.chunks(8).map(hexadecimal).collect();
    format!(
        "{} bytes, then zeros{}: {}",
        data.len(),
        printable(data),
        words.join(" ")
    )
}

/// The bytes as ASCII with dots for others, if they contain a word.
fn printable(data: &[u8]) -> String {
    const SHORTEST_WORD: usize = 4;
    let is_printable = |byte: &u8| byte.is_ascii_graphic() || *byte == b' ';
    let mut words = data.split(|byte| !is_printable(byte));
    if !words.any(|word| word.len() >= SHORTEST_WORD) {
        return String::new();
    }
    let shown = data.iter().map(|byte| {
        if is_printable(byte) {
            *byte as char
        } else {
            '.'
        }
    });
    format!(" |{}|", shown.collect::<String>())
}

fn hexadecimal(data: &[u8]) -> String {
    data.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use wire::cm::PrivateData;

    use super::*;

    #[test]
    fn private_data_keeps_the_last_byte_of_an_address() {
        let mut data = [0; 56];
        data[..16].copy_from_slice(&0x7f52_d6c7_1000_0000_171b_0000_0010_0000_u128.to_be_bytes());
        let expected = "16 bytes, then zeros: 7f52d6c710000000 171b000000100000";
        assert_eq!(described(&data), expected);
        assert_eq!(described(in_words_of_8(&data)), expected);
    }

    #[test]
    fn private_data_shows_text_within_bytes() {
        assert_eq!(described(b"key=7\0\0\0"), "\"key=7\"");
        assert_eq!(
            described(b"\x01\x02hello\0"),
            "8 bytes, then zeros |..hello.|: 010268656c6c6f00"
        );
        assert_eq!(described(&[0; 8]), "none");
    }

    fn text(message: &Message) -> String {
        let fields = layer(message).fields.into_iter();
        let lines = fields.map(|it| format!("{}: {}\n", it.name, it.value));
        lines.collect()
    }

    #[test]
    fn a_delay_names_both_ends_and_what_it_delays() {
        let receipt = ReceiptAcknowledge {
            local_id: CommunicationId::new(7),
            remote_id: CommunicationId::new(8),
            ..ReceiptAcknowledge::default()
        };
        let expected = format!(
            "Local communication id: {}\nRemote communication id: {}\nReceived message: {}\nResponse within: {}\n\
             Private data: none\n",
            receipt.local_id, receipt.remote_id, receipt.message, receipt.service_timeout
        );
        assert_eq!(text(&Message::ReceiptAcknowledge(receipt)), expected);
    }

    #[test]
    fn a_service_request_names_the_addresses_before_its_data() {
        let addresses = AddressHeader {
            source_port: 7000,
            source: [10, 0, 0, 1].into(),
            destination: [10, 0, 0, 2].into(),
        };
        let mut data = addresses.emit().to_vec();
        data.extend(b"hello");
        let request = ServiceRequest {
            private_data: PrivateData::new(&data).expect("room"),
            ..ServiceRequest::default()
        };
        let text = text(&Message::ServiceRequest(request));
        let expected = "From: 10.0.0.1 port 7000\nTo: 10.0.0.2\nPrivate data: \"hello\"\n";
        assert!(text.ends_with(expected), "{text}");
    }
}
