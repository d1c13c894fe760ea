//! The blocking way: a thread for each end.
//!
//! `wait` looks for some microseconds by itself and then sleeps on the device's sockets, so that a
//! packet wakes the thread directly. The fastest of the three, as long as there are few ends.

use std::thread;

use examples::completed;

use crate::end::End;

pub(crate) fn echo(asker: &End, answerer: &End, rounds: u32) -> anyhow::Result<()> {
    thread::scope(|scope| {
        let answering = scope.spawn(|| answer(answerer, rounds));
        let asked = ask(asker, rounds);
        asked.and(answering.join().expect("no panic"))
    })
}

fn ask(end: &End, rounds: u32) -> anyhow::Result<()> {
    for round in 0..rounds {
        end.send(round)?;
        // Two things complete, in whatever order: our SEND, and the receive of what came back.
        for _ in 0..2 {
            end.take(&completed(&end.completions)?)?;
        }
        end.compare(round)?;
    }
    Ok(())
}

fn answer(end: &End, rounds: u32) -> anyhow::Result<()> {
    for _ in 0..2 * rounds {
        if end.take(&completed(&end.completions)?)? {
            end.send_back()?;
        }
    }
    Ok(())
}
