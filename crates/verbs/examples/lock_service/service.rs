//! A lock and a counter in the memory of two servers, and clients that add 1 to the counter while they have the lock.
//!
//! All accesses are one-sided: the servers only register memory and accept connections.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rocinante::{
    Access, Connection, Connector, Listener, MemoryRegion, Outstanding, RemoteMemory, Requests,
};

pub(crate) type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// The size of the lock and of the counter.
const WORD: usize = 8;

/// How the error begins if the counter is wrong.
pub(crate) const LOST: &str = "an addition is lost";

/// The value of a free lock.
const FREE: u64 = 0;

/// When a client gives the lock back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Release {
    /// As soon as the WRITE of the counter is posted. This saves a round trip. It looks right, because the WRITE leaves
    /// first. But it goes to another server, and nothing orders the two.
    AfterPost,
    /// When the WRITE of the counter is complete.
    AfterCompletion,
}

/// What a client does.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Job {
    /// The address of the client itself.
    pub(crate) own: SocketAddr,
    /// The server of the lock.
    pub(crate) locks: SocketAddr,
    /// The server of the counter.
    pub(crate) storage: SocketAddr,
    /// Its name in the lock.
    pub(crate) name: u64,
    /// How often it adds 1.
    pub(crate) rounds: u64,
    pub(crate) release: Release,
}

/// Offers one word of memory to a number of clients, until all of them have disconnected.
pub(crate) async fn serve(listener: Listener, clients: usize) -> Outcome {
    let mut request = listener.next().await;
    let domain = request.context().allocate_protection_domain()?;
    let access = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
    let word = domain.allocate_memory(WORD, access | Access::REMOTE_ATOMIC)?;
    let mut connections = Vec::new();
    for number in 1..=clients {
        let prepared = request.prepare(domain.requests_builder())?;
        let place = word.remote(0).to_string();
        // A client may have done its work and gone before its confirmation arrives. That is no error of the server.
        connections.extend(prepared.accept_async(place.as_bytes()).await.ok());
        if number == clients {
            break;
        }
        request = listener.next().await;
    }
    for connection in &connections {
        connection.disconnected().await;
    }
    Ok(())
}

/// Adds 1 to the counter a number of times. The last of all clients checks the sum: `done` counts what all of them have added,
/// up to `total`.
///
/// # Errors
/// Also if the sum is wrong.
pub(crate) async fn add(job: Job, done: &AtomicU64, total: u64) -> Outcome {
    let lock = Word::connect(job.own, job.locks).await?;
    let counter = Word::connect(job.own, job.storage).await?;
    for _ in 0..job.rounds {
        while lock.compare_and_swap(FREE, job.name).await? != FREE {}
        let value = counter.read().await?;
        let written = counter.write(value + 1);
        if job.release == Release::AfterCompletion {
            written.await?;
            lock.write(FREE).await?;
        } else {
            lock.write(FREE).await?;
            written.await?;
        }
    }
    if done.fetch_add(job.rounds, Ordering::SeqCst) + job.rounds == total {
        let sum = counter.read().await?;
        if sum != total {
            return Err(format!("{LOST}: the sum is {sum} instead of {total}").into());
        }
    }
    Ok(())
}

/// A word in the memory of a server, and the connection to it.
struct Word {
    connection: Connection<Requests>,
    place: RemoteMemory,
    local: MemoryRegion,
}

impl Word {
    async fn connect(own: SocketAddr, server: SocketAddr) -> Outcome<Self> {
        let connector = Connector::resolve_from_async(own, server).await?;
        // A server accepts one client after the other, and a lost confirmation is repeated after four seconds.
        let connector = connector.timeout(Duration::from_secs(30));
        let domain = connector.context().allocate_protection_domain()?;
        let local = domain.allocate_memory(WORD, Access::LOCAL_WRITE)?;
        let prepared = connector.prepare(domain.requests_builder())?;
        let connection = prepared.connect_async(b"").await?;
        let place = std::str::from_utf8(connection.private_data())?;
        let place = place.trim_end_matches('\0').parse()?;
        Ok(Self {
            connection,
            place,
            local,
        })
    }

    fn compare_and_swap(&self, expected: u64, new: u64) -> Outstanding<u64> {
        self.connection.compare_and_swap(self.place, expected, new)
    }

    async fn read(&self) -> Outcome<u64> {
        self.connection.read(self.place, self.local.all()).await?;
        let bytes = self.local.to_vec(..);
        Ok(u64::from_ne_bytes(bytes.try_into().expect("eight bytes")))
    }

    fn write(&self, value: u64) -> Outstanding<()> {
        self.connection.write(&value.to_ne_bytes(), self.place)
    }
}
