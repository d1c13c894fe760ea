//! Programs that several tests run on their hosts.

use rocinante::sim::Host;
use rocinante::{
    Access, CompletionQueue, Connection, ConnectionRequest, Connector, Key, Listener, MemoryRegion,
    ProtectionDomain, RemoteMemory, Request,
};

pub(crate) type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

/// The port of all servers.
pub(crate) const PORT: u16 = 7471;

/// The size of a message.
const SIZE: usize = 64;

/// A connection, its completions, and memory that the peer can write.
pub(crate) struct End {
    pub(crate) connection: Connection,
    pub(crate) completions: CompletionQueue,
    pub(crate) memory: MemoryRegion,
}

fn access() -> Access {
    Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC
}

/// Connects to the server, with one receive posted.
pub(crate) async fn connect(host: &Host, server: &str) -> Outcome<End> {
    let connector = Connector::resolve_async(host.address_of(server, PORT)).await?;
    let domain = connector.context().allocate_protection_domain()?;
    let completions = connector.context().create_completion_queue(64)?;
    let memory = domain.allocate_memory(4096, access())?;
    let prepared = connector.prepare(domain.queue_pair_builder(&completions))?;
    prepared.post_receive(1, [memory.slice(..SIZE)])?;
    let connection = prepared.connect_async(b"").await?;
    Ok(End {
        connection,
        completions,
        memory,
    })
}

/// Accepts one client, with one receive posted.
pub(crate) async fn accept(listener: &Listener) -> Outcome<End> {
    let request = listener.next().await;
    let domain = request.context().allocate_protection_domain()?;
    answer(request, &domain).await
}

/// Accepts a client, with one receive posted.
pub(crate) async fn answer(request: ConnectionRequest, domain: &ProtectionDomain) -> Outcome<End> {
    let completions = request.context().create_completion_queue(64)?;
    let memory = domain.allocate_memory(4096, access())?;
    let prepared = request.prepare(domain.queue_pair_builder(&completions))?;
    prepared.post_receive(1, [memory.slice(..SIZE)])?;
    let connection = prepared.accept_async(b"").await?;
    Ok(End {
        connection,
        completions,
        memory,
    })
}

/// Returns each message to its sender, until the client disconnects; then serves the next client.
pub(crate) async fn echo_server(host: Host) -> Outcome {
    let listener = Listener::bind(host.address_of(host.name(), PORT))?;
    loop {
        let end = accept(&listener).await?;
        loop {
            let received = end.completions.next().await;
            if received.into_result().is_err() {
                break;
            }
            let room = end.memory.slice(..SIZE);
            let request = Request::send().data(room).id(2);
            end.connection.post_send(request)?;
            if end.completions.next().await.into_result().is_err() {
                break;
            }
            end.connection.post_receive(1, [room])?;
        }
    }
}

/// Sends messages, and compares what comes back.
pub(crate) async fn client(host: Host, rounds: u8) -> Outcome {
    let end = connect(&host, "server").await?;
    for round in 0..rounds {
        let message = [round; SIZE];
        end.connection
            .post_send(Request::send().inline(&message).id(2))?;
        for _ in 0..2 {
            end.completions.next().await.into_result()?;
        }
        assert_eq!(end.memory.to_vec(..SIZE), message);
        end.connection.post_receive(1, [end.memory.slice(..SIZE)])?;
    }
    Ok(())
}

/// Adds 1 to the counter whose place the server tells, with a READ and a WRITE.
pub(crate) async fn add_one(host: &Host) -> Outcome {
    let end = connect(host, "server").await?;
    end.completions.next().await.into_result()?;
    let word = |at: usize| {
        let bytes = end.memory.to_vec(at..at + 8);
        u64::from_be_bytes(bytes.try_into().expect("eight bytes"))
    };
    let counter = RemoteMemory {
        address: word(0),
        key: Key::new(word(8) as u32),
    };
    let value = end.memory.slice(128..136);
    end.connection
        .post_send(Request::read(counter).data(value).id(2))?;
    end.completions.next().await.into_result()?;
    let read = end.memory.to_vec(128..136).try_into().expect("eight bytes");
    end.memory
        .write(128, &(u64::from_le_bytes(read) + 1).to_le_bytes());
    end.connection
        .post_send(Request::write(counter).data(value).id(2))?;
    end.completions.next().await.into_result()?;
    end.connection
        .post_send(Request::send().inline(b"done").id(2))?;
    end.completions.next().await.into_result()?;
    Ok(())
}
