//! With blocking calls: one thread for each side.
//!
//! A wait polls for some microseconds and then sleeps on the device's sockets, so that a packet wakes
//! the thread directly. This is the fastest of the three for few connections.

use std::thread;

use examples::completed;

use crate::side::Side;

pub(crate) fn echo(client: &Side, server: &Side, rounds: u32) -> anyhow::Result<()> {
    thread::scope(|scope| {
        let server = scope.spawn(|| run_server(server, rounds));
        let client = run_client(client, rounds);
        client.and(server.join().expect("no panic"))
    })
}

fn run_client(side: &Side, rounds: u32) -> anyhow::Result<()> {
    for round in 0..rounds {
        side.send(round)?;
        // Two requests complete, in any order: the SEND, and the receive of the echo.
        for _ in 0..2 {
            side.take(&completed(&side.completions)?)?;
        }
        side.compare(round)?;
    }
    Ok(())
}

fn run_server(side: &Side, rounds: u32) -> anyhow::Result<()> {
    for _ in 0..2 * rounds {
        if side.take(&completed(&side.completions)?)? {
            side.send_back()?;
        }
    }
    Ok(())
}
