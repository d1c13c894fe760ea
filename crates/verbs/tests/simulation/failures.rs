//! What fails a run, and what its message says.

use std::time::Duration;

use rocinante::sim::{Cause, Host, Seeds, Simulation};
use rocinante::{CheckOptions, Listener, Request};

use crate::programs::{Outcome, PORT, accept, client, connect, echo_server};
use crate::{MILLISECOND, echo};

/// The message of a simulation that fails.
fn message(simulation: Simulation) -> String {
    simulation.try_run().expect_err("it fails").to_string()
}

/// The message of a host whose program fails.
fn message_of<F>(program: fn(Host) -> F) -> String
where
    F: Future<Output = ()> + 'static,
{
    message(Simulation::with_seed(4).host("only", program))
}

#[test]
fn a_panic_names_seed_host_and_message() {
    let failure = Simulation::with_seed(9)
        .host("calm", |host| async move { host.sleep(MILLISECOND).await })
        .host("nervous", |host| async move {
            assert!(host.name() != "nervous", "no reason");
        })
        .try_run()
        .expect_err("it fails");
    assert_eq!(failure.seed, 9);
    let expected = Cause::Panic {
        host: "nervous".to_owned(),
        message: "no reason".to_owned(),
    };
    assert_eq!(failure.cause, expected);
    let text = failure.to_string();
    assert!(
        text.contains("seed 9") && text.contains("`nervous` panicked: no reason"),
        "{text}"
    );
}

#[test]
fn an_error_of_a_program_fails_the_run() {
    let simulation = Simulation::with_seed(1).host("client", |host| client(host, 1));
    let text = message(simulation.host("server", |_| async {}));
    assert!(text.contains("host `client` returned an error"), "{text}");
}

#[test]
fn a_hang_says_who_waits_for_what() {
    async fn silent(host: Host) -> Outcome {
        let listener = Listener::bind(host.address_of("server", PORT))?;
        let end = accept(&listener).await?;
        end.connection.disconnected().await;
        Ok(())
    }
    async fn waits(host: Host) -> Outcome {
        let end = connect(&host, "server").await?;
        end.completions.next().await.into_result()?;
        Ok(())
    }
    let simulation = Simulation::with_seed(1).service("server", silent);
    let failure = simulation
        .host("client", waits)
        .try_run()
        .expect_err("it hangs");
    let Cause::Hang(waiting) = &failure.cause else {
        panic!("{failure}");
    };
    let of = |host: &str| {
        let task = waiting.iter().find(|task| task.host == host).expect(host);
        task.waits_for.join(", ")
    };
    assert!(
        of("client").contains("a completion of completion queue"),
        "{failure}"
    );
    assert!(
        of("server").contains("an event of the connection manager"),
        "{failure}"
    );
    assert_eq!(
        waiting[0].host, "client",
        "the host that must end comes first"
    );
}

/// The server never posts a second receive, so the client's message is retried without end.
#[test]
fn a_run_that_does_not_end_is_stopped_at_its_limit() {
    async fn no_receive(host: Host) -> Outcome {
        let listener = Listener::bind(host.address_of("server", PORT))?;
        let end = accept(&listener).await?;
        end.connection.disconnected().await;
        Ok(())
    }
    async fn sends_two(host: Host) -> Outcome {
        let end = connect(&host, "server").await?;
        for _ in 0..2 {
            end.connection.post_send(Request::send().inline(b"x"))?;
            end.completions.next().await.into_result()?;
        }
        Ok(())
    }
    let simulation = Simulation::with_seed(1).limit(Duration::from_secs(1));
    let simulation = simulation
        .service("server", no_receive)
        .host("client", sends_two)
        .host("sleeper", |host| async move {
            host.sleep(Duration::from_secs(3600)).await;
        });
    let failure = simulation.try_run().expect_err("it does not end");
    assert!(matches!(failure.cause, Cause::TooLong { .. }), "{failure}");
    for waits in [
        "host `client` waits for a completion",
        "host `sleeper` waits for the time ",
    ] {
        assert!(failure.to_string().contains(waits), "{failure}");
    }
}

#[test]
fn calls_that_block_say_which_form_to_use() {
    let completion = message_of(|host| async move {
        let completions = host.open().expect("a device").create_completion_queue(4);
        let _ = completions.expect("room").wait();
    });
    let request = message_of(|host| async move {
        let listener = Listener::bind(host.address_of("only", PORT)).expect("a port");
        let _ = listener.wait();
    });
    let event = message_of(|host| async move {
        let _ = host.open().expect("a device").wait_event(MILLISECOND);
    });
    for text in [completion, request, event] {
        assert!(text.contains("use the async form"), "{text}");
    }
}

#[test]
fn polling_without_waiting_says_so() {
    let queue = message_of(|host| async move {
        let completions = host.open().expect("a device").create_completion_queue(4);
        let completions = completions.expect("room");
        while completions.poll().is_none() {}
    });
    let memory = message_of(|host| async move {
        let domain = host.open().expect("a device").allocate_protection_domain();
        let memory = domain
            .expect("room")
            .allocate_memory(8, rocinante::Access::LOCAL_WRITE);
        let memory = memory.expect("room");
        while memory.to_vec(..)[0] == 0 {}
    });
    for text in [queue, memory] {
        assert!(text.contains("the program polls in a loop"), "{text}");
    }
}

#[test]
fn an_unknown_host_is_named_with_those_there_are() {
    let text = message_of(|host| async move {
        let _ = host.address_of("srever", PORT);
    });
    assert!(text.contains("no host `srever`, only: only"), "{text}");
}

#[test]
fn faults_that_cannot_be_parsed_fail_the_run() {
    let text = message(echo(Simulation::with_seed(1).faults("loss=much")));
    assert!(text.contains("much"), "{text}");
}

/// The buffer of a SEND changes while the request is outstanding.
#[test]
fn the_check_of_programs_fails_a_run() {
    async fn changes_its_buffer(host: Host) -> Outcome {
        let end = connect(&host, "server").await?;
        end.connection
            .post_send(Request::send().data(end.memory.slice(100..164)).id(2))?;
        end.memory.write(100, b"changed");
        for _ in 0..2 {
            end.completions.next().await.into_result()?;
        }
        Ok(())
    }
    let run = |simulation: Simulation| {
        let simulation = simulation.service("server", echo_server);
        simulation.host("client", changes_its_buffer)
    };
    let wrong = || run(Simulation::with_seed(1));
    wrong().run();
    let failure = wrong()
        .check(CheckOptions::default())
        .try_run()
        .expect_err("a finding");
    assert!(matches!(failure.cause, Cause::Findings(_)), "{failure}");
    assert!(failure.to_string().contains("changed"), "{failure}");
    let test = |simulation| {
        run(simulation).run();
    };
    let fails = |seeds: Seeds| seeds.find(test).is_some();
    assert!(fails(Seeds::new(1).check()));
    assert!(!fails(Seeds::new(1)));
    echo(Simulation::with_seed(1))
        .check(CheckOptions::default())
        .run();
}
