//! Our device in the place of the kernel's client.

use engine::{RemoteMemory, Segment, SendRequest, Status, Work};
use wire::{Operation, Packet, PathMtu};

use crate::capture::{Capture, Frame};
use crate::server::{Ends, Host};

/// The address of our memory.
const ADDRESS: u64 = 0x10_0000;

/// Asserts that our requests for the same work equal the kernel's, and that the kernel's responses
/// complete the work with `status`.
#[track_caller]
pub(crate) fn assert_requests_equal_the_kernel_s(capture: &Capture, mtu: PathMtu, status: Status) {
    let data: Vec<u8> = capture
        .requests()
        .flat_map(|frame| frame.packet().payload.to_vec())
        .collect();
    let (request, length) = request_of(capture, data.len() as u32);
    let mut host = host(capture, mtu, length.max(data.len() as u32));
    host.buffer.write(0, &data);
    let segment = Segment {
        address: ADDRESS,
        length,
        key: host.memory.local_key,
    };
    let number = host.number;
    host.device
        .post_send(number, request.with([segment]))
        .expect("the request is accepted");
    let ours = host.transmit();
    let theirs: Vec<&Frame> = capture.requests().collect();
    assert_eq!(ours.len(), theirs.len());
    for (ours, theirs) in ours.iter().zip(&theirs) {
        assert_equal(ours, theirs);
    }
    for frame in capture.responses() {
        host.handle(frame, &frame.bytes);
    }
    let completion = host.device.poll_completion(host.completions);
    assert_eq!(completion.expect("the request completed").status, status);
    assert_read(capture, &host);
}

/// The request that a capture's first packet belongs to, and the length of its local memory.
fn request_of(capture: &Capture, sent: u32) -> (SendRequest, u32) {
    let first = capture.first_request();
    let last = capture.requests().last().expect("a request");
    let immediate = last.packet().immediate().map(wire::Immediate::bytes);
    let (address, length, key) = first.memory().unwrap_or_default();
    let remote = RemoteMemory { address, key };
    let packet = first.packet();
    let operands = packet.atomic();
    let work = match (packet.opcode.operation(), immediate, packet.invalidate()) {
        (Operation::Send, Some(bytes), _) => Work::SendImmediate(bytes),
        (Operation::Send, _, Some(key)) => Work::SendInvalidate(key),
        (Operation::Send, ..) => Work::Send,
        (Operation::Write, Some(bytes), _) => Work::WriteImmediate(remote, bytes),
        (Operation::Write, ..) => Work::Write(remote),
        (Operation::ReadRequest, ..) => Work::Read(remote),
        (Operation::FetchAdd, ..) => Work::FetchAdd {
            remote,
            add: operands.expect("an atomic").swap_or_add(),
        },
        (Operation::CompareSwap, ..) => Work::CompareSwap {
            remote,
            compare: operands.expect("an atomic").compare(),
            swap: operands.expect("an atomic").swap_or_add(),
        },
        other => panic!("unexpected operation {other:?}"),
    };
    let local = if sent > 0 { sent } else { length };
    (SendRequest::new(1, work), local)
}

fn host(capture: &Capture, mtu: PathMtu, length: u32) -> Host {
    let ends = Ends {
        flow: capture.first_request().flow,
        local: capture.client(),
        peer: capture.server(),
        psn: capture.first_psn(),
        mtu,
    };
    Host::new(&ends, ADDRESS, length.max(8) as usize)
}

/// Asserts that two packets are equal, except for the fields that each side may choose: MigReq, and
/// AckReq inside a message.
fn assert_equal(ours: &[u8], theirs: &Frame) {
    let ours = Packet::parse(ours).expect("a packet");
    let theirs = theirs.packet();
    let comparable = |packet: &Packet<'_>| {
        let head = packet.head().migrated(false);
        if packet.opcode.position().ends() {
            head
        } else {
            head.acknowledge(false)
        }
    };
    assert_eq!(comparable(&ours), comparable(&theirs), "{ours}\n{theirs}");
    assert_eq!(ours.payload, theirs.payload);
}

/// Asserts that our memory holds the data of the kernel's responses.
fn assert_read(capture: &Capture, host: &Host) {
    let mut responses = Vec::new();
    for frame in capture.responses() {
        let packet = frame.packet();
        match packet.atomic_acknowledge() {
            Some(result) => responses.extend(result.original().to_ne_bytes()),
            None => responses.extend(packet.payload.to_vec()),
        }
    }
    assert_eq!(host.buffer.to_vec()[..responses.len()], responses);
}
