//! A short capture with several anomalies, for the screenshot.

use std::time::Duration;

use wire::cm::{
    CommunicationId, ConnectReply, ConnectRequest, DisconnectReply, DisconnectRequest, PortSpace,
    ReadyToUse, Service, ServiceId,
};
use wire::{Aeth, Key, NakCode, Opcode, PacketHead, PathMtu, Psn, Reth, RnrTimer, Syndrome};

use crate::captures::{CLIENT, CaptureBuilder, SERVER};

const CLIENT_ID: CommunicationId = CommunicationId::new(0x0101);
const SERVER_ID: CommunicationId = CommunicationId::new(0x0202);
const FIRST: u32 = 1000;
const DATA: [u8; 1024] = [7; 1024];
const ACKNOWLEDGE: Syndrome = Syndrome::Acknowledge { credits: None };

/// Connect, a lost packet, a receiver that is not ready, a read, disconnect.
pub(crate) fn example_capture() -> Vec<u8> {
    let mut capture = CaptureBuilder::new();
    connect(&mut capture);
    send_with_a_loss(&mut capture);
    send_before_the_receive(&mut capture);
    read(&mut capture);
    disconnect(&mut capture);
    capture.bytes()
}

fn connect(capture: &mut CaptureBuilder) {
    let request = ConnectRequest {
        local_id: CLIENT_ID,
        service_id: ServiceId::of_port(PortSpace::Tcp, 7471),
        service: Service::ReliableConnection,
        local_qpn: CLIENT.number,
        starting_psn: Psn::new(2000),
        path_mtu: Some(PathMtu::Mtu1024),
        ..ConnectRequest::default()
    };
    let reply = ConnectReply {
        local_id: SERVER_ID,
        remote_id: CLIENT_ID,
        local_qpn: SERVER.number,
        starting_psn: Psn::new(FIRST),
        ..ConnectReply::default()
    };
    let ready = ReadyToUse {
        local_id: CLIENT_ID,
        remote_id: SERVER_ID,
        ..ReadyToUse::default()
    };
    capture.manages(CLIENT, request.into(), None);
    capture.pause(Duration::from_micros(90));
    capture.manages(SERVER, reply.into(), None);
    capture.pause(Duration::from_micros(40));
    capture.manages(CLIENT, ready.into(), None);
    capture.pause(Duration::from_micros(20));
}

/// The third packet does not arrive.
fn send_with_a_loss(capture: &mut CaptureBuilder) {
    let parts = [
        (Opcode::RcSendFirst, FIRST),
        (Opcode::RcSendMiddle, FIRST + 1),
        (Opcode::RcSendMiddle, FIRST + 2),
        (Opcode::RcSendMiddle, FIRST + 3),
        (Opcode::RcSendLast, FIRST + 4),
    ];
    let send = |capture: &mut CaptureBuilder, (opcode, psn)| capture.sends(opcode, psn, &DATA);
    parts.into_iter().for_each(|part| send(capture, part));
    capture.responds(Syndrome::Negative(NakCode::SequenceError), FIRST + 2);
    parts[2..].iter().for_each(|&part| send(capture, part));
    capture.responds(ACKNOWLEDGE, FIRST + 4);
    capture.pause(Duration::from_micros(15));
}

fn send_before_the_receive(capture: &mut CaptureBuilder) {
    let psn = FIRST + 5;
    let timer = RnrTimer::new(12).expect("a code has five bits");
    capture.sends(Opcode::RcSendOnly, psn, &DATA[..64]);
    capture.responds(Syndrome::ReceiverNotReady(timer), psn);
    capture.pause(Duration::from_micros(650));
    capture.sends(Opcode::RcSendOnly, psn, &DATA[..64]);
    capture.responds(ACKNOWLEDGE, psn);
    capture.pause(Duration::from_micros(15));
}

fn read(capture: &mut CaptureBuilder) {
    let psn = FIRST + 6;
    let request = PacketHead::new(Opcode::RcReadRequest, SERVER.number, Psn::new(psn))
        .acknowledge(true)
        .push(&Reth::new(
            0x7f00_0000_1000,
            Key::new(0x1234_5678),
            3 * DATA.len() as u32,
        ));
    capture.captures(CLIENT, &request, &[], None);
    let aeth = Aeth::new(ACKNOWLEDGE, 3);
    let response = |opcode, offset| PacketHead::new(opcode, CLIENT.number, Psn::new(psn + offset));
    let first = response(Opcode::RcReadResponseFirst, 0).push(&aeth);
    let middle = response(Opcode::RcReadResponseMiddle, 1);
    let last = response(Opcode::RcReadResponseLast, 2).push(&aeth);
    for head in [first, middle, last] {
        capture.captures(SERVER, &head, &DATA, None);
    }
    capture.pause(Duration::from_micros(40));
}

fn disconnect(capture: &mut CaptureBuilder) {
    let request = DisconnectRequest {
        local_id: CLIENT_ID,
        remote_id: SERVER_ID,
        remote_qpn: SERVER.number,
        ..DisconnectRequest::default()
    };
    let reply = DisconnectReply {
        local_id: SERVER_ID,
        remote_id: CLIENT_ID,
        ..DisconnectReply::default()
    };
    capture.manages(CLIENT, request.into(), None);
    capture.pause(Duration::from_micros(60));
    capture.manages(SERVER, reply.into(), None);
}
