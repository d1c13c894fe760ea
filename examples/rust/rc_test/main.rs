//! Sends one message from a client process to a server process, by SEND or by RDMA WRITE. `--break`
//! makes one of four common mistakes, to show its symptoms.
//!
//! ```text
//! cargo run --release --example rc_test -- --mode write                        the server
//! cargo run --release --example rc_test -- --mode write --server-ip 127.0.0.1  the client
//! ```
//!
//! Interoperates with the Python program of the same name: either can be server or client.

#![forbid(unsafe_code)]

mod connect;
mod mistakes;

use std::net::IpAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use clap::{Parser, ValueEnum};
use examples::{
    DeviceOptions, TIMEOUT, completed, describe_gid, gid_index, point_to_capture, println, text_of,
};
use rocinante::{
    Access, AsyncEvent, Completion, CompletionQueue, ConnectOptions, Context, Key, MemoryRegion,
    QueuePairBuilder, RemoteMemory, Request, Status,
};

use connect::{Link, Offer, Plan};
use mistakes::Fault;

const MESSAGE: &str = ">>> client saying hello .......... ";

/// The size of the server's buffer.
const BUFFER_SIZE: usize = 64;

/// The initial contents of the server's buffer.
const BEFORE: &str = "--- nothing has arrived ---";

/// How often the server looks whether its client is still there.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// SEND or RDMA WRITE a text from a client to a server
#[derive(Parser)]
#[command(after_help = "\
Without --server-ip this is the server, with it the client. Both need the same --mode, --cm and --break.

Examples:
  rc_test --mode send                                  the server, and in another terminal:
  rc_test --mode send --server-ip 127.0.0.1            the client
  rc_test --cm --mode write --server-ip 10.0.0.7       with the connection manager
  rc_test --break rkey --server-ip 127.0.0.1           with a wrong key")]
struct Options {
    #[command(flatten)]
    device: DeviceOptions,
    /// The operation [default: send; write for most kinds of --break]
    #[arg(long)]
    mode: Option<Mode>,
    /// Connect with the connection manager instead of a TCP socket
    #[arg(long)]
    cm: bool,
    /// Be the client of the server at this address
    #[arg(long, value_name = "ADDR")]
    server_ip: Option<IpAddr>,
    /// GID index [default: the first of the server's address family]
    #[arg(long, value_name = "N")]
    gid_index: Option<u8>,
    /// Make a mistake on purpose, to show its symptoms
    #[arg(long = "break", value_name = "WHAT")]
    fault: Option<Fault>,
    /// The TCP port of the server, or its port with --cm
    #[arg(long, default_value_t = 18700)]
    port: u16,
}

/// The operation.
#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Mode {
    /// Into a receive that the server has posted
    Send,
    /// Directly into the server's memory
    Write,
}

impl Mode {
    /// Its name and the opcode of its packet.
    fn on_the_wire(self) -> &'static str {
        match self {
            Mode::Send => "SEND, opcode 4 (RC SEND Only)",
            Mode::Write => "RDMA WRITE, opcode 10 (RC RDMA WRITE Only)",
        }
    }
}

impl Options {
    fn mode(&self) -> anyhow::Result<Mode> {
        match (self.mode, self.fault.map(Fault::mode)) {
            (Some(mode), Some(needed)) if mode != needed => {
                bail!("this kind of --break needs the other --mode: leave out --mode")
            }
            (Some(mode), _) | (None, Some(mode)) => Ok(mode),
            (None, None) => Ok(Mode::Send),
        }
    }
}

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    match options.server_ip {
        None => run_server(&options),
        Some(server) => run_client(&options, server),
    }
}

/// The objects that both sides need.
struct Resources {
    context: Context,
    completions: CompletionQueue,
    memory: MemoryRegion,
    queue_pair: QueuePairBuilder,
}

impl Resources {
    fn new(options: &Options, capture: &str, access: Access) -> anyhow::Result<Self> {
        let context = match options.server_ip {
            Some(server) => options.device.open(capture, Some(server))?,
            None => options.device.open_server(capture)?,
        };
        let gid_index = gid_index(&context, options.gid_index, options.server_ip);
        println!("device  {}", describe_gid(&context, gid_index));
        let domain = context.allocate_protection_domain()?;
        let completions = context.create_completion_queue(16)?;
        let memory = domain.allocate_memory(BUFFER_SIZE, access)?;
        let connect_options = ConnectOptions {
            gid_index: Some(gid_index),
            // 7 means "forever": with a missing receive the program would seem to hang.
            rnr_retry: 3,
            ..ConnectOptions::default()
        };
        Ok(Self {
            queue_pair: domain
                .queue_pair_builder(&completions)
                .connect_options(connect_options),
            context,
            completions,
            memory,
        })
    }
}

fn run_server(options: &Options) -> anyhow::Result<()> {
    let access = match options.fault {
        // The mistake: the peer gets a key for memory without the right to write it.
        Some(Fault::Access) => Access::LOCAL_WRITE,
        _ => Access::LOCAL_WRITE | Access::REMOTE_WRITE,
    };
    let resources = Resources::new(options, "rc_test-server.pcapng", access)?;
    resources.memory.write(0, BEFORE.as_bytes());
    println!(
        "buffer  \"{}\"",
        text_of(&resources.memory.to_vec(0..BUFFER_SIZE))
    );

    let offered = offer(options, &resources)?;
    let mut link = if options.cm {
        Link::accept_by_cm(&resources.context, resources.queue_pair, &offered)?
    } else {
        Link::accept_by_tcp(resources.queue_pair, &offered)?
    };
    if offered.receive.is_some() {
        let received = arrived(&link, &resources.completions)?;
        println!(
            "receive work request {}: {}, {} bytes",
            received.id, received.status, received.length
        );
    }
    // Neither a WRITE nor a rejected request completes here, so the client reports that it is done.
    link.wait_for_the_end()?;
    println!(
        "buffer  \"{}\"",
        text_of(&resources.memory.to_vec(0..BUFFER_SIZE))
    );
    if let Some(event) = resources.context.poll_event() {
        println!("event   {}", describe_event(event));
    }
    if let Some(fault) = options.fault {
        println!("\n{}", fault.server_explanation());
    }
    point_to_capture(&resources.context);
    Ok(())
}

/// Waits for the text of the client. Fails if the client ends, because its request has failed.
fn arrived(link: &Link, completions: &CompletionQueue) -> anyhow::Result<Completion> {
    let deadline = Instant::now() + TIMEOUT;
    while Instant::now() < deadline {
        // The client ends after its text has arrived: what was sent before is a completion here.
        let is_over = link.is_over()?;
        if let Some(completion) = completions.wait_for(LOOK_INTERVAL) {
            return Ok(completion);
        }
        ensure!(
            !is_over,
            "the client has ended without sending a text: see its own output for the reason"
        );
    }
    bail!("nothing arrived in 30 seconds: is the client still running?")
}

/// What the server offers to the client.
fn offer(options: &Options, resources: &Resources) -> anyhow::Result<Offer> {
    let mode = options.mode()?;
    let receive = match options.fault {
        // The mistake: a SEND needs a receive at the server, and there is none.
        Some(Fault::Recv) => None,
        _ => (mode == Mode::Send).then(|| resources.memory.all()),
    };
    Ok(Offer {
        port: options.port,
        plan: Plan::new(mode, options.fault),
        memory: (resources.memory.remote(0), BUFFER_SIZE),
        receive,
    })
}

/// Describes an asynchronous event: an error that belongs to no work request.
fn describe_event(event: AsyncEvent) -> String {
    match event {
        AsyncEvent::AccessError(number) => format!(
            "a peer had no right to access this memory; queue pair {:#x} is in the error state",
            number.value()
        ),
        other => other.to_string(),
    }
}

fn run_client(options: &Options, server: IpAddr) -> anyhow::Result<()> {
    let mode = options.mode()?;
    let resources = Resources::new(options, "rc_test-client.pcapng", Access::LOCAL_WRITE)?;
    let plan = Plan::new(mode, options.fault);
    let address = (server, options.port).into();
    let mut link = if options.cm {
        Link::connect_by_cm(&resources.context, resources.queue_pair, address, &plan)?
    } else {
        Link::connect_by_tcp(resources.queue_pair, address, &plan)?
    };

    resources.memory.write(0, MESSAGE.as_bytes());
    let data = resources.memory.slice(0..MESSAGE.len());
    let request = match mode {
        Mode::Send => Request::send(),
        Mode::Write => Request::write(target(&link, options.fault)),
    };
    println!("client  posts \"{MESSAGE}\": {}", mode.on_the_wire());
    link.queue_pair().post_send(request.data(data).id(1))?;
    let completion = completed(&resources.completions)?;
    link.end()?;
    report(&completion, options.fault)?;
    point_to_capture(&resources.context);
    Ok(())
}

/// The address and key of the server's buffer, wrong if the options ask for it.
fn target(link: &Link, fault: Option<Fault>) -> RemoteMemory {
    let (buffer, length) = link.memory();
    match fault {
        // The mistake: a key that the server did not send.
        Some(Fault::Rkey) => RemoteMemory {
            key: Key::new(buffer.key.value() ^ 0x5a5a_5a5a),
            ..buffer
        },
        // The mistake: the text begins inside the buffer and ends outside.
        Some(Fault::Addr) => RemoteMemory {
            address: buffer.address + length as u64 - 8,
            ..buffer
        },
        _ => buffer,
    }
}

/// Prints how the request ended. A failure that `--break` asked for is a success of this program.
fn report(completion: &Completion, fault: Option<Fault>) -> anyhow::Result<()> {
    let status = completion.status;
    println!(
        "client  work request {} ended with status {} ({status:?}): {status}",
        completion.id, status as u32
    );
    let Some(fault) = fault else {
        let good = (status == Status::Success).then_some(());
        return good.context("the text did not arrive");
    };
    if status != fault.expected() {
        bail!(
            "--break should have ended with {:?}: does the server have the same --break?",
            fault.expected()
        );
    }
    println!("\n{}", fault.client_explanation());
    Ok(())
}
