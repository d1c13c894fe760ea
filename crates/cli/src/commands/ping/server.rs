//! The server of `roci ping`.

use std::thread;
use std::time::Duration;

use anyhow::anyhow;
use rocinante::{Access, CompletedWork, ConnectionRequest, Listener, MemoryRegion, Request};

use super::client::text;
use super::session::{Resources, Session, Side, Stop, debug};
use super::{LARGEST, Options, connect_errors, interrupt};
use crate::output::{complain, print_line};

/// How often to check for Ctrl-C while no client connects.
const INTERRUPT_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Serves one client, or several with `--persistent`.
pub(super) fn run(options: &Options) -> anyhow::Result<()> {
    let address = options.server_address()?;
    let listener = Listener::bind(address).map_err(connect_errors::explain)?;
    interrupt::expect_farewell();
    debug(options.debug, || {
        "rdma_bind_addr successful\nrdma_listen".to_owned()
    })?;
    if options.persistent {
        serve_all(&listener, options);
    } else {
        serve_one(listener, options)?;
    }
    Ok(())
}

fn serve_one(listener: Listener, options: &Options) -> anyhow::Result<()> {
    let Some(request) = next_client(&listener) else {
        return Ok(());
    };
    // Stop listening, so that other clients are rejected at once instead of waiting.
    drop(listener);
    serve(request, options)
}

/// Serves a client. Its failure is reported and does not affect the others.
fn serve_all(listener: &Listener, options: &Options) {
    thread::scope(|scope| {
        while let Some(request) = next_client(listener) {
            scope.spawn(move || {
                if let Err(error) = serve(request, options) {
                    complain(&error);
                }
            });
        }
    });
}

/// The next client; `None` after an interrupt.
fn next_client(listener: &Listener) -> Option<ConnectionRequest> {
    while !interrupt::is_asked() {
        let request = listener.wait_for(INTERRUPT_CHECK_INTERVAL);
        if request.is_some() {
            return request;
        }
    }
    None
}

fn serve(request: ConnectionRequest, options: &Options) -> anyhow::Result<()> {
    let (session, buffer) = accept(request, options)?;
    let outcome = answer(&session, &buffer, options);
    session.end(outcome)
}

fn accept(
    request: ConnectionRequest,
    options: &Options,
) -> anyhow::Result<(Session, MemoryRegion)> {
    let resources = Resources::at(request.context(), options.debug)?;
    // Large enough for every client.
    let buffer = resources.memory(LARGEST, Access::empty())?;
    debug(options.debug, || {
        "allocated & registered buffers...\naccepting client connection request".to_owned()
    })?;
    let prepared = request.prepare(resources.queue_pair_builder())?;
    prepared.post_receive(0, resources.inbox())?;
    let connection = prepared.accept(&[]).map_err(connect_errors::explain)?;
    debug(options.debug, || "ESTABLISHED".to_owned())?;
    Ok((Session::new(Side::Server, connection, resources), buffer))
}

/// Answers pings until the client leaves.
fn answer(session: &Session, buffer: &MemoryRegion, options: &Options) -> Result<(), Stop> {
    loop {
        let length = fetch(session, buffer)?;
        let data = buffer.to_vec(0..length);
        let text = text(&data);
        if options.verbose {
            print_line(format_args!("server ping data: {text}"))?;
        }
        session.go_ahead()?;
        // As rping does: the text and a zero after it.
        put_back(session, buffer, (text.len() + 1).min(length))?;
        session.go_ahead()?;
    }
}

/// Reads the client's buffer. Returns its length.
fn fetch(session: &Session, buffer: &MemoryRegion) -> Result<usize, Stop> {
    let start = session.receive_message("RDMA_READ_ADV")?;
    session.debug(|| "server received sink adv".to_owned())?;
    let length = start.length as usize;
    if length > LARGEST {
        return Err(Stop::Failed(anyhow!(
            "{} pings with {length} bytes, more than the {LARGEST} of rping",
            session.peer()
        )));
    }
    session.transfer(Request::read(start.remote).data(buffer.slice(0..length)))?;
    session.debug(|| "server posted rdma read req ".to_owned())?;
    session.wait(CompletedWork::Read, "RDMA_READ_COMPLETE")?;
    session.debug(|| "server received read complete".to_owned())?;
    Ok(length)
}

/// Writes the ping's data to the client's second buffer.
fn put_back(session: &Session, buffer: &MemoryRegion, length: usize) -> Result<(), Stop> {
    let sink = session.receive_message("RDMA_WRITE_ADV")?;
    session.debug(|| "server received sink adv".to_owned())?;
    let data = buffer.slice(0..length);
    session.debug(|| {
        let (key, address) = (data.key.value(), data.address);
        format!("rdma write from lkey {key:x} laddr {address:x} len {length}")
    })?;
    session.transfer(Request::write(sink.remote).data(data))?;
    session.wait(CompletedWork::Write, "RDMA_WRITE_COMPLETE")?;
    session.debug(|| "server rdma write complete ".to_owned())
}
