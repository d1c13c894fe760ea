//! Streams in tasks of tokio, with one thread and with several.

use std::net::SocketAddr;
use std::time::Duration;

use rocinante::{Connector, Listener, Stream, StreamOptions};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, copy_bidirectional, split};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use crate::{TIMEOUT, byte, bytes};

fn runtimes() -> [Runtime; 2] {
    let build = |mut builder: Builder| builder.enable_all().build().expect("a runtime");
    let mut several = Builder::new_multi_thread();
    several.worker_threads(4);
    [build(Builder::new_current_thread()), build(several)]
}

fn address(network: u8, host: u8) -> SocketAddr {
    SocketAddr::from(([127, 66, network, host], 0))
}

async fn connect(network: u8, server: SocketAddr, options: StreamOptions) -> Stream {
    let connector = Connector::resolve_from_async(address(network, 2), server);
    let connector = connector.await.expect("a route");
    options.connect_async(connector).await.expect("a server")
}

async fn pair(network: u8, options: StreamOptions) -> (Stream, Stream) {
    let listener = Listener::bind(address(network, 1)).expect("a loopback address");
    let server = listener.local_address();
    let accepting = async { options.accept_async(listener.next().await).await };
    let (client, server) = tokio::join!(connect(network, server, options), accepting);
    (client, server.expect("a client"))
}

/// Echoes all bytes of each client, with the functions of tokio.
async fn echo(listener: Listener, clients: usize) {
    let mut tasks = Vec::new();
    for _ in 0..clients {
        let request = listener.next().await;
        tasks.push(tokio::spawn(async move {
            let stream = Stream::accept_async(request).await.expect("a client");
            let (mut reader, mut writer) = split(stream);
            tokio::io::copy(&mut reader, &mut writer)
                .await
                .expect("a peer");
            writer.shutdown().await.expect("a peer");
        }));
    }
    for task in tasks {
        task.await.expect("no panic");
    }
}

async fn ask(server: SocketAddr, total: u64) {
    let options = StreamOptions::default().buffers(4, 1000);
    let stream = connect(51, server, options).await;
    let (mut reader, mut writer) = split(stream);
    let writing = tokio::spawn(async move {
        writer.write_all(&bytes(total)).await.expect("a peer");
        writer.shutdown().await.expect("a peer");
        writer
    });
    let mut read = Vec::new();
    reader.read_to_end(&mut read).await.expect("a peer");
    assert!(read == bytes(total));
    writing.await.expect("no panic");
}

#[test]
fn many_clients_are_echoed_on_both_kinds_of_tokio() {
    for runtime in runtimes() {
        let all = async {
            let listener = Listener::bind(address(51, 1)).expect("a loopback address");
            let server = listener.local_address();
            let echoing = tokio::spawn(echo(listener, 10));
            let clients: Vec<_> = (0..10)
                .map(|number| tokio::spawn(ask(server, 20_000 * number)))
                .collect();
            for client in clients {
                client.await.expect("no panic");
            }
            echoing.await.expect("no panic");
        };
        runtime.block_on(async { timeout(TIMEOUT, all).await.expect("it ends") });
    }
}

/// One task polls both directions of both ends, so each must wake it for the others.
#[test]
fn one_task_polls_both_directions() {
    const TOTAL: u64 = 100_000;
    for runtime in runtimes() {
        let all = async {
            let (client, server) = pair(52, StreamOptions::default().buffers(1, 200)).await;
            let one = |stream: Stream| async {
                let (mut reader, mut writer) = split(stream);
                let (mut read, written) = (Vec::new(), bytes(TOTAL));
                let writing = async {
                    writer.write_all(&written).await?;
                    writer.shutdown().await
                };
                let (wrote, got) = tokio::join!(writing, reader.read_to_end(&mut read));
                wrote.expect("a peer");
                got.expect("a peer");
                assert!(read == bytes(TOTAL));
                // Neither ends the connection before the other is done.
                reader.unsplit(writer)
            };
            drop(tokio::join!(one(client), one(server)));
        };
        runtime.block_on(async { timeout(TIMEOUT, all).await.expect("it ends") });
    }
}

#[test]
fn lines_and_a_tunnel_work_as_with_tcp() {
    for runtime in runtimes() {
        let all = async {
            let (mut near, mut tunnel) = pair(53, StreamOptions::default()).await;
            let (mut exit, mut far) = pair(54, StreamOptions::default()).await;
            let tunnelling = copy_bidirectional(&mut tunnel, &mut exit);
            let talking = async {
                for number in 0..100 {
                    let line = format!("line {number}\n");
                    near.write_all(line.as_bytes()).await.expect("a peer");
                    let mut arrived = String::new();
                    far.read_line(&mut arrived).await.expect("a peer");
                    assert_eq!(arrived, line);
                }
                near.shutdown().await.expect("a peer");
                let mut rest = Vec::new();
                far.read_to_end(&mut rest).await.expect("a peer");
                assert!(rest.is_empty());
                far.write_all(b"goodbye").await.expect("a peer");
                far.shutdown().await.expect("a peer");
                near.read_to_end(&mut rest).await.expect("a peer");
                assert_eq!(rest, b"goodbye");
            };
            let (tunnelled, ()) = tokio::join!(tunnelling, talking);
            assert_eq!(tunnelled.expect("two peers").1, 7);
        };
        runtime.block_on(async { timeout(TIMEOUT, all).await.expect("it ends") });
    }
}

/// A read that is cancelled has taken nothing.
#[test]
fn a_cancelled_read_loses_nothing() {
    const TOTAL: u64 = 2000;
    for runtime in runtimes() {
        let all = async {
            let (mut client, mut server) = pair(55, StreamOptions::default()).await;
            let writing = tokio::spawn(async move {
                for at in 0..TOTAL {
                    client.write_all(&[byte(at)]).await.expect("a peer");
                    if at % 50 == 0 {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                }
                client.shutdown().await.expect("a peer");
                client
            });
            let mut read = Vec::new();
            loop {
                let mut into = [0; 16];
                let limit = Duration::from_micros(300);
                match timeout(limit, server.read(&mut into)).await {
                    Err(_) => {}
                    Ok(Ok(0)) => break,
                    Ok(length) => read.extend_from_slice(&into[..length.expect("a peer")]),
                }
            }
            assert!(read == bytes(TOTAL));
            drop(writing.await.expect("no panic"));
        };
        runtime.block_on(async { timeout(TIMEOUT, all).await.expect("it ends") });
    }
}
