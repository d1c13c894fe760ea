//! A packet socket, as programs that capture have one.

use std::time::Duration;

use socket2::SockFilter;

/// A packet socket on every interface, as `tcpdump -i any` has one. Its filter passes only packets to this address, so
/// that the packets of other tests do not fill it. Only root may open one.
pub fn capture(address: [u8; 4]) -> Option<socket2::Socket> {
    const ALL_PROTOCOLS: i32 = 0x0003_u16.to_be() as i32;
    // The destination in the IPv4 header behind the Ethernet header; opcodes of the classic BPF.
    const DESTINATION: u32 = 14 + 16;
    let destination = u32::from_be_bytes(address);
    let filter = [
        SockFilter::new(0x20, 0, 0, DESTINATION),
        SockFilter::new(0x15, 0, 1, destination),
        SockFilter::new(0x06, 0, 0, u32::MAX),
        SockFilter::new(0x06, 0, 0, 0),
    ];
    let (domain, kind) = (socket2::Domain::PACKET, socket2::Type::RAW);
    let socket = socket2::Socket::new(domain, kind, Some(ALL_PROTOCOLS.into())).ok()?;
    socket.attach_filter(&filter).expect("a valid program");
    socket.set_nonblocking(true).expect("an option of sockets");
    // What came before the filter.
    let _ = captured(&socket, address);
    Some(socket)
}

/// How many captured packets go to the RoCE port of an address. Loopback shows each packet twice.
pub fn captured(mut socket: &socket2::Socket, address: [u8; 4]) -> usize {
    let mut frame = [0; 256];
    let mut count = 0;
    while let Ok(length) = std::io::Read::read(&mut socket, &mut frame) {
        let to_port = frame[..length].get(36..38) == Some(&4791_u16.to_be_bytes());
        let to_address = frame[..length].get(30..34) == Some(&address);
        count += usize::from(to_port && to_address);
    }
    count
}

/// A capture that starts or ends is noticed within this time.
pub const NOTICED: Duration = Duration::from_millis(100);
