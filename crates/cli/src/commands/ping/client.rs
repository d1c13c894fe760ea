//! The client of `roci ping`.

use std::time::Instant;

use anyhow::{anyhow, ensure};
use rocinante::{Access, Connector, MemoryRegion};

use super::session::{Resources, Session, Side, Stop, debug};
use super::times::{Times, microseconds};
use super::{Options, connect_errors, interrupt};
use crate::output::print_line;

/// The first and last of the characters that fill a ping.
const LETTERS: std::ops::RangeInclusive<u8> = b'A'..=b'z';

/// Pings a server.
pub(super) fn run(options: &Options) -> anyhow::Result<()> {
    let (session, buffers) = connect(options)?;
    interrupt::expect_farewell();
    let (mut pings, mut times) = (0, Times::default());
    let outcome = ping(&session, &buffers, options, &mut pings, &mut times);
    if options.times {
        print_line(&times)?;
    }
    let left = matches!(outcome, Err(Stop::Left(_)));
    let server = session.peer();
    session.end(outcome)?;
    let of = match options.count {
        0 => String::new(),
        count => format!(" of {count}"),
    };
    ensure!(
        !left || interrupt::is_asked(),
        "{server} ended the connection after {pings}{of} pings; \
         a server that is rping needs the same -S as its client"
    );
    Ok(())
}

/// The buffers that the server reads and writes.
struct Buffers {
    start: MemoryRegion,
    sink: MemoryRegion,
}

fn connect(options: &Options) -> anyhow::Result<(Session, Buffers)> {
    let (source, server) = (options.source_address()?, options.server_address()?);
    let found = match source {
        Some(source) => Connector::resolve_from(source, server),
        None => Connector::resolve(server),
    };
    let connector = found.map_err(|error| connect_errors::no_way(source, server, error))?;
    debug(options.debug, || {
        "rdma_resolve_addr - rdma_resolve_route successful".to_owned()
    })?;
    let resources = Resources::at(connector.context(), options.debug)?;
    let buffers = Buffers {
        start: resources.memory(options.size, Access::REMOTE_READ)?,
        sink: resources.memory(options.size, Access::REMOTE_WRITE)?,
    };
    debug(options.debug, || {
        "allocated & registered buffers...".to_owned()
    })?;
    let prepared = connector.prepare(resources.queue_pair_builder())?;
    prepared.post_receive(0, resources.inbox())?;
    let connection = prepared.connect(&[]).map_err(connect_errors::explain)?;
    debug(options.debug, || {
        "ESTABLISHED\nrdma_connect successful".to_owned()
    })?;
    Ok((Session::new(Side::Client, connection, resources), buffers))
}

/// Sends the pings. Returns how many.
fn ping(
    session: &Session,
    buffers: &Buffers,
    options: &Options,
    pings: &mut u32,
    times: &mut Times,
) -> Result<(), Stop> {
    while options.count == 0 || *pings < options.count {
        let sent = data(*pings, options.size);
        buffers.start.write(0, &sent);
        let begin = Instant::now();
        session.advertise(&buffers.start)?;
        session.receive_message("RDMA_WRITE_ADV")?;
        session.advertise(&buffers.sink)?;
        session.receive_message("RDMA_WRITE_COMPLETE")?;
        let time = begin.elapsed();
        times.add(time);
        let came = buffers.sink.to_vec(0..options.size);
        if options.validate {
            compare(*pings, &sent, &came)?;
        }
        if options.verbose {
            print_line(format_args!("ping data: {}", text(&came)))?;
        }
        if options.times {
            let (server, size) = (session.peer(), options.size);
            let time = microseconds(time);
            print_line(format_args!(
                "{size} bytes to {server} and back: ping {pings}, {time:.1} us"
            ))?;
        }
        *pings = pings.wrapping_add(1);
    }
    Ok(())
}

fn compare(ping: u32, sent: &[u8], came: &[u8]) -> Result<(), Stop> {
    let mut pairs = sent.iter().zip(came);
    match pairs.position(|(sent, came)| sent != came) {
        None => Ok(()),
        Some(at) => Err(Stop::Failed(anyhow!(
            "data mismatch! ping {ping} came back changed, from byte {at} on"
        ))),
    }
}

/// The data of a ping: its number, then characters, starting with the next one each time, and a zero byte.
fn data(ping: u32, size: usize) -> Vec<u8> {
    let mut bytes = format!("rdma-ping-{ping}: ").into_bytes();
    let begin = ping as usize % LETTERS.len();
    bytes.extend(LETTERS.cycle().skip(begin).take(size - bytes.len()));
    bytes[size - 1] = 0;
    bytes
}

/// The text before the zero byte.
pub(super) fn text(bytes: &[u8]) -> std::borrow::Cow<'_, str> {
    let until_zero = bytes.split(|&byte| byte == 0).next();
    String::from_utf8_lossy(until_zero.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::super::{LARGEST, SMALLEST};
    use super::*;

    #[test]
    fn the_data_is_that_of_rping() {
        let shown = |ping| text(&data(ping, 64)).into_owned();
        assert_eq!(
            shown(0),
            r"rdma-ping-0: ABCDEFGHIJKLMNOPQRSTUVWXYZ[\]^_`abcdefghijklmnopqr"
        );
        assert_eq!(
            shown(57),
            r"rdma-ping-57: zABCDEFGHIJKLMNOPQRSTUVWXYZ[\]^_`abcdefghijklmnop"
        );
        assert_eq!(&shown(58)[..18], "rdma-ping-58: ABCD");
    }

    #[test]
    fn every_size_has_room_for_every_number() {
        for size in [SMALLEST, LARGEST] {
            assert_eq!(data(u32::MAX, size).len(), size);
        }
    }

    #[test]
    fn a_mismatch_is_reported_with_its_offset() {
        let sent = data(3, 64);
        let mut came = sent.clone();
        assert!(compare(3, &sent, &came).is_ok());
        came[40] = 0;
        let Err(Stop::Failed(error)) = compare(3, &sent, &came) else {
            panic!("it differs");
        };
        assert_eq!(
            error.to_string(),
            "data mismatch! ping 3 came back changed, from byte 40 on"
        );
    }
}
