//! A future for each request, on simulated hosts.

use std::time::Duration;

use rocinante::sim::{Host, Simulation};
use rocinante::{Access, Connector, Listener, RequestError};

use super::programs::{Outcome, PORT};

const ROUNDS: u64 = 20;

/// How long the server is silent before each reply.
const SILENCE: Duration = Duration::from_millis(30);

/// Adds 1 to each number, and sends it back.
async fn server(host: Host) -> Outcome {
    let listener = Listener::bind(host.address_of(host.name(), PORT))?;
    let request = listener.next().await;
    let domain = request.context().allocate_protection_domain()?;
    let memory = domain.allocate_memory(8, Access::LOCAL_WRITE)?;
    let prepared = request.prepare(domain.requests_builder())?;
    let mut message = prepared.receive(memory.all());
    let connection = prepared.accept_async(b"").await?;
    loop {
        if message.await.is_err() {
            return Ok(());
        }
        let number = u64::from_be_bytes(memory.to_vec(..).try_into().expect("eight bytes"));
        message = connection.receive(memory.all());
        host.sleep(SILENCE).await;
        connection.send(&(number + 1).to_be_bytes()).await?;
    }
}

async fn client(host: Host) -> Outcome {
    let connector = Connector::resolve_async(host.address_of("server", PORT)).await?;
    let domain = connector.context().allocate_protection_domain()?;
    let memory = domain.allocate_memory(8, Access::LOCAL_WRITE)?;
    let prepared = connector.prepare(domain.requests_builder().depth(2, 2))?;
    let connection = prepared.connect_async(b"").await?;
    for round in 0..ROUNDS {
        let begin = host.elapsed();
        let late = connection.receive(memory.all()).within(SILENCE / 2);
        assert_eq!(late.await, Err(RequestError::TimedOut));
        assert!(host.elapsed() - begin >= SILENCE / 2);
        // The receive that timed out is still there, and takes the first reply.
        let reply = connection.receive(memory.all());
        connection.send(&round.to_be_bytes()).await?;
        connection.send(&round.to_be_bytes()).await?;
        reply.within(Duration::from_secs(30)).await?;
        assert_eq!(memory.to_vec(..), (round + 1).to_be_bytes());
    }
    Ok(())
}

#[rocinante::test(seeds = 100, faults = "loss=2%,dup=2%,reorder=2%")]
fn requests_are_awaited_and_time_out_in_virtual_time(simulation: Simulation) {
    simulation
        .service("server", server)
        .host("client", client)
        .run();
}
