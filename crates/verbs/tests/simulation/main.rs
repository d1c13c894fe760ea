//! Programs on simulated hosts: what a seed decides, what fails a run, and what its message says.

mod crashes_and_partitions;
mod failures;
mod lock_service;
mod programs;
mod requests;
mod streams;

use std::cell::{Cell, RefCell};
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;

use programs::{Outcome, PORT, accept, answer, client, connect, echo_server};
use rocinante::sim::{Host, Report, Seeds, Simulation};
use rocinante::{Access, AddressHandle, Connector, Context, Gid, Listener, Qpn, QueueKey, Request};

const MILLISECOND: Duration = Duration::from_millis(1);

fn echo(simulation: Simulation) -> Simulation {
    let simulation = simulation.service("server", echo_server);
    simulation.host("client", |host| client(host, 20))
}

/// A directory for the captures of a test.
fn directory(test: &str) -> PathBuf {
    let name = format!("roci-simulation-{test}-{}", std::process::id());
    std::env::temp_dir().join(name)
}

fn captured(test: &str, seed: u64, faults: &str) -> (Report, Vec<u8>, Vec<u8>) {
    let directory = directory(test);
    let simulation = echo(Simulation::with_seed(seed).faults(faults));
    let report = simulation.capture(&directory).run();
    let read = |host: &str| fs::read(directory.join(format!("{host}.pcapng"))).expect("a capture");
    let files = (read("server"), read("client"));
    fs::remove_dir_all(&directory).expect("it exists");
    (report, files.0, files.1)
}

/// To connect takes two trips, and each echo two more.
#[test]
fn packets_travel_as_long_as_the_latency_says() {
    let latency = 20 * MILLISECOND;
    let report = echo(Simulation::with_seed(2).latency(latency, latency)).run();
    assert!(report.elapsed >= 4 * latency, "{report:?}");
}

#[test]
fn a_seed_gives_the_same_captures_byte_for_byte_and_another_seed_does_not() {
    let faults = "loss=5%,dup=3%,reorder=5%";
    let (first, second) = (captured("same", 7, faults), captured("same", 7, faults));
    assert!(first.0.packets > 40, "{:?}", first.0);
    assert_eq!(first.0, second.0);
    assert!(
        first.1 == second.1 && first.2 == second.2,
        "the captures differ"
    );
    let other = captured("same", 8, faults);
    assert_ne!(first.0.digest, other.0.digest);
    assert!(first.1 != other.1);
}

#[test]
fn a_capture_changes_nothing() {
    let plain = echo(Simulation::with_seed(3).faults("loss=2%")).run();
    let (captured, ..) = captured("nothing", 3, "loss=2%");
    assert_eq!(plain, captured);
}

/// Runs in processes of its own, because a process keeps its addresses and the seeds of its hash tables.
#[test]
#[ignore = "a program that another test starts"]
fn prints_a_digest() {
    let report = echo(Simulation::with_seed(11).faults("loss=3%")).run();
    println!("digest {} after {:?}", report.digest, report.elapsed);
}

#[test]
fn another_process_repeats_a_seed() {
    let run = || {
        let program = std::env::current_exe().expect("this test");
        let arguments = ["prints_a_digest", "--exact", "--ignored", "--nocapture"];
        let output = Command::new(program).args(arguments).output();
        let text = String::from_utf8(output.expect("a process").stdout).expect("text");
        let digest = text.lines().find(|line| line.contains("digest "));
        digest.expect("it prints one").to_owned()
    };
    assert_eq!(run(), run());
}

#[rocinante::test(seeds = 200, faults = "loss=2%,dup=2%,reorder=2%,corrupt=1%")]
fn every_message_comes_back_in_spite_of_faults(simulation: Simulation) {
    echo(simulation).run();
}

/// The client does not wait for a completion: it has none.
#[rocinante::test(seeds = 200, faults = "loss=2%,dup=2%,reorder=5%")]
fn a_shutdown_waits_until_the_last_message_has_arrived(simulation: Simulation) {
    async fn server(host: Host) -> Outcome {
        let listener = Listener::bind(host.address_of("server", PORT))?;
        let end = accept(&listener).await?;
        assert_eq!(end.completions.next().await.into_result()?.length, 14);
        // It answers the client again if its answer was lost.
        std::future::pending().await
    }
    async fn client(host: Host) -> Outcome {
        let end = connect(&host, "server").await?;
        let last = Request::send().inline(b"the last words").unsignaled();
        end.connection.post_send(last)?;
        end.connection
            .shutdown_async(Duration::from_secs(30))
            .await?;
        // Long enough for the server to find out that its receive was flushed.
        host.sleep(Duration::from_secs(1)).await;
        Ok(())
    }
    let simulation = simulation.service("server", server);
    simulation.host("client", client).run();
}

#[test]
fn time_passes_only_while_all_tasks_wait() {
    let woken = Rc::new(Cell::new(Duration::ZERO));
    let seen = Rc::clone(&woken);
    let simulation = Simulation::with_seed(1).limit(Duration::from_secs(7200));
    let report = simulation
        .host("sleeper", move |host| {
            let seen = Rc::clone(&seen);
            async move {
                host.sleep(Duration::from_secs(3600)).await;
                seen.set(host.elapsed());
            }
        })
        .run();
    assert!(woken.get() >= Duration::from_secs(3600));
    assert!(report.elapsed < Duration::from_secs(3601), "{report:?}");
    assert_eq!(report.packets, 0);
}

#[test]
fn the_longest_timeout_never_ends() {
    let program = |host: Host| async move {
        let ended = host.timeout(Duration::MAX, host.sleep(MILLISECOND)).await;
        assert_eq!(ended, Some(()));
    };
    Simulation::with_seed(1).host("waits", program).run();
}

#[test]
fn random_numbers_differ_within_a_run_and_between_seeds() {
    let drawn = Rc::new(RefCell::new(Vec::new()));
    for seed in [1, 2, 1] {
        let drawn = Rc::clone(&drawn);
        let simulation = Simulation::with_seed(seed).host("only", move |host| {
            let drawn = Rc::clone(&drawn);
            async move { drawn.borrow_mut().push([host.random(), host.random()]) }
        });
        simulation.run();
    }
    let [first, other, again] = drawn.borrow()[..] else {
        panic!("one host in each run");
    };
    assert_ne!(first[0], first[1]);
    assert_ne!(first, other);
    assert_eq!(first, again);
}

#[test]
fn a_host_goes_on_after_the_end_of_a_task() {
    let has_ended = Rc::new(Cell::new(false));
    let ended = Rc::clone(&has_ended);
    let simulation = Simulation::with_seed(1).host("only", move |host| {
        let ended = Rc::clone(&ended);
        async move {
            let task = host.spawn(async {});
            host.sleep(MILLISECOND).await;
            task.await;
            ended.set(true);
        }
    });
    simulation.run();
    assert!(has_ended.get());
}

#[test]
fn a_task_returns_its_result_and_a_timeout_ends_a_wait() {
    let simulation = Simulation::with_seed(1).host("only", |host| async move {
        let other = host.clone();
        let task = host.spawn(async move {
            other.sleep(MILLISECOND).await;
            42
        });
        assert_eq!(
            host.timeout(MILLISECOND / 2, std::future::pending::<()>())
                .await,
            None
        );
        assert_eq!(task.await, 42);
        assert_eq!(host.timeout(MILLISECOND, async { 7 }).await, Some(7));
    });
    simulation.run();
}

/// Each context has numbers and ids of its own, and connection requests find the listener.
#[test]
fn several_contexts_share_the_address_of_a_host() {
    async fn server(host: Host) -> Outcome {
        let (_first, second) = (host.open()?, Context::open("10.0.0.1")?);
        let address = host.address_of("server", PORT);
        let listener = Listener::bind_on(&second, address)?;
        let (third, taken) = (Context::open("sim0")?, Listener::bind(address));
        assert!(taken.is_err(), "another device has the port");
        drop(third);
        let end = accept(&listener).await?;
        end.completions.next().await.into_result()?;
        Ok(())
    }
    async fn client(host: Host) -> Outcome {
        let _other = host.open()?;
        // The server needs some time to listen.
        host.sleep(10 * MILLISECOND).await;
        let end = connect(&host, "server").await?;
        end.connection.post_send(Request::send().inline(b"hello"))?;
        end.completions.next().await.into_result()?;
        Ok(())
    }
    for seed in 0..20 {
        let simulation = Simulation::with_seed(seed).host("server", server);
        simulation.host("client", client).run();
    }
}

#[test]
fn a_host_can_connect_to_itself() {
    async fn both(host: Host) -> Outcome {
        let listener = Listener::bind(host.address_of("alone", PORT))?;
        let served = host.spawn(async move {
            let end = accept(&listener).await.expect("a client");
            end.completions
                .next()
                .await
                .into_result()
                .expect("a message");
        });
        let end = connect(&host, "alone").await?;
        end.connection.post_send(Request::send().inline(b"hello"))?;
        end.completions.next().await.into_result()?;
        served.await;
        Ok(())
    }
    Simulation::with_seed(5).host("alone", both).run();
}

#[test]
fn multicast_reaches_the_hosts_that_have_joined() {
    const KEY: QueueKey = QueueKey::new(0x1234);
    fn group() -> Gid {
        Gid::from(std::net::IpAddr::from([239, 1, 2, 3]))
    }
    async fn member(host: Host) -> Outcome {
        let context = host.open()?;
        let domain = context.allocate_protection_domain()?;
        let completions = context.create_completion_queue(4)?;
        let memory = domain.allocate_memory(128, Access::LOCAL_WRITE)?;
        let queue_pair = domain
            .queue_pair_builder(&completions)
            .create_datagram(KEY)?;
        queue_pair.post_receive(1, [memory.all()])?;
        queue_pair.join(group())?;
        let received = completions.next().await.into_result()?;
        assert_eq!(received.length, 40 + 5);
        Ok(())
    }
    async fn sender(host: Host) -> Outcome {
        host.sleep(50 * MILLISECOND).await;
        let context = host.open()?;
        let domain = context.allocate_protection_domain()?;
        let completions = context.create_completion_queue(4)?;
        let queue_pair = domain
            .queue_pair_builder(&completions)
            .create_datagram(KEY)?;
        let all = AddressHandle::new(&context, group(), 0, Qpn::MULTICAST, KEY)?;
        queue_pair.post_send(&all, Request::send().inline(b"hello"))?;
        completions.next().await.into_result()?;
        Ok(())
    }
    let simulation = Simulation::with_seed(2)
        .host("one", member)
        .host("two", member);
    simulation.host("sender", sender).run();
}

/// The device is the same as outside: a device of this machine opens while a simulation runs elsewhere.
#[test]
fn real_devices_work_before_and_after_a_simulation() {
    let before = Context::open("127.61.1.1").expect("a loopback address");
    echo(Simulation::with_seed(1)).run();
    let after = Context::open("127.61.1.2").expect("a loopback address");
    assert_eq!(
        (before.name(), after.name()),
        ("roci_127.61.1.1", "roci_127.61.1.2")
    );
}

#[test]
fn a_simulated_host_has_no_other_devices() {
    let simulation = Simulation::with_seed(1).host("only", |host| async move {
        let names: Vec<_> = rocinante::devices().expect("devices");
        assert_eq!(names.len(), 1);
        assert_eq!(names[0].gids[0].address, host.address());
        let unknown = Context::open("127.0.0.1").expect_err("not a device of this host");
        assert!(unknown.to_string().contains("roci0"), "{unknown}");
        let peer = "[::1]:7".parse().expect("an address");
        Connector::resolve_async(peer).await.expect_err("no route");
    });
    simulation.run();
}

/// As many simulations at once as there are CPUs, all with the same addresses.
#[test]
fn simulations_on_several_threads_do_not_meet() {
    let digest = |seed| echo(Simulation::with_seed(seed)).run().digest;
    let alone: Vec<u64> = (0..8).map(digest).collect();
    let together: Vec<u64> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|seed| scope.spawn(move || digest(seed)))
            .collect();
        let digests = threads
            .into_iter()
            .map(|thread| thread.join().expect("no panic"));
        digests.collect()
    });
    assert_eq!(alone, together);
}

/// A counter without a lock: two clients read it, and write it back one higher.
fn lost_update(simulation: Simulation) {
    async fn server(host: Host) -> Outcome {
        let listener = Listener::bind(host.address_of("server", PORT))?;
        let request = listener.next().await;
        let domain = request.context().allocate_protection_domain()?;
        let first = answer(request, &domain).await?;
        let second = answer(listener.next().await, &domain).await?;
        // Each client adds 1 to the counter in the memory of the first connection.
        for end in [&first, &second] {
            let counter = first.memory.remote(0);
            let told = [
                counter.address.to_be_bytes(),
                u64::from(counter.key.value()).to_be_bytes(),
            ];
            end.connection
                .post_send(Request::send().inline(&told.concat()).id(2))?;
            end.completions.next().await.into_result()?;
        }
        for end in [&first, &second] {
            end.completions.next().await.into_result()?;
        }
        assert_eq!(first.memory.to_vec(..8), 2_u64.to_le_bytes());
        Ok(())
    }
    let add = |host: Host| async move { programs::add_one(&host).await };
    let simulation = simulation.host("server", server);
    simulation.host("one", add).host("two", add).run();
}

#[test]
fn seeds_find_a_race_and_name_the_lowest_seed_with_it() {
    let found = Seeds::new(500).find(lost_update).expect("a lost update");
    assert!(
        found.message.contains("`server` panicked"),
        "{}",
        found.message
    );
    let again = std::panic::catch_unwind(|| lost_update(Simulation::with_seed(found.seed)));
    assert!(again.is_err(), "the seed repeats it");
    let none_before = Seeds::new(found.seed).find(lost_update);
    assert_eq!(none_before, None, "it is the lowest");
}

#[test]
fn a_failing_test_says_how_to_repeat_it_and_keeps_its_packets() {
    let failed = std::panic::catch_unwind(|| Seeds::new(500).run("lost_update", lost_update));
    let panic = failed.expect_err("a seed fails");
    let message = panic.downcast_ref::<String>().expect("a text");
    assert!(message.contains("cargo test lost_update"), "{message}");
    let seed = message.split("ROCI_SEED=").nth(1).expect("the seed");
    let seed: u64 = seed
        .split(' ')
        .next()
        .expect("a word")
        .parse()
        .expect("a number");
    let directory = std::env::temp_dir().join(format!("rocinante-lost_update-{seed}"));
    for host in ["server", "one", "two"] {
        let capture = fs::metadata(directory.join(format!("{host}.pcapng")));
        assert!(capture.expect("a capture").len() > 1000, "{host}");
    }
    fs::remove_dir_all(directory).expect("it exists");
}

#[test]
fn a_program_that_depends_on_something_outside_is_reported_as_such() {
    let calls = std::sync::atomic::AtomicU32::new(0);
    let failed = std::panic::catch_unwind(|| {
        Seeds::new(1).run("outside", |simulation| {
            let call = calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            simulation
                .host("only", move |_| async move {
                    assert!(call > 0, "the first call");
                })
                .run();
        });
    });
    let panic = failed.expect_err("it fails");
    let message = panic.downcast_ref::<String>().expect("a text");
    assert!(message.contains("ends differently"), "{message}");
}
