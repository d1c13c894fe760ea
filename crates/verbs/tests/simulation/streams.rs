//! Byte streams on simulated hosts: what is written is read, and no task waits for ever.

use std::cell::Cell;
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::rc::Rc;
use std::time::Duration;

use rocinante::sim::{Host, Simulation};
use rocinante::{Connector, Listener, Stream, StreamOptions};

use super::programs::{Outcome, PORT};

/// How many bytes each side writes.
const TOTAL: u64 = 5000;

/// How long each side stays when it is done. One that goes before its last acknowledgement has arrived leaves the other in doubt.
const GOODBYE: Duration = Duration::from_secs(10);

async fn read(stream: &Stream, into: &mut [u8]) -> io::Result<usize> {
    poll_fn(|task| stream.poll_read(task, into)).await
}

async fn write(stream: &Stream, from: &[u8]) -> io::Result<usize> {
    poll_fn(|task| stream.poll_write(task, from)).await
}

async fn finish(stream: &Stream) -> io::Result<()> {
    poll_fn(|task| stream.poll_finish(task)).await
}

/// The byte of the stream at a place.
fn byte(at: u64) -> u8 {
    ((at * 31) >> 3) as u8 ^ at as u8
}

/// Few and small buffers, so that each side often waits for the other.
fn options(host: &Host) -> StreamOptions {
    let count = 1 + host.random_below(4) as u16;
    StreamOptions::default().buffers(count, 64 + host.random_below(100) as u32)
}

/// Stops for a while, or not.
async fn pause(host: &Host) {
    let microseconds = host.random_below(400);
    if microseconds < 100 {
        host.sleep(Duration::from_micros(microseconds)).await;
    }
}

/// Writes all bytes in parts of any size, and ends its direction.
async fn write_all(host: &Host, stream: &Stream) -> Outcome {
    let mut at = 0;
    while at < TOTAL {
        let end = TOTAL.min(at + 1 + host.random_below(300));
        let part: Vec<u8> = (at..end).map(byte).collect();
        at += write(stream, &part).await? as u64;
        pause(host).await;
    }
    finish(stream).await?;
    let late = write(stream, b"late").await.expect_err("it is finished");
    assert_eq!(late.kind(), ErrorKind::BrokenPipe);
    Ok(())
}

/// Reads until the end, in parts of any size.
async fn read_all(host: &Host, stream: &Stream) -> Outcome {
    let mut at = 0;
    loop {
        let mut into = vec![0; 1 + host.random_below(300) as usize];
        let length = read(stream, &mut into).await?;
        if length == 0 {
            assert_eq!(at, TOTAL);
            return Ok(());
        }
        for read in &into[..length] {
            assert_eq!(*read, byte(at), "at {at}");
            at += 1;
        }
        pause(host).await;
    }
}

/// Both directions at once: in two tasks, or in one that polls both.
async fn exchange(host: &Host, stream: Stream) -> Outcome {
    let stream = Rc::new(stream);
    let (writer, wrote) = (Rc::clone(&stream), host.clone());
    let writing = async move { write_all(&wrote, &writer).await };
    if host.random_below(2) == 0 {
        let writing = host.spawn(async move { writing.await.map_err(|error| error.to_string()) });
        read_all(host, &stream).await?;
        writing.await?;
    } else {
        let (wrote, read) = tokio::join!(writing, read_all(host, &stream));
        wrote?;
        read?;
    }
    host.sleep(GOODBYE).await;
    Ok(())
}

async fn accept(host: &Host) -> Outcome<Stream> {
    let listener = Listener::bind(host.address_of(host.name(), PORT))?;
    Ok(options(host).accept_async(listener.next().await).await?)
}

async fn connect(host: &Host) -> Outcome<Stream> {
    let connector = Connector::resolve_async(host.address_of("server", PORT)).await?;
    // A lost confirmation is repeated after four seconds.
    let connector = connector.timeout(Duration::from_secs(30));
    Ok(options(host).connect_async(connector).await?)
}

#[rocinante::test(seeds = 300, faults = "loss=2%,dup=2%,reorder=3%")]
fn both_directions_of_a_stream_arrive_whole_and_end(simulation: Simulation) {
    async fn server(host: Host) -> Outcome {
        let stream = accept(&host).await?;
        exchange(&host, stream).await
    }
    async fn client(host: Host) -> Outcome {
        let stream = connect(&host).await?;
        exchange(&host, stream).await
    }
    let simulation = simulation.host("server", server);
    simulation.host("client", client).run();
}

/// Writes until the peer has no buffer left.
async fn fill(host: &Host, stream: &Stream) -> Outcome<u64> {
    let mut at = 0;
    loop {
        let part: Vec<u8> = (at..at + 40).map(byte).collect();
        let written = host.timeout(Duration::from_secs(5), write(stream, &part));
        match written.await {
            Some(written) => at += written? as u64,
            None => return Ok(at),
        }
        assert!(at < TOTAL, "nobody reads");
    }
}

/// As with TCP: both block, and go on when one of them reads.
#[rocinante::test(seeds = 100, faults = "loss=2%,dup=2%,reorder=3%")]
fn both_sides_may_write_without_reading(simulation: Simulation) {
    async fn side(host: Host, stream: Stream) -> Outcome {
        let full = fill(&host, &stream).await?;
        // Until both are full.
        host.sleep(Duration::from_secs(60).saturating_sub(host.elapsed()))
            .await;
        let stream = Rc::new(stream);
        let (writer, own) = (Rc::clone(&stream), host.clone());
        let writing = host.spawn(async move {
            let mut at = full;
            while at < TOTAL {
                let part: Vec<u8> = (at..TOTAL).map(byte).collect();
                at += write(&writer, &part).await.expect("a peer") as u64;
                pause(&own).await;
            }
            finish(&writer).await.expect("a peer");
        });
        // One of them begins to read later.
        if host.name() == "server" {
            host.sleep(Duration::from_secs(20)).await;
        }
        read_all(&host, &stream).await?;
        writing.await;
        host.sleep(GOODBYE).await;
        Ok(())
    }
    let simulation = simulation.limit(Duration::from_secs(300));
    let simulation = simulation.host("server", |host| async move {
        let stream = accept(&host).await?;
        side(host, stream).await
    });
    simulation
        .host("client", |host| async move {
            let stream = connect(&host).await?;
            side(host, stream).await
        })
        .run();
}

/// What has arrived is read before the error.
#[rocinante::test(seeds = 50, faults = "loss=2%")]
fn a_host_that_crashes_breaks_its_stream(simulation: Simulation) {
    let has_failed = Rc::new(Cell::new(false));
    let seen = Rc::clone(&has_failed);
    simulation
        .service("server", |host| async move {
            let stream = accept(&host).await?;
            write(&stream, &byte(0).to_ne_bytes()).await?;
            std::future::pending::<Outcome>().await
        })
        .host("client", move |host| {
            let has_failed = Rc::clone(&has_failed);
            async move {
                let stream = connect(&host).await?;
                let mut into = [0; 8];
                assert_eq!(read(&stream, &mut into).await?, 1);
                host.control().crash("server");
                let error = loop {
                    // The writer finds out by its retries.
                    if let Err(error) = write(&stream, b"are you there?").await {
                        break error;
                    }
                };
                assert_eq!(error.kind(), ErrorKind::BrokenPipe, "{error}");
                let error = read(&stream, &mut into).await.expect_err("it broke");
                assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
                let error = finish(&stream).await.expect_err("it broke");
                assert_eq!(error.kind(), ErrorKind::BrokenPipe, "{error}");
                has_failed.set(true);
                Outcome::Ok(())
            }
        })
        .limit(Duration::from_secs(300))
        .run();
    assert!(seen.get());
}

/// What a stream has acknowledged before it is dropped is not lost.
#[rocinante::test(seeds = 200, faults = "loss=3%,dup=2%,reorder=5%")]
fn a_peer_that_finishes_and_goes_loses_nothing(simulation: Simulation) {
    async fn server(host: Host) -> Outcome {
        let stream = accept(&host).await?;
        let mut question = Vec::new();
        while !question.ends_with(b"?") {
            let mut into = [0; 8];
            let length = read(&stream, &mut into).await?;
            question.extend_from_slice(&into[..length]);
        }
        let answer = vec![b'!'; 300];
        let mut rest = &answer[..];
        while !rest.is_empty() {
            rest = &rest[write(&stream, rest).await?..];
        }
        finish(&stream).await?;
        drop(stream);
        // The device answers the client until it has all.
        host.sleep(Duration::from_secs(10)).await;
        Ok(())
    }
    async fn client(host: Host) -> Outcome {
        let stream = connect(&host).await?;
        let mut rest = &b"who is there?"[..];
        while !rest.is_empty() {
            rest = &rest[write(&stream, rest).await?..];
        }
        let mut answer = 0;
        loop {
            let mut into = [0; 50];
            match read(&stream, &mut into).await? {
                0 => break,
                length => answer += length,
            }
            pause(&host).await;
        }
        assert_eq!(answer, 300);
        // As with TCP, a client that has everything may still end its direction.
        Ok(finish(&stream).await?)
    }
    let simulation = simulation.host("server", server);
    simulation.host("client", client).run();
}
