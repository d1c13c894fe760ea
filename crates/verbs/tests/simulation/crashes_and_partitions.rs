//! Crashes, restarts and partitions.

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use rocinante::sim::{Host, Simulation};
use rocinante::{Listener, Request, ShutdownError, Status};

use crate::programs::{Outcome, PORT, accept, client, connect, echo_server};
use crate::{MILLISECOND, echo};

/// Sends messages until one fails. Returns its status.
async fn send_until_failure(host: &Host) -> Outcome<Status> {
    let end = connect(host, "server").await?;
    loop {
        host.sleep(MILLISECOND).await;
        end.connection
            .post_send(Request::send().inline(&[0; 64]).id(2))?;
        for _ in 0..2 {
            let completion = end.completions.next().await;
            if completion.status != Status::Success {
                return Ok(completion.status);
            }
        }
        end.connection.post_receive(1, [end.memory.slice(..64)])?;
    }
}

#[test]
fn a_crash_is_silent_and_peers_find_out_by_their_retries() {
    let (status, when) = (Rc::new(Cell::new(None)), Rc::new(Cell::new(Duration::ZERO)));
    let seen = (Rc::clone(&status), Rc::clone(&when));
    let simulation = Simulation::with_seed(2).service("server", echo_server);
    simulation
        .host("client", move |host| {
            let (status, when) = seen.clone();
            async move {
                status.set(Some(send_until_failure(&host).await.expect("a connection")));
                when.set(host.elapsed());
            }
        })
        .at(50 * MILLISECOND, |control| control.crash("server"))
        .run();
    assert_eq!(
        status.get(),
        Some(Status::RetriesExhausted),
        "no disconnect was sent"
    );
    assert!(
        when.get() > Duration::from_secs(1),
        "after {:?}",
        when.get()
    );
}

#[test]
fn a_shutdown_says_that_the_peer_never_confirmed_it() {
    async fn server(host: Host) -> Outcome {
        let listener = Listener::bind(host.address_of("server", PORT))?;
        let _end = accept(&listener).await?;
        std::future::pending().await
    }
    let ended = Rc::new(Cell::new(false));
    let seen = Rc::clone(&ended);
    Simulation::with_seed(2)
        .limit(Duration::from_secs(7200))
        .service("server", server)
        .host("client", move |host| {
            let seen = Rc::clone(&seen);
            async move {
                let end = connect(&host, "server").await.expect("a connection");
                host.sleep(100 * MILLISECOND).await;
                // The connection manager gives up some time.
                let result = end.connection.shutdown_async(Duration::MAX).await;
                assert!(
                    matches!(result, Err(ShutdownError::Unconfirmed)),
                    "{result:?}"
                );
                seen.set(true);
            }
        })
        .at(50 * MILLISECOND, |control| {
            control.partition("client", "server");
        })
        .run();
    assert!(ended.get());
}

#[test]
fn a_program_that_ends_disconnects_its_peers() {
    async fn serves_once(host: Host) -> Outcome {
        let listener = Listener::bind(host.address_of("server", PORT))?;
        let _end = accept(&listener).await?;
        host.sleep(20 * MILLISECOND).await;
        Ok(())
    }
    let simulation = Simulation::with_seed(2).host("server", serves_once);
    let report = simulation
        .host("client", |host| async move {
            let end = connect(&host, "server").await.expect("a connection");
            end.connection.disconnected().await;
        })
        .run();
    assert!(report.elapsed < 100 * MILLISECOND, "{report:?}");
}

/// A task owns its host, which knows all tasks: without an end, none of them would be dropped.
#[test]
fn tasks_that_are_left_at_the_end_of_a_run_are_dropped() {
    let owned = Rc::new(());
    let shared = Rc::clone(&owned);
    let never_ends = move |host: Host| {
        let owned = (host, Rc::clone(&shared));
        async move {
            let _owned = owned;
            std::future::pending::<()>().await;
        }
    };
    Simulation::with_seed(2)
        .service("server", never_ends)
        .host(
            "client",
            |host| async move { host.sleep(MILLISECOND).await },
        )
        .run();
    assert_eq!(Rc::strong_count(&owned), 1);
}

/// Notes at which host its destructor runs.
struct Owned(Rc<RefCell<Vec<IpAddr>>>);

impl Drop for Owned {
    fn drop(&mut self) {
        let devices = rocinante::devices().expect("a list");
        let addresses = devices.iter().flat_map(|device| &device.gids);
        self.0.borrow_mut().extend(addresses.map(|it| it.address));
    }
}

/// A host ends by a crash, by a restart, by the end of its program, or with the run.
#[test]
fn what_tasks_own_is_dropped_at_their_host_however_it_ends() {
    let seen = Rc::new(RefCell::new(Vec::new()));
    let never_ends = |owned: Owned| async move {
        let _owned = owned;
        std::future::pending::<()>().await;
    };
    let owns = || {
        let seen = Rc::clone(&seen);
        move |_: Host| never_ends(Owned(Rc::clone(&seen)))
    };
    let ends = {
        let seen = Rc::clone(&seen);
        move |host: Host| {
            host.spawn(never_ends(Owned(Rc::clone(&seen))));
            async move { host.sleep(5 * MILLISECOND).await }
        }
    };
    Simulation::with_seed(2)
        .service("crashes", owns())
        .service("restarts", owns())
        .host("ends", ends)
        .service("stays", owns())
        .at(MILLISECOND, |control| control.crash("crashes"))
        .at(2 * MILLISECOND, |control| control.restart("restarts"))
        .run();
    // The second program of the host that restarts ends with the run.
    let expected = [1, 2, 3, 2, 4].map(|last| IpAddr::from([10, 0, 0, last]));
    assert_eq!(*seen.borrow(), expected);
}

/// The RTU is lost, and the client ends the connection before the server repeats its reply.
#[test]
fn accept_returns_a_connection_that_the_client_has_already_ended() {
    async fn serves_once(host: Host) -> Outcome {
        let listener = Listener::bind(host.address_of("server", PORT))?;
        let end = accept(&listener).await?;
        end.connection.disconnected().await;
        assert_eq!(end.completions.next().await.into_result()?.length, 5);
        Ok(())
    }
    let simulation = Simulation::with_seed(2).faults("drop:cm=RTU");
    simulation
        .host("server", serves_once)
        .host("client", |host| async move {
            let end = connect(&host, "server").await.expect("a connection");
            let post = end
                .connection
                .post_send(Request::send().inline(b"hello").id(2));
            post.expect("room");
            let sent = end.completions.next().await;
            assert_eq!(sent.status, Status::Success);
        })
        .run();
}

#[test]
fn lost_disconnect_of_a_dropped_connection_is_repeated() {
    async fn serves_once(host: Host) -> Outcome {
        let listener = Listener::bind(host.address_of("server", PORT))?;
        let end = accept(&listener).await?;
        end.connection.disconnected().await;
        Ok(())
    }
    let simulation = Simulation::with_seed(2).faults("drop:cm=DREQ,nth=1");
    let report = simulation
        .host("server", serves_once)
        .host("client", |host| async move {
            let end = connect(&host, "server").await.expect("a connection");
            // The memory keeps the device open.
            drop(end.connection);
            host.sleep(Duration::from_secs(5)).await;
            drop(end.memory);
        })
        .run();
    assert!(report.elapsed < Duration::from_secs(6), "{report:?}");
}

#[test]
fn a_restarted_host_begins_again_and_keeps_only_what_lives_outside() {
    let starts = Rc::new(Cell::new(0));
    let counted = Rc::clone(&starts);
    let server = move |host: Host| {
        counted.set(counted.get() + 1);
        echo_server(host)
    };
    let simulation = Simulation::with_seed(6).service("server", server);
    simulation
        .host("client", |host| async move {
            send_until_failure(&host).await.expect("a connection");
            // The same port, and other queue pair numbers.
            client(host, 5).await.expect("the server is back");
        })
        .at(50 * MILLISECOND, |control| control.crash("server"))
        .at(60 * MILLISECOND, |control| control.restart("server"))
        .run();
    assert_eq!(starts.get(), 2);
}

#[test]
fn a_partition_loses_packets_until_it_heals() {
    let elapsed = |from: u64, until: u64| {
        let simulation = echo(Simulation::with_seed(3));
        simulation
            .at(Duration::from_micros(from), |control| {
                control.partition("client", "server");
            })
            .at(Duration::from_millis(until), |control| {
                control.heal("server", "client");
            })
            .run()
            .elapsed
    };
    let cut = elapsed(0, 500);
    assert!(cut > 500 * MILLISECOND, "{cut:?}");
    let report = echo(Simulation::with_seed(3)).run();
    assert!(report.elapsed < 100 * MILLISECOND, "{report:?}");
}

#[test]
fn a_partition_that_stays_makes_the_server_unreachable() {
    let simulation = echo(Simulation::with_seed(3));
    let failure = simulation
        .at(Duration::ZERO, |control| {
            control.partition("client", "server");
        })
        .try_run()
        .expect_err("no server");
    assert!(failure.to_string().contains("does not answer"), "{failure}");
}

#[test]
fn a_host_can_cause_trouble_itself() {
    let simulation = Simulation::with_seed(6).service("server", echo_server);
    simulation
        .host("client", |host| async move {
            send_until_failure(&host).await.expect("a connection");
        })
        .host("trouble", |host| async move {
            let wait = host.random_below(50_000_000);
            host.sleep(Duration::from_nanos(wait) + 10 * MILLISECOND)
                .await;
            host.control().crash("server");
        })
        .run();
}

#[test]
fn the_fault_kill_crashes_the_host_and_not_this_process() {
    let simulation = Simulation::with_seed(1).faults("rx:kill:opcode=SEND_ONLY,nth=30");
    let failure = simulation
        .host("server", echo_server)
        .host("client", |host| client(host, 100))
        .try_run()
        .expect_err("one of them crashes, and the other one fails");
    assert!(
        failure.to_string().contains("returned an error"),
        "{failure}"
    );
}

#[test]
fn a_crash_of_the_last_host_ends_the_run() {
    let simulation = Simulation::with_seed(1).host("only", |host| async move {
        host.sleep(Duration::from_secs(50)).await;
    });
    let report = simulation
        .at(MILLISECOND, |control| control.crash("only"))
        .run();
    assert!(report.elapsed < 2 * MILLISECOND, "{report:?}");
}
