//! The counters of devices: as files, as `rdma statistic` and as `roci stat` show them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rocinante::{Context, OpenOptions};
use serde_json::Value;

use crate::run_roci::{Roci, Running, own_address, roci};
use crate::seccomp::{MEMFD, without};

/// When the connection manager sends a message again for the first time, if no answer has come.
const FIRST_RETRANSMISSION: Duration = Duration::from_millis(1500);

/// A server and a client of `roci ping` at one address, in two processes.
struct Pair {
    address: String,
    devices: String,
}

impl Pair {
    fn new() -> Self {
        let address = own_address();
        let devices = format!("rxe0={address}");
        Self { address, devices }
    }

    fn command(&self, words: &[&str]) -> Roci {
        roci(words).env("ROCI_DEVICES", &self.devices)
    }

    fn server(&self) -> Running {
        let server = self.command(&["ping", "-s", "-d", "-a", &self.address, "-p", "7392"]);
        let mut server = server.start();
        while server.line() != "rdma_listen" {}
        server.read_on();
        server
    }

    /// Two processes exchange five messages.
    fn exchange(&self) {
        let server = self.server();
        let words = ["ping", "-c", "-a", &self.address, "-p", "7392", "-C", "5"];
        self.command(&words).run().success();
        server.end().success();
    }

    fn counter(&self, name: &str) -> u64 {
        let path = format!("/sys/class/infiniband/rxe0/ports/1/{name}");
        let value = self.command(&["run", "--", "cat", &path]).run().success();
        value.trim().parse().expect("a number")
    }
}

#[test]
fn counter_files_add_up_all_processes_and_do_not_decrease() {
    let pair = Pair::new();
    let before = pair.counter("counters/port_xmit_packets");
    let received = pair.counter("hw_counters/rdma_recvs");
    pair.exchange();
    let after = pair.counter("counters/port_xmit_packets");
    // The client sends ten messages, and reads and writes; the server sends as many.
    assert!(after >= before + 40, "{before} {after}");
    assert!(pair.counter("hw_counters/rdma_recvs") >= received + 20);
    assert_eq!(pair.counter("hw_counters/sent_pkts"), after);
    // Every packet has at least 16 bytes.
    assert!(pair.counter("counters/port_xmit_data") >= after * 4);
    assert_eq!(pair.counter("counters/symbol_error"), 0);
    let statistic = pair.command(&[
        "run",
        "--",
        "rdma",
        "-j",
        "statistic",
        "show",
        "link",
        "rxe0/1",
    ]);
    let statistic = statistic.run().json();
    assert_eq!(statistic[0]["sent_pkts"], after);
    assert_eq!(statistic[0]["ifname"], "rxe0");
    let text = pair
        .command(&["run", "--", "rdma", "statistic"])
        .run()
        .success();
    let start = format!("link rxe0/1 sent_pkts {after} rcvd_pkts ");
    assert!(text.starts_with(&start), "{text}");
}

#[test]
fn messages_of_the_connection_manager_are_counted_by_their_kind() {
    let pair = Pair::new();
    let counters = || {
        let directory = "/sys/class/infiniband/rxe0/ports/1";
        let script = format!("cd {directory} && grep -r . cm_*");
        let text = pair.command(&["run", "--", "sh", "-c", &script]).run();
        let numbers = text.success();
        let numbers = numbers.lines().map(|line| {
            let (name, number) = line.split_once(':').expect("a file and its content");
            (name.to_owned(), number.parse().expect("a number"))
        });
        numbers.collect::<BTreeMap<String, u64>>()
    };
    // An exchange that took longer says nothing: a message without an answer is sent again.
    let more = loop {
        let before = counters();
        assert_eq!(before.len(), 44);
        let begin = Instant::now();
        pair.exchange();
        if begin.elapsed() < FIRST_RETRANSMISSION {
            let mut more = counters();
            for (name, number) in &mut more {
                *number -= before[name];
            }
            break more;
        }
    };
    // Both ends are at this address, and each message arrives once.
    for message in ["req", "rep", "rtu", "drep"] {
        let sent = more[&format!("cm_tx_msgs/{message}")];
        assert_eq!(sent, more[&format!("cm_rx_msgs/{message}")], "{message}");
        assert_eq!(sent, 1, "{message}");
    }
    assert_eq!(more["cm_tx_msgs/dreq"], more["cm_rx_msgs/dreq"]);
    assert_ne!(more["cm_tx_msgs/dreq"], 0);
    assert_eq!(more["cm_tx_msgs/sidr_req"], 0);
    assert_eq!(more["cm_tx_retries/req"], 0);
    assert_eq!(more["cm_rx_duplicates/req"], 0);
}

#[test]
fn counter_files_have_their_values_where_files_in_memory_are_forbidden() {
    let pair = Pair::new();
    pair.exchange();
    let path = "/sys/class/infiniband/rxe0/ports/1/counters/port_xmit_packets";
    let words = ["run", "--", "cat", path];
    let Some(outcome) = without(MEMFD, &pair.devices, &words) else {
        return println!("left out: other numbers of system calls");
    };
    let value: u64 = outcome.stdout.trim().parse().expect("a number");
    assert!(value >= 40, "{outcome:?}");
}

/// As perftest does it: it reads the files before and after its work through the same descriptors.
#[test]
fn an_open_counter_file_is_read_again_with_its_present_value() {
    let pair = Pair::new();
    let script = "
import os, subprocess, sys
roci, address = sys.argv[1:]
directory = '/sys/class/infiniband/rxe0/ports/1/'
os.chdir(directory + 'hw_counters')
files = [os.open(directory + 'counters/port_xmit_packets', os.O_RDONLY), os.open('sent_pkts', os.O_RDONLY)]
def values():
    return [int(os.pread(file, 64, 0)) for file in files]
before = values()
first = int(os.read(files[0], 64))
assert os.read(files[0], 64) == b'', 'the end of the file'
server = subprocess.Popen([roci, 'ping', '-s', '-d', '-a', address, '-p', '7393'], stdout=subprocess.PIPE)
while server.stdout.readline().strip() != b'rdma_listen': pass
subprocess.run([roci, 'ping', '-c', '-a', address, '-p', '7393', '-C', '5'], check=True, stdout=subprocess.DEVNULL)
server.communicate()
after = values()
assert first == before[0] and after[0] >= before[0] + 40, (before, first, after)
assert after[0] == after[1], after
os.lseek(files[0], 0, os.SEEK_SET)
assert int(os.read(files[0], 64)) == after[0]
print(os.fstat(files[1]).st_size > 0)";
    let roci = env!("CARGO_BIN_EXE_roci");
    let words = ["run", "--", "python3", "-c", script, roci, &pair.address];
    assert_eq!(pair.command(&words).run().success(), "True\n");
}

#[test]
fn stat_shows_processes_and_their_queue_pairs_while_they_run() {
    let pair = Pair::new();
    let server = pair.server();
    let words = ["ping", "-c", "-a", &pair.address, "-p", "7392"];
    let client = pair.command(&words).start();
    let find = |id: u32| {
        let report = pair.command(&["stat", "rxe0", "--json"]).run().json();
        let devices = report["devices"].as_array().expect("a list").clone();
        devices.into_iter().find(|device| device["pid"] == id)
    };
    // Each process publishes what has happened within a tenth of a second.
    let await_traffic = |id: u32| {
        loop {
            // The device also counts the messages of the connection manager, which come before.
            let sent = |it: &Value| it["queue_pairs"][0]["counters"]["messages_sent"].as_u64();
            let device = find(id).filter(|it| sent(it) > Some(0));
            if let Some(device) = device {
                return device;
            }
        }
    };
    let device = await_traffic(client.id());
    assert_eq!(device["program"], "roci");
    assert_eq!(device["device"], "rxe0");
    assert_eq!(device["address"], pair.address);
    let queue_pair = &device["queue_pairs"][0];
    assert_eq!(
        (&queue_pair["type"], &queue_pair["state"]),
        (&"RC".into(), &"RTS".into())
    );
    assert_eq!(queue_pair["peer"]["address"], pair.address);
    assert_ne!(queue_pair["counters"]["messages_sent"], 0);
    let opposite = await_traffic(server.id());
    assert_eq!(
        queue_pair["peer"]["number"],
        opposite["queue_pairs"][0]["number"]
    );
    let table = pair.command(&["stat", "rxe0"]).run().success();
    assert!(table.contains(&client.id().to_string()), "{table}");
    let text = pair.command(&["stat", "--prometheus"]).run().success();
    let label = format!(
        "roci_queue_pair_messages_sent_total{{pid=\"{}\"",
        client.id()
    );
    assert!(text.contains(&label), "{text}");
    let repeated = pair.command(&["stat", "-i", "0.1", "-c", "2", "--json", "rxe0"]);
    let repeated = repeated.run().success();
    assert_eq!(repeated.lines().count(), 2, "{repeated}");
    client.interrupt();
    client.end();
    server.end();
    let id = || find(std::process::id());
    assert!(id().is_none(), "this process has no device");
}

/// This process opens a device, and two of its threads use it.
#[test]
fn lanes_of_an_open_device_are_one_line_and_each_queue_pair_has_its_lane() {
    let address = own_address();
    let options = OpenOptions {
        lanes: 2,
        ..OpenOptions::default()
    };
    let context = Context::open_with(&address, &options).expect("a loopback address");
    let domain = context.allocate_protection_domain().expect("room");
    let create = || {
        let completions = context.create_completion_queue(8).expect("room");
        let builder = domain.queue_pair_builder(&completions);
        let queue_pair = builder.create_reliable().expect("room");
        (completions, queue_pair)
    };
    let own = [create(), create()];
    while own[1].0.lane() == 0 {
        assert_eq!(own[0].0.poll(), None);
        let other = || assert_eq!(own[1].0.poll(), None);
        std::thread::scope(|scope| scope.spawn(other).join().expect("no panic"));
    }
    let own = own.map(|(completions, queue_pair)| {
        let number = queue_pair.endpoint().queue_pair.value();
        (completions.lane(), number, queue_pair)
    });
    assert_eq!([own[0].0, own[1].0], [0, 1], "two lanes");
    let stat = |more: &[&str]| roci([&["stat"], more].concat()).run();
    // Each lane publishes what has happened within a tenth of a second: until then a lane may
    // still list a queue pair that has moved to the other.
    let lane_of = |device: &Value, number: u32| {
        let mut published = device["queue_pairs"].as_array().expect("a list").iter();
        let found = published.find(|it| it["number"] == number)?;
        found["lane"].as_u64()
    };
    let device = loop {
        let report = stat(&["--json"]).json();
        let devices = report["devices"].as_array().expect("a list").clone();
        let mut devices = devices.into_iter();
        let device = devices.find(|it| it["address"] == address.as_str());
        let moved = |it: &Value| {
            let mut own = own.iter();
            it["queue_pair_count"] == 2
                && own.all(|(lane, number, _)| lane_of(it, *number) == Some(*lane as u64))
        };
        if let Some(device) = device.filter(moved) {
            assert!(devices.all(|it| it["address"] != address.as_str()));
            break device;
        }
    };
    let lanes = device["lanes"].as_array().expect("a list");
    let numbers: Vec<_> = lanes.iter().map(|it| it["lane"].clone()).collect();
    assert_eq!(numbers, [0, 1]);
    // The lanes share these objects. They are counted once.
    assert_eq!(device["objects"]["protection_domains"], 1);
    assert_eq!(device["objects"]["completion_queues"], 2);
    let text = stat(&["--prometheus"]).success();
    let pid = format!("pid=\"{}\"", std::process::id());
    let queues = text.lines().find(|line| {
        line.starts_with("roci_device_completion_queues{")
            && line.contains(&pid)
            && line.contains(&address)
    });
    assert!(queues.is_some_and(|line| line.ends_with("} 2")), "{text}");
    for lane in ["lane=\"0\"", "lane=\"1\""] {
        assert!(
            text.lines()
                .any(|line| line.contains(&pid) && line.contains(lane)),
            "{text}"
        );
    }
}
