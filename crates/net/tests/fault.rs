//! The language of faults, and what they do to packets.

use std::time::{Duration, Instant};

use net::Direction::{Receive, Transmit};
use net::tap::fault::{DelayLine, FaultCounts, FaultLog, FaultSpec, Faults, Verdict};
use proptest::prelude::*;
use wire::cm::{ConnectRequest, ReadyToUse};
use wire::{Deth, Flow, IcrcChecker, Opcode, PacketHead, Psn, Qpn, QueueKey, icrc, mad};

const FLOW: Flow = Flow {
    source: std::net::IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1)),
    destination: std::net::IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2)),
    source_port: 0xc001,
    destination_port: 4791,
};

fn packet(opcode: Opcode, qp: u32, psn: u32) -> Vec<u8> {
    let head = PacketHead::new(opcode, Qpn::new(qp), Psn::new(psn));
    let mut bytes = [head.bytes(), b"payload!"].concat();
    bytes.extend(icrc::checksum(&FLOW, 0, &bytes));
    bytes
}

/// A message of the connection manager, empty but for its name.
fn cm(attribute: u16) -> Vec<u8> {
    let class = mad::COMMUNICATION_MANAGEMENT;
    let header = mad::Header::new(class, 2, mad::SEND, attribute, 1);
    let head = PacketHead::new(Opcode::UdSendOnly, Qpn::GSI, Psn::new(0));
    let head = head.push(&Deth::new(QueueKey::new(0x8001_0000), Qpn::GSI));
    let datagram = mad::join(&header, &[0; mad::BODY_LENGTH]);
    let mut bytes = [head.bytes(), &datagram].concat();
    bytes.extend(icrc::checksum(&FLOW, 0, &bytes));
    bytes
}

fn send(psn: u32) -> Vec<u8> {
    packet(Opcode::RcSendOnly, 0x11, psn)
}

fn faults(text: &str) -> Faults {
    Faults::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn rejected(text: &str) -> String {
    match text.parse::<FaultSpec>() {
        Ok(spec) => panic!("{text} was understood as {spec}"),
        Err(error) => error.to_string(),
    }
}

/// Which of the given packets get lost.
fn lost(faults: &mut Faults, packets: &[Vec<u8>]) -> Vec<usize> {
    let now = Instant::now();
    let mut lost = Vec::new();
    for (index, packet) in packets.iter().enumerate() {
        if faults.apply(now, Transmit, packet).copies == 0 {
            lost.push(index);
        }
    }
    lost
}

#[test]
fn an_empty_spec_changes_nothing() {
    for text in ["", " ; , ;", "seed=3"] {
        let mut faults = faults(text);
        assert!(faults.spec().is_empty());
        assert_eq!(
            faults.apply(Instant::now(), Transmit, &send(1)),
            Verdict::PASS
        );
    }
}

#[test]
fn the_third_packet_with_an_opcode_is_lost_and_no_other() {
    let mut faults = faults("drop:opcode=RC_SEND_ONLY,nth=3");
    let other = packet(Opcode::RcSendFirst, 0x11, 0);
    let packets = [send(0), other, send(1), send(2), send(3), send(2)];
    assert_eq!(lost(&mut faults, &packets), [3]);
}

#[test]
fn a_packet_named_by_queue_pair_and_number_is_lost_once() {
    let mut faults = faults("drop:qp=0x11,psn=5,times=1");
    let elsewhere = packet(Opcode::RcSendOnly, 0x12, 5);
    let packets = [send(4), elsewhere, send(5), send(6), send(5)];
    assert_eq!(lost(&mut faults, &packets), [2], "the repetition passes");
}

#[test]
fn a_rule_starts_at_the_nth_packet_and_repeats() {
    let packets: Vec<_> = (0..8).map(send).collect();
    assert_eq!(lost(&mut faults("drop:nth=3,times=2"), &packets), [2, 3]);
    assert_eq!(lost(&mut faults("drop:every=3"), &packets), [2, 5]);
    assert_eq!(lost(&mut faults("drop:every=3,times=1"), &packets), [2]);
    assert_eq!(lost(&mut faults("drop:times=2"), &packets), [0, 1]);
    assert_eq!(lost(&mut faults("drop:rate=100%,times=1"), &packets), [0]);
}

#[test]
fn each_direction_has_its_own_rules() {
    let now = Instant::now();
    let mut faults = faults("rx:drop:times=1; tx:dup:nth=2");
    assert_eq!(faults.apply(now, Transmit, &send(0)), Verdict::PASS);
    assert_eq!(faults.apply(now, Receive, &send(0)), Verdict::DROP);
    assert_eq!(faults.apply(now, Receive, &send(0)), Verdict::PASS);
    let doubled = faults.apply(now, Transmit, &send(1));
    assert_eq!(doubled.copies, 2);
    assert_eq!(
        doubled.injected.to_string(),
        "duplicated by fault injection"
    );
}

#[test]
fn a_delayed_packet_has_its_release_time() {
    let now = Instant::now();
    let mut faults = faults("delay:opcode=ACK,by=5ms; delay=1ms; reorder:nth=2");
    let until = |verdict: Verdict| verdict.hold_until.map(|due| due - now);
    let ack = packet(Opcode::RcAcknowledge, 0x11, 0);
    let held = until(faults.apply(now, Transmit, &ack));
    assert_eq!(held, Some(Duration::from_millis(6)), "delays add up");
    let held = until(faults.apply(now, Transmit, &send(0)));
    assert_eq!(held, Some(Duration::from_micros(1200)));
    let held = until(faults.apply(now, Transmit, &send(0)));
    assert_eq!(held, Some(Duration::from_millis(1)));
}

#[test]
fn a_corrupted_packet_differs_in_one_bit_and_fails_its_icrc() {
    let now = Instant::now();
    let mut faults = faults("corrupt:rate=100%");
    let mut checker = IcrcChecker::new();
    let original = send(7);
    for _ in 0..20_000 {
        let verdict = faults.apply(now, Transmit, &original);
        let damaged = verdict.bytes(&original);
        let differing: u32 = damaged
            .iter()
            .zip(&original)
            .map(|(a, b)| (a ^ b).count_ones())
            .sum();
        assert_eq!(differing, 1);
        assert!(checker.check(&FLOW, damaged).is_err());
    }
}

#[test]
fn short_garbage_matches_only_rules_without_packet_fields() {
    let now = Instant::now();
    let mut faults = faults("drop:qp=0; corrupt:rate=100%");
    for length in 0..20 {
        let verdict = faults.apply(now, Transmit, &vec![0; length]);
        let expected = if length < 12 { 1 } else { 0 };
        assert_eq!(verdict.copies, expected, "{length} bytes");
    }
}

#[test]
fn a_corrupted_packet_can_also_be_delayed_and_duplicated() {
    let now = Instant::now();
    let mut faults = faults("dup=100%,corrupt=100%,delay=1ms");
    let verdict = faults.apply(now, Transmit, &send(0));
    assert_eq!(verdict.copies, 2);
    assert!(verdict.damaged.is_some());
    assert_eq!(verdict.hold_until, Some(now + Duration::from_millis(1)));
}

#[test]
fn the_seed_decides_the_faults() {
    let packets: Vec<_> = (0..2000).map(send).collect();
    let run = |text: &str| lost(&mut faults(text), &packets);
    assert_eq!(run("loss=5%,seed=7"), run("loss=5%,seed=7"));
    assert_ne!(run("loss=5%,seed=7"), run("loss=5%,seed=8"));
    let with_more = run("loss=5%,seed=7; dup:every=3; corrupt=50%");
    assert_eq!(
        with_more,
        run("loss=5%,seed=7"),
        "rules don't disturb each other"
    );
}

#[test]
fn faults_occur_with_the_given_probability() {
    let packets: Vec<_> = (0..100_000).map(send).collect();
    let count = lost(&mut faults("loss=1%,seed=1"), &packets).len();
    assert!((900..1100).contains(&count), "{count} of 100000");
    assert_eq!(lost(&mut faults("loss=0%"), &packets), []);
}

#[test]
fn a_rule_can_name_a_context_and_a_cm_message() {
    let mut second = faults("drop:context=1234567,nth=1");
    assert_eq!(lost(&mut second, &[send(0)]), [], "this is another context");
    let mut requests = faults("drop:cm=REQ,nth=2");
    let [req, rtu] = [cm(ConnectRequest::ATTRIBUTE), cm(ReadyToUse::ATTRIBUTE)];
    let packets = [rtu.clone(), req.clone(), send(0), rtu, req.clone(), req];
    assert_eq!(lost(&mut requests, &packets), [4]);
    assert_eq!(lost(&mut faults("drop:cm=any"), &packets), [0, 1, 3, 4, 5]);
}

#[test]
fn a_rule_in_a_log_has_the_direction_of_its_packet() {
    let path = std::env::temp_dir().join(format!("roci-directions-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let log = FaultLog::open(&path).expect("a log");
    let rules = "rx:drop:nth=1; tx:drop:nth=1".parse().expect("rules");
    let mut faults = Faults::with_log(rules, Some(log));
    for direction in [Receive, Transmit] {
        assert_eq!(faults.apply(Instant::now(), direction, &send(0)).copies, 0);
    }
    let text = std::fs::read_to_string(&path).expect("a log");
    let rules = text
        .lines()
        .filter_map(|line| line.strip_prefix("fault 1 "));
    let rules: Vec<_> = rules.filter_map(|line| line.split(':').next()).collect();
    assert_eq!(rules, ["rx", "drop"], "{text}");
    std::fs::remove_file(path).expect("the log");
}

#[test]
fn the_rules_in_a_log_repeat_random_faults() {
    let path = std::env::temp_dir().join(format!("roci-fault-log-{}", std::process::id()));
    let logged = |text: &str| {
        let _ = std::fs::remove_file(&path);
        let log = FaultLog::open(&path).expect("a log");
        let spec = text.parse().expect("a spec");
        Faults::with_log(spec, Some(log))
    };
    let mut packets: Vec<_> = (0..40).map(send).collect();
    packets.extend((0..40).map(|psn| packet(Opcode::RcAcknowledge, 0x11, psn)));
    packets.extend((0..8).map(|_| cm(ConnectRequest::ATTRIBUTE)));
    let random = lost(&mut logged("loss=20%,seed=5"), &packets);
    assert!(random.len() > 5, "{random:?}");
    let text = std::fs::read_to_string(&path).expect("a log");
    let rules = text
        .lines()
        .filter_map(|line| line.strip_prefix("fault 1 "));
    let rules: Vec<_> = rules.filter_map(|line| line.split(" # ").next()).collect();
    assert_eq!(lost(&mut logged(&rules.join(";")), &packets), random);
    assert_eq!(FaultLog::open(&path).expect("a log").context(), 2);
    assert!(
        text.contains("packets 1 tx opcode=RC_SEND_ONLY 32\n"),
        "{text}"
    );
    assert!(text.contains("packets 1 tx cm=REQ 8\n"), "{text}");
    std::fs::remove_file(path).expect("the log");
}

#[test]
fn only_the_first_packet_of_a_reliable_send_can_be_not_ready() {
    let now = Instant::now();
    let mut faults = faults("rnr:rate=100%");
    let mut injected = |opcode| {
        let packet = packet(opcode, 0x11, 0);
        faults.apply(now, Receive, &packet).injected.not_ready
    };
    assert!(injected(Opcode::RcSendOnly) && injected(Opcode::RcSendFirst));
    assert!(!injected(Opcode::RcSendLast) && !injected(Opcode::UdSendOnly));
    assert!(!injected(Opcode::RcAcknowledge) && !injected(Opcode::RcWriteOnly));
}

#[test]
fn counters_match_the_faults_applied() {
    let mut faults = faults("drop:nth=1; dup:nth=2; corrupt:nth=2; delay:nth=3,by=1s");
    assert_eq!(faults.counts().to_string(), "0 packets: none touched");
    for psn in 0..4 {
        let _ = faults.apply(Instant::now(), Transmit, &send(psn));
    }
    let expected = FaultCounts {
        packets: 4,
        dropped: 1,
        duplicated: 1,
        corrupted: 1,
        delayed: 1,
    };
    assert_eq!(faults.counts(), expected);
    assert_eq!(
        faults.counts().to_string(),
        "4 packets: 1 dropped, 1 duplicated, 1 corrupted, 1 delayed"
    );
    let fired: Vec<_> = faults.fired().map(|(_, times)| times).collect();
    assert_eq!(fired, [1, 1, 1, 1]);
}

#[test]
fn a_delay_line_orders_packets_by_time_then_arrival() {
    let start = Instant::now();
    let at = |milliseconds| start + Duration::from_millis(milliseconds);
    let mut line = DelayLine::new();
    assert_eq!(line.next_due(), None);
    line.push(at(5), "late");
    line.push(at(2), "first");
    line.push(at(2), "second");
    assert_eq!((line.len(), line.next_due()), (3, Some(at(2))));
    assert_eq!(line.poll_due(at(1)), None);
    assert_eq!(line.poll_due(at(2)), Some("first"));
    assert_eq!(line.poll_due(at(2)), Some("second"));
    assert_eq!(line.poll_due(at(2)), None);
    assert_eq!(line.poll_due(at(9)), Some("late"));
    assert!(line.is_empty());
}

#[test]
fn pop_returns_all_packets_in_the_order_of_their_times() {
    let now = Instant::now();
    let mut line = DelayLine::new();
    line.push(now + Duration::from_secs(9), "last");
    line.push(now + Duration::from_secs(5), "first");
    line.push(now + Duration::from_secs(5), "second");
    let out = std::iter::from_fn(|| line.pop());
    assert!(out.eq(["first", "second", "last"]));
}

#[test]
fn a_constant_delay_keeps_the_order() {
    let due = Instant::now();
    let mut line = DelayLine::new();
    (0..100).for_each(|number| line.push(due, number));
    let out = std::iter::from_fn(|| line.poll_due(due));
    assert!(out.eq(0..100));
}

#[test]
fn numbers_out_of_range_are_rejected() {
    // The first would be a small number in 32 bits.
    for text in ["loss=429497%", "loss=101%", "loss=100.0001%", "dup=100.5%"] {
        assert!(rejected(text).contains("a percentage"), "{text}");
    }
    assert!(rejected("delay=86401s").contains("a whole number with a unit"));
    for text in ["seed=+7", "drop:psn=+5", "drop:psn=0x+5"] {
        assert!(rejected(text).contains("a number"), "{text}");
    }
    for text in ["loss=100%", "delay=86400s", "drop:psn=0xffffff"] {
        faults(text);
    }
}

#[test]
fn a_spec_is_printed_in_its_normal_form() {
    let printed = |text: &str| text.parse::<FaultSpec>().map(|spec| spec.to_string());
    for text in [
        "loss=1%,dup=1%,reorder=1%,corrupt=0.1%,delay=1ms,seed=7",
        "drop:opcode=RC_SEND_ONLY,nth=3; drop:qp=0x11,psn=5,times=1",
        "rx:loss=0.0001%; loss=100%; rx:delay:opcode=ACKNOWLEDGE,by=5ms",
        "reorder:every=7,by=3us",
        "drop:times=1; seed=18446744073709551615",
    ] {
        assert_eq!(printed(text).as_deref(), Ok(text));
    }
    let loose = " LOSS ".to_lowercase() + "= 1.50 % ; ; tx : drop : opcode = ack , qp = 17 ,";
    assert_eq!(
        printed(&loose).as_deref(),
        Ok("loss=1.5%; drop:opcode=ACKNOWLEDGE,qp=0x11")
    );
    assert_eq!(printed("drop:rate=2%").as_deref(), Ok("loss=2%"));
    assert_eq!(printed("delay=1500us").as_deref(), Ok("delay=1500us"));
    assert_eq!(printed("delay=2000µs").as_deref(), Ok("delay=2ms"));
}

#[test]
fn an_error_names_the_position_and_the_correction() {
    let known = [
        (
            "los=1%",
            "column 1: `los` is unknown here; the known names are loss, dup, corrupt, reorder, delay and seed",
        ),
        (
            "loss=1%; drip:nth=1",
            "column 10: `drip` is unknown here; the known names are drop, dup, corrupt, reorder, delay, rnr, late, down, stop and kill",
        ),
        (
            "drop:qpn=1",
            "column 6: `qpn` is unknown here; the known names are context, cm, opcode, qp, psn, nth, every, rate, times and by",
        ),
        (
            "drop:nth=1,opcode=RC_SEND_ONY",
            "column 19: `RC_SEND_ONY` is not an opcode; did you mean RC_SEND_ONLY?",
        ),
        (
            "drop:opcode=xyz",
            "column 13: `xyz` is not an opcode; names look like RC_SEND_ONLY, WRITE_FIRST or ACK",
        ),
        ("loss", "column 1: `loss` needs a value, such as `loss=1%`"),
        (
            "loss=0.01",
            "column 6: `0.01` is not a value for `loss`: expected a percentage such as 1% or 0.1%, with at most four decimals",
        ),
        (
            "delay=5",
            "column 7: `5` is not a value for `delay`: expected a whole number with a unit, such as 1ms, 20us or 1s",
        ),
        (
            "drop:qp=0x1000000",
            "column 9: `0x1000000` is not a value for `qp`: expected a number of at most 24 bits, such as 17 or 0x11",
        ),
        (
            "drop:nth=0",
            "column 10: `0` is not a value for `nth`: expected a count of at least 1, such as 3",
        ),
        (
            "seed=1,seed=2",
            "column 8: `seed` is given twice; keep one of them",
        ),
        (
            "loss=1%,loss=2%",
            "column 9: `loss` is given twice; keep one of them",
        ),
        (
            "drop:psn=1,psn=2",
            "column 12: `psn` is given twice; keep one of them",
        ),
        (
            "drop:nth=1,rate=1%",
            "column 6: `nth`, `every` and `rate` exclude each other; keep one of them",
        ),
        (
            "loss=1%,drop:nth=1",
            "column 9: a rule needs a clause of its own: write `;` instead of `,` before `drop:`",
        ),
        (
            "rx:drop",
            "column 4: `drop` needs a condition, such as `drop:times=1` for the first packet",
        ),
        (
            "dup:",
            "column 1: `dup` needs a condition, such as `dup:times=1` for the first packet",
        ),
        (
            "delay:nth=1",
            "column 1: `delay` needs a duration: add `by=5ms`",
        ),
        (
            "drop:nth=1,by=1ms",
            "column 6: `by` is the duration of `delay`, `reorder`, `late`, `down` and `stop`; remove it from `drop`",
        ),
    ];
    for (text, expected) in known {
        assert_eq!(rejected(text), format!("fault specification, {expected}"));
    }
}

/// Text that is nearly right more often than arbitrary text is.
fn nearly_right() -> impl Strategy<Value = String> {
    let word = prop::sample::select(vec![
        "loss",
        "dup",
        "corrupt",
        "reorder",
        "delay",
        "seed",
        "drop",
        "opcode",
        "qp",
        "psn",
        "nth",
        "every",
        "rate",
        "times",
        "by",
        "context",
        "cm",
        "rnr",
        "late",
        "down",
        "stop",
        "kill",
        "REQ",
        "tx",
        "rx",
        ":",
        ":",
        "=",
        "=",
        ",",
        ";",
        " ",
        "1%",
        "0.5%",
        "7",
        "0x11",
        "5ms",
        "RC_SEND_ONLY",
        "ACK",
        "µ",
    ]);
    prop::collection::vec(word, 0..12).prop_map(|words| words.concat())
}

fn rule() -> impl Strategy<Value = String> {
    let direction = prop::sample::select(vec!["", "tx:", "rx:"]);
    let action = prop::sample::select(vec![
        "drop", "dup", "corrupt", "reorder", "delay", "rnr", "late", "down", "stop", "kill",
    ]);
    let filter = prop::sample::select(vec![
        "",
        "opcode=UC_WRITE,",
        "qp=3,",
        "psn=0xff,",
        "context=2,cm=REQ,",
    ]);
    let choice = prop_oneof![
        (1_u64..9).prop_map(|n| format!("nth={n}")),
        (1_u64..9).prop_map(|n| format!("every={n}")),
        (0_u32..100).prop_map(|n| format!("rate={n}.{n:02}%")),
        (1_u64..9).prop_map(|n| format!("times={n}")),
    ];
    let by = 0_u64..10_000_000;
    (direction, action, filter, choice, by).prop_map(|(direction, action, filter, choice, by)| {
        let by = match action {
            "delay" | "reorder" | "late" | "down" | "stop" => format!(",by={by}ns"),
            _ => String::new(),
        };
        format!("{direction}{action}:{filter}{choice}{by}")
    })
}

proptest! {
    #[test]
    fn any_text_parses_or_is_an_error(text in prop_oneof![any::<String>(), nearly_right()]) {
        if let Ok(spec) = text.parse::<FaultSpec>() {
            prop_assert_eq!(spec.to_string().parse::<FaultSpec>(), Ok(spec));
        }
    }

    #[test]
    fn a_printed_spec_parses_to_the_same_spec(rules in prop::collection::vec(rule(), 0..5), seed: u64) {
        let text = format!("{};seed={seed}", rules.join(";"));
        let spec: FaultSpec = text.parse().expect("right");
        prop_assert_eq!(spec.rules().len(), rules.len());
        prop_assert_eq!(spec.to_string().parse::<FaultSpec>(), Ok(spec));
    }
}
