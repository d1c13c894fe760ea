//! Two processes, one message: by SEND, which the server takes part in, or by RDMA WRITE, which it
//! does not even notice. And four ways to get it wrong.
//!
//! ```text
//! cargo run --release --example rc_test -- --mode write                        the server
//! cargo run --release --example rc_test -- --mode write --server-ip 127.0.0.1  the client
//! ```
//!
//! The Python program of the same name speaks the same language: either can be server or client.

#![forbid(unsafe_code)]

mod connect;
mod fault;

use std::net::IpAddr;

use anyhow::{Context as _, bail};
use clap::{Parser, ValueEnum};
use examples::{DeviceOptions, completed, describe_gid, gid_index, point_to_capture, text_of};
use rocinante::{
    Access, AsyncEvent, Builder, Completion, CompletionQueue, Context, Key, MemoryRegion, Remote,
    Request, Status, Terms,
};

use connect::{Invitation, Link, Plan};
use fault::Fault;

const MESSAGE: &str = ">>> client saying hello .......... ";

/// How large the server's buffer is.
const ROOM: usize = 64;

/// What is in it before.
const BEFORE: &str = "--- nothing has come yet ---";

/// SEND or RDMA WRITE a text from a client to a server
#[derive(Parser)]
#[command(after_help = "\
Without --server-ip it is the server, with it the client. Both need the same --mode, --cm and --break.

Examples:
  rc_test --mode send                                  the server, and in another terminal:
  rc_test --mode send --server-ip 127.0.0.1            the client
  rc_test --cm --mode write --server-ip 10.0.0.7       introduced by the connection manager
  rc_test --break rkey --server-ip 127.0.0.1           with a wrong key: what happens?")]
struct Options {
    #[command(flatten)]
    device: DeviceOptions,
    /// How the text gets to the server [default: send; write for most kinds of --break]
    #[arg(long)]
    mode: Option<Mode>,
    /// Let the connection manager introduce the two ends, instead of a TCP socket
    #[arg(long)]
    cm: bool,
    /// The server's address: makes this the client
    #[arg(long, value_name = "ADDR")]
    server_ip: Option<IpAddr>,
    /// Which entry of the GID table [default: the first of the server's address family]
    #[arg(long, value_name = "N")]
    gid_index: Option<u8>,
    /// Do something wrong, to see what it looks like
    #[arg(long = "break", value_name = "WHAT")]
    fault: Option<Fault>,
    /// The server's TCP port, or its port in the connection manager
    #[arg(long, default_value_t = 18700)]
    port: u16,
}

/// The operation.
#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Mode {
    /// Into a receive that the server has posted
    Send,
    /// Straight into the server's memory
    Write,
}

impl Mode {
    /// Its name and how its packet is known on the wire.
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
                bail!("this kind of --break shows itself only with the other --mode: leave it out")
            }
            (Some(mode), _) | (None, Some(mode)) => Ok(mode),
            (None, None) => Ok(Mode::Send),
        }
    }
}

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    match options.server_ip {
        None => serve(&options),
        Some(server) => say_hello(&options, server),
    }
}

/// What both sides need: a device, memory, and a queue of completions.
struct Station {
    context: Context,
    completions: CompletionQueue,
    memory: MemoryRegion,
    queue_pair: Builder,
}

impl Station {
    fn new(options: &Options, capture: &str, access: Access) -> anyhow::Result<Self> {
        let context = options.device.open(capture, options.server_ip)?;
        let gid_index = gid_index(&context, options.gid_index, options.server_ip);
        println!("device  {}", describe_gid(&context, gid_index));
        let domain = context.protection_domain()?;
        let completions = context.completion_queue(16)?;
        let memory = domain.register(ROOM, access)?;
        let terms = Terms {
            gid_index,
            // 7 would mean "for ever": a missing receive would look like a program that hangs.
            rnr_retry: 3,
            ..Terms::default()
        };
        Ok(Self {
            queue_pair: domain.queue_pair(&completions).terms(terms),
            context,
            completions,
            memory,
        })
    }
}

fn serve(options: &Options) -> anyhow::Result<()> {
    let access = match options.fault {
        // The mistake: the peer gets a key to memory that it may not write.
        Some(Fault::Access) => Access::LOCAL_WRITE,
        _ => Access::LOCAL_WRITE | Access::REMOTE_WRITE,
    };
    let station = Station::new(options, "rc_test-server.pcapng", access)?;
    station.memory.write(0, BEFORE.as_bytes());
    println!("buffer  \"{}\"", text_of(&station.memory.to_vec(0..ROOM)));

    let invitation = invite(options, &station)?;
    let mut link = match options.cm {
        true => Link::accept_by_cm(&station.context, station.queue_pair, &invitation)?,
        false => Link::accept_by_tcp(station.queue_pair, &invitation)?,
    };
    if invitation.receive.is_some() {
        let received = completed(&station.completions)?;
        println!(
            "receive work request {}: {}, {} bytes",
            received.id, received.status, received.length
        );
    }
    // A WRITE completes nothing here, and neither does a failure: only the client can tell.
    link.wait_for_the_end()?;
    println!("buffer  \"{}\"", text_of(&station.memory.to_vec(0..ROOM)));
    if let Some(event) = station.context.poll_event() {
        println!("event   {}", in_words(event));
    }
    if let Some(fault) = options.fault {
        println!("\n{}", fault.seen_by_the_server());
    }
    point_to_capture(&station.context);
    Ok(())
}

/// What the client may do, and where its message goes.
fn invite(options: &Options, station: &Station) -> anyhow::Result<Invitation> {
    let mode = options.mode()?;
    let receive = match options.fault {
        // The mistake: a SEND needs a receive at the other end, and there is none.
        Some(Fault::Recv) => None,
        _ => (mode == Mode::Send).then(|| station.memory.all()),
    };
    Ok(Invitation {
        port: options.port,
        plan: Plan::new(mode, options.fault),
        memory: (station.memory.remote(0), ROOM),
        receive,
    })
}

/// What the device says about itself when no work request can carry the news.
fn in_words(event: AsyncEvent) -> String {
    match event {
        AsyncEvent::AccessError(number) => format!(
            "a peer wanted memory that it may not touch, queue pair {:#x} is in error",
            number.value()
        ),
        other => format!("{other:?}"),
    }
}

fn say_hello(options: &Options, server: IpAddr) -> anyhow::Result<()> {
    let mode = options.mode()?;
    let station = Station::new(options, "rc_test-client.pcapng", Access::LOCAL_WRITE)?;
    let plan = Plan::new(mode, options.fault);
    let address = (server, options.port).into();
    let mut link = match options.cm {
        true => Link::connect_by_cm(&station.context, station.queue_pair, address, &plan)?,
        false => Link::connect_by_tcp(station.queue_pair, address, &plan)?,
    };

    station.memory.write(0, MESSAGE.as_bytes());
    let words = station.memory.slice(0..MESSAGE.len());
    let request = match mode {
        Mode::Send => Request::send(),
        Mode::Write => Request::write(target(&link, options.fault)),
    };
    println!("client  posts \"{MESSAGE}\": {}", mode.on_the_wire());
    link.queue_pair().post(request.data(words).id(1))?;
    let completion = completed(&station.completions)?;
    link.end()?;
    judge(&completion, options.fault)?;
    point_to_capture(&station.context);
    Ok(())
}

/// Where the server's buffer is, or what a careless client takes for it.
fn target(link: &Link, fault: Option<Fault>) -> Remote {
    let (buffer, length) = link.memory();
    match fault {
        // The mistake: a key that nobody gave us.
        Some(Fault::Rkey) => Remote {
            key: Key::new(buffer.key.value() ^ 0x5a5a_5a5a),
            ..buffer
        },
        // The mistake: the text begins inside of the buffer and ends outside.
        Some(Fault::Addr) => Remote {
            address: buffer.address + length as u64 - 8,
            ..buffer
        },
        _ => buffer,
    }
}

/// Says how the request ended. A failure that was asked for is what this program is for.
fn judge(completion: &Completion, fault: Option<Fault>) -> anyhow::Result<()> {
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
            "--break should have ended with {:?}: does the server have it too?",
            fault.expected()
        );
    }
    println!("\n{}", fault.seen_by_the_client());
    Ok(())
}
