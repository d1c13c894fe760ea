//! Captures of our own device, which captures packets at both ends, with faults and errors.

use std::path::PathBuf;
use std::time::Duration;

use explain::{Analysis, AnomalyKind, Marks, Outcome, Role, Side};
use rocinante::{
    Access, AckTimeout, CompletionQueue, ConnectOptions, Context, MemoryRegion, OpenOptions,
    PathMtu, PreparedQueuePair, ProtectionDomain, QueuePair, Request, Status,
};
use wire::Transport;

const DEADLINE: Duration = Duration::from_secs(30);
const LENGTH: usize = 20_000;

/// How often to try a run that nothing may disturb.
const TRIES: usize = 100;

/// Two queue pairs of one device.
struct Setup {
    path: PathBuf,
    context: Context,
    completions: CompletionQueue,
    memory: MemoryRegion,
    domain: ProtectionDomain,
    left: QueuePair,
    right: QueuePair,
}

/// With an acknowledgement timeout of four seconds: on a busy machine a shorter one expires although nothing is lost.
fn patient() -> ConnectOptions {
    ConnectOptions {
        path_mtu: Some(PathMtu::Mtu1024),
        ack_timeout: AckTimeout::new(20).expect("a code"),
        rnr_retry: 1,
        ..ConnectOptions::default()
    }
}

/// Short timeouts and few retries, so that failures are fast.
fn impatient() -> ConnectOptions {
    ConnectOptions {
        ack_timeout: AckTimeout::new(13).expect("a code"),
        retry_count: 3,
        ..patient()
    }
}

impl Setup {
    fn set(address: &str, faults: Option<&str>, connect_options: ConnectOptions) -> Self {
        let name = format!("explain-{address}.pcapng");
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        // A process appends to a capture that it has written before.
        let _ = std::fs::remove_file(&path);
        let options = OpenOptions {
            capture: Some(path.clone()),
            faults: faults.map(str::to_owned),
            ..OpenOptions::default()
        };
        let context = Context::open_with(address, &options).expect("a loopback address");
        let domain = context.allocate_protection_domain().expect("room");
        let completions = context.create_completion_queue(64).expect("room");
        let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let memory = domain.allocate_memory(2 * LENGTH, rights).expect("room");
        let prepare = || -> PreparedQueuePair {
            let builder = domain
                .queue_pair_builder(&completions)
                .connect_options(connect_options);
            builder.depth(16, 16).create_reliable().expect("room")
        };
        let (left, right) = (prepare(), prepare());
        let (ours, theirs) = (left.endpoint(), right.endpoint());
        Setup {
            path,
            context,
            left: left.connect(theirs).expect("a peer"),
            right: right.connect(ours).expect("a peer"),
            completions,
            memory,
            domain,
        }
    }

    fn ends_with(&self, request: Request, status: Status) {
        self.left.post_send(request).expect("room");
        let completion = self.completions.wait_for(DEADLINE).expect("it completes");
        assert_eq!(completion.status, status);
    }

    fn write(&self) -> Request {
        let data = self.memory.slice(0..LENGTH);
        Request::write(self.memory.remote(LENGTH)).data(data)
    }

    /// The capture is complete when the device is closed.
    fn analysis(self) -> Analysis {
        let path = self.path.clone();
        drop(self);
        let file = std::fs::File::open(&path).expect("the capture is there");
        Analysis::read(file).expect("a capture")
    }
}

/// The analysis of a run in which nothing is sent again. On a busy machine a response can be late, and then its request is.
fn undisturbed(address: &str, run: impl Fn(&Setup)) -> Analysis {
    let mut runs = (0..TRIES).map(|_| {
        let setup = Setup::set(address, None, patient());
        run(&setup);
        setup
    });
    let run = runs.find(|it| it.context.counters().expect("ours").retransmitted == 0);
    run.expect("in one of them nothing is sent again")
        .analysis()
}

fn kinds(analysis: &Analysis) -> Vec<AnomalyKind> {
    let mut kinds: Vec<AnomalyKind> = analysis
        .anomalies
        .iter()
        .map(|anomaly| anomaly.kind)
        .collect();
    kinds.sort();
    kinds.dedup();
    kinds
}

#[test]
fn run_without_errors_has_no_anomalies() {
    let analysis = undisturbed("127.58.1.1", |setup| {
        let data = setup.memory.slice(LENGTH..2 * LENGTH);
        let read = Request::read(setup.memory.remote(0)).data(data);
        setup.ends_with(setup.write(), Status::Success);
        setup.ends_with(read, Status::Success);
    });
    assert_eq!(analysis.anomalies.len(), 0, "{:?}", analysis.anomalies);
    assert_eq!(
        (analysis.connections.len(), analysis.messages.len()),
        (1, 2)
    );
    let seen = analysis
        .packets
        .iter()
        .filter(|packet| packet.marks.contains(Marks::SEEN_TWICE));
    assert_eq!(
        seen.count(),
        analysis.packets.len(),
        "each packet leaves and arrives"
    );
}

#[test]
fn lost_packet_is_reported() {
    let faults = Some("drop:opcode=RC_WRITE_MIDDLE,nth=3");
    let setup = Setup::set("127.58.2.1", faults, patient());
    setup.ends_with(setup.write(), Status::Success);
    let analysis = setup.analysis();
    assert!(
        kinds(&analysis).contains(&AnomalyKind::SequenceError),
        "{:?}",
        analysis.anomalies
    );
    let lost: Vec<_> = analysis
        .packets
        .iter()
        .filter(|it| it.marks.contains(Marks::LOST))
        .collect();
    assert!(
        !lost.is_empty() && lost[0].role == Role::Request,
        "{lost:?}"
    );
    assert!(analysis.statistics.retransmitted > 0);
    assert_eq!(analysis.messages[0].outcome, Outcome::Done);
}

#[test]
fn receiver_that_is_not_ready_is_reported() {
    let setup = Setup::set("127.58.3.1", None, patient());
    let request = Request::send().inline(b"anybody?");
    setup.ends_with(request, Status::ReceiverNotReady);
    let analysis = setup.analysis();
    assert_eq!(kinds(&analysis), [AnomalyKind::NotReadyForEver]);
    assert_eq!(analysis.messages[0].outcome, Outcome::NotReady);
}

#[test]
fn missing_access_right_is_reported() {
    let setup = Setup::set("127.58.4.1", None, patient());
    let theirs = setup
        .domain
        .allocate_memory(64, Access::LOCAL_WRITE)
        .expect("room");
    let request = Request::write(theirs.remote(0)).inline(b"may I?");
    setup.ends_with(request, Status::RemoteAccess);
    let analysis = setup.analysis();
    assert_eq!(kinds(&analysis), [AnomalyKind::RemoteAccess]);
    let sentence = &analysis.anomalies[0].sentence;
    assert!(sentence.contains("NAK 0x62"), "{sentence}");
}

#[test]
fn missing_responses_are_reported() {
    let setup = Setup::set(
        "127.58.5.1",
        Some("drop:opcode=RC_ACKNOWLEDGE"),
        impatient(),
    );
    setup.ends_with(setup.write(), Status::RetriesExhausted);
    let analysis = setup.analysis();
    assert!(analysis.statistics.retransmitted > 0);
    let acknowledgements = analysis
        .packets
        .iter()
        .filter(|it| it.role == Role::Acknowledge);
    assert!(
        acknowledgements
            .into_iter()
            .all(|it| it.marks.contains(Marks::LOST))
    );
    assert_eq!(
        kinds(&analysis),
        [AnomalyKind::RetriesExhausted, AnomalyKind::FaultInjected],
        "{:?}",
        analysis.anomalies
    );
}

#[test]
fn requests_in_both_directions_recover_from_faults() {
    let faults = Some("loss=2%,dup=2%,reorder=2%,seed=11");
    let setup = Setup::set(
        "127.58.6.1",
        faults,
        ConnectOptions {
            ack_timeout: ConnectOptions::default().ack_timeout,
            ..patient()
        },
    );
    for _ in 0..8 {
        let back = Request::write(setup.memory.remote(0)).data(setup.memory.slice(0..LENGTH));
        setup.left.post_send(setup.write()).expect("room");
        setup.right.post_send(back).expect("room");
    }
    for _ in 0..16 {
        let completion = setup.completions.wait_for(DEADLINE).expect("it completes");
        assert_eq!(completion.status, Status::Success);
    }
    let analysis = setup.analysis();
    // The two ends may ask each other for lists of held packets, in datagrams.
    let reliable = |transport: &Transport| *transport == Transport::Rc;
    let connections = analysis.connections.iter().map(|it| &it.transport);
    let messages = analysis.messages.iter().map(|it| &it.transport);
    assert_eq!(
        [
            connections.filter(|it| reliable(it)).count(),
            messages.filter(|it| reliable(it)).count()
        ],
        [1, 16]
    );
    let lasting = [
        AnomalyKind::RetriesExhausted,
        AnomalyKind::NotReadyForEver,
        AnomalyKind::Unanswered,
    ];
    let found = kinds(&analysis);
    assert!(
        lasting.iter().all(|kind| !found.contains(kind)),
        "{:?}",
        analysis.anomalies
    );
}

#[test]
fn requests_of_a_queue_pair_to_itself_come_from_the_left() {
    let setup = Setup::set("127.58.9.1", None, patient());
    let completions = setup.context.create_completion_queue(4).expect("room");
    let builder = setup.domain.queue_pair_builder(&completions);
    let builder = builder.connect_options(patient()).depth(2, 2);
    let prepared = builder.create_reliable().expect("room");
    let itself = prepared.endpoint();
    let queue_pair = prepared.connect(itself).expect("a peer");
    queue_pair.post_send(setup.write()).expect("room");
    let completion = completions.wait_for(DEADLINE).expect("it completes");
    assert_eq!(completion.status, Status::Success);
    drop((queue_pair, completions));
    let analysis = setup.analysis();
    let packets = || {
        let packets = analysis.packets.iter();
        packets.filter(|it| it.opcode.transport() == Transport::Rc)
    };
    for (role, side) in [
        (Role::Request, Side::Left),
        (Role::Acknowledge, Side::Right),
    ] {
        let mut of_role = packets().filter(|it| it.role == role).peekable();
        assert!(of_role.peek().is_some(), "{role:?}");
        assert!(of_role.all(|it| it.from == side), "{role:?}");
    }
}
