//! RDMA tests that need no hardware, no kernel module and no root.

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::thread;

use rocinante::{Access, Connector, Context, Listener, OpenOptions, Request};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// The server under test: receives one message.
fn serve(listener: &Listener) -> Result<String> {
    let request = listener.wait();
    let context = request.context().clone();
    let domain = context.allocate_protection_domain()?;
    let completions = context.create_completion_queue(16)?;
    let memory = domain.allocate_memory(64, Access::LOCAL_WRITE)?;
    let prepared = request.prepare(domain.queue_pair_builder(&completions))?;
    prepared.post_receive(1, [memory.all()])?;
    let _connection = prepared.accept(b"")?;
    let received = completions.wait().into_result()?;
    Ok(String::from_utf8(
        memory.to_vec(..received.length as usize),
    )?)
}

/// The client under test: sends one message.
fn send(context: &Context, server: SocketAddr, text: &[u8]) -> Result<()> {
    let domain = context.allocate_protection_domain()?;
    let completions = context.create_completion_queue(16)?;
    let connector = Connector::resolve_on(context, server)?;
    let prepared = connector.prepare(domain.queue_pair_builder(&completions))?;
    let connection = prepared.connect(b"")?;
    connection.post_send(Request::send().inline(text))?;
    completions.wait().into_result()?;
    Ok(())
}

/// Every address of 127.0.0.0/8 is a device. Each test has two of its own, so that tests run side by side.
fn exchange(network: u8, client: &OpenOptions) -> Result<()> {
    let [here, there] = [1, 2].map(|host| Ipv4Addr::new(127, 8, network, host));
    let listener = Listener::bind(SocketAddr::from((there, 0)))?;
    let address = listener.local_address();
    let server = thread::spawn(move || serve(&listener));
    send(
        &Context::open_with(&here.to_string(), client)?,
        address,
        b"hello",
    )?;
    assert_eq!(server.join().expect("no panic")?, "hello");
    Ok(())
}

#[test]
fn message_arrives() -> Result<()> {
    exchange(1, &OpenOptions::from_env())
}

#[test]
fn message_arrives_although_its_first_packet_is_lost() -> Result<()> {
    let mut lossy = OpenOptions::from_env();
    lossy.faults = Some("drop:opcode=RC_SEND_ONLY,nth=1".to_owned());
    exchange(2, &lossy)
}
