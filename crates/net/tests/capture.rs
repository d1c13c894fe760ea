//! Capture files, read back by ourselves and by Wireshark's dissectors.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use net::Direction;
use net::tap::capture::{Capture, Note, Record};
use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::{Block, PcapNgReader};
use wire::{Datagram, Flow, Fragmentation, Opcode, PacketHead, Psn, Qpn, icrc};

/// A directory that disappears with the test.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("roci-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a directory");
        Directory(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn flow(source: &str, destination: &str) -> Flow {
    Flow {
        source: source.parse().expect("an address"),
        destination: destination.parse().expect("an address"),
        source_port: 0xc001,
        destination_port: 4791,
    }
}

fn sealed(flow: &Flow, identification: u16, psn: u32) -> Vec<u8> {
    let head = PacketHead::new(Opcode::RcSendOnly, Qpn::new(0x11), Psn::new(psn));
    let mut packet = [head.bytes(), b"sixteen bytes..!"].concat();
    packet.extend(icrc::checksum(flow, identification, &packet));
    packet
}

/// A moment with something in the last digit of a nanosecond.
fn moment() -> SystemTime {
    UNIX_EPOCH + Duration::new(1_700_000_000, 123_456_789)
}

fn record<'a>(flow: &'a Flow, payload: &'a [u8]) -> Record<'a> {
    Record {
        time: moment(),
        direction: Direction::Transmit,
        flow,
        fragmentation: Fragmentation::NONE,
        traffic_class: 0,
        hop_limit: 64,
        payload,
        comment: None,
    }
}

/// The packets of a file, up to the place where it was cut off, if it was.
fn read(path: &Path) -> Vec<EnhancedPacketBlock<'static>> {
    let mut reader = PcapNgReader::new(File::open(path).expect("a file")).expect("a capture");
    let mut packets = Vec::new();
    while let Some(Ok(block)) = reader.next_block() {
        if let Block::EnhancedPacket(packet) = block.into_owned() {
            packets.push(packet);
        }
    }
    packets
}

/// Whether the ICRC fits the headers as they stand in the file.
fn is_intact(datagram: &Datagram<'_>) -> bool {
    let (packet, found) = datagram.payload.split_last_chunk::<4>().expect("an ICRC");
    let identification = datagram.fragmentation.identification;
    *found == icrc::checksum(&datagram.flow, identification, packet)
}

#[test]
fn everything_recorded_is_read_back() {
    let directory = Directory::new("roundtrip");
    let flows = [flow("10.0.0.1", "10.0.0.2"), flow("fd00::1", "fd00::2")];
    let capture = Capture::create(directory.file("a.pcapng")).expect("a capture");
    for flow in &flows {
        let identification = if flow.source.is_ipv4() { 7 } else { 0 };
        let payload = sealed(flow, identification, 1);
        capture.record(&Record {
            direction: Direction::Receive,
            fragmentation: Fragmentation {
                identification,
                dont_fragment: true,
            },
            traffic_class: 0x20,
            hop_limit: 63,
            comment: Some("SEND wr_id 42"),
            ..record(flow, &payload)
        });
    }
    capture.flush();

    let packets = read(capture.path());
    assert_eq!(packets.len(), 2);
    for (packet, flow) in packets.iter().zip(&flows) {
        assert_eq!(
            packet.timestamp,
            moment().duration_since(UNIX_EPOCH).unwrap()
        );
        let comment = EnhancedPacketOption::Comment("SEND wr_id 42".into());
        let inbound = EnhancedPacketOption::Flags(1);
        assert_eq!(packet.options, [comment, inbound]);
        let datagram = Datagram::parse_ip(&packet.data).expect("a datagram");
        assert_eq!(datagram.flow, *flow);
        assert_eq!((datagram.traffic_class, datagram.hop_limit), (0x20, 63));
        assert!(is_intact(&datagram));
    }
}

#[test]
fn a_capture_that_is_dropped_is_complete() {
    let directory = Directory::new("dropped");
    let flow = flow("10.0.0.1", "10.0.0.2");
    let payload = sealed(&flow, 0, 1);
    let capture = Capture::create(directory.file("a.pcapng")).expect("a capture");
    capture.record(&record(&flow, &payload));
    assert_eq!(read(capture.path()).len(), 0, "not flushed yet");
    drop(capture);
    assert_eq!(read(&directory.file("a.pcapng")).len(), 1);
}

#[test]
fn packets_are_written_without_an_explicit_flush() {
    let directory = Directory::new("never");
    let flow = flow("10.0.0.1", "10.0.0.2");
    let payload = sealed(&flow, 0, 1);
    let capture = Capture::create(directory.file("a.pcapng")).expect("a capture");
    for _ in 0..5_000 {
        capture.record(&record(&flow, &payload));
    }
    assert!(read(capture.path()).len() > 2_000);
}

#[test]
fn a_comment_of_any_length_leaves_the_file_readable() {
    let directory = Directory::new("comment");
    let flow = flow("10.0.0.1", "10.0.0.2");
    let payload = sealed(&flow, 0, 1);
    let capture = Capture::create(directory.file("a.pcapng")).expect("a capture");
    let long = "µ".repeat(100_000);
    for comment in ["", "a", "ab", &long] {
        let comment = Some(comment);
        capture.record(&Record {
            comment,
            ..record(&flow, &payload)
        });
    }
    capture.flush();
    assert_eq!(read(capture.path()).len(), 4);
}

#[test]
fn one_name_for_several_writers_gives_several_files() {
    let directory = Directory::new("names");
    let name = directory.file("a.pcapng");
    let first = Capture::create(&name).expect("a capture");
    let second = Capture::create(&name).expect("a capture");
    let third = Capture::create(&name).expect("a capture");
    let process = std::process::id();
    assert_eq!(first.path(), name);
    assert_eq!(
        second.path(),
        directory.file(&format!("a-{process}.pcapng"))
    );
    assert_eq!(
        third.path(),
        directory.file(&format!("a-{process}-2.pcapng"))
    );

    drop(first);
    let next = Capture::create(&name).expect("a capture");
    assert_eq!(next.path(), name, "the first one is done with it");
    let named = Capture::create(directory.file("b-%p.pcapng")).expect("a capture");
    assert_eq!(named.path(), directory.file(&format!("b-{process}.pcapng")));
}

#[test]
fn an_existing_file_is_replaced() {
    let directory = Directory::new("replaced");
    let name = directory.file("a.pcapng");
    fs::write(&name, vec![0xaa; 10_000]).expect("a file");
    drop(Capture::create(&name).expect("a capture"));
    assert!(read(&name).is_empty());
    assert!(fs::metadata(&name).expect("a file").len() < 1_000);
}

#[test]
fn a_file_that_cannot_be_created_is_named() {
    let error = Capture::create("/no/such/directory/a.pcapng").unwrap_err();
    let text = error.to_string();
    assert!(text.contains("/no/such/directory/a.pcapng"), "{text}");
}

#[test]
fn a_full_disk_ends_the_capture_and_nothing_else() {
    let capture = Capture::create("/dev/full").expect("it opens");
    let flow = flow("10.0.0.1", "10.0.0.2");
    let payload = sealed(&flow, 0, 1);
    for _ in 0..10 {
        capture.record(&record(&flow, &payload));
        capture.flush();
    }
    let error = capture.take_error().expect("the disk is full").to_string();
    assert!(
        error.contains("/dev/full ends early: No space left"),
        "{error}"
    );
    capture.record(&record(&flow, &payload));
    capture.flush();
    assert!(capture.take_error().is_none(), "reported once");
}

/// A pipe in a directory of the test.
fn pipe(directory: &Directory) -> PathBuf {
    let pipe = directory.file("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status();
    assert!(made.expect("mkfifo").success());
    pipe
}

#[test]
fn a_stalled_reader_of_a_pipe_does_not_stop_the_program() {
    // Several times what waits for the reader at most.
    const PACKETS: usize = 20_000;
    let directory = Directory::new("stalled");
    let pipe = pipe(&directory);
    let opened = pipe.clone();
    let reader = thread::spawn(move || File::open(opened).expect("a reader"));
    let capture = Capture::create(&pipe).expect("it opens");
    let mut reader = reader.join().expect("a reader");
    let flow = flow("10.0.0.1", "10.0.0.2");
    let payload = vec![7; 4000];
    for _ in 0..PACKETS {
        capture.record(&record(&flow, &payload));
        capture.flush();
    }
    assert!(capture.take_error().is_none());
    // The reader goes on, and gets whole packets. Those in the middle are missing.
    let copy = directory.file("copy.pcapng");
    let mut file = File::create(&copy).expect("a file");
    let copying = thread::spawn(move || std::io::copy(&mut reader, &mut file).expect("a pipe"));
    capture.drain();
    capture.record(&record(&flow, b"the last one"));
    drop(capture);
    copying.join().expect("a copy");
    let packets = read(&copy);
    assert!(
        packets.len() > 1000 && packets.len() < PACKETS,
        "{}",
        packets.len()
    );
}

#[test]
fn a_pipe_without_a_reader_any_more_ends_the_capture_and_not_the_program() {
    let directory = Directory::new("broken");
    let pipe = pipe(&directory);
    let opened = pipe.clone();
    let reader = thread::spawn(move || File::open(opened).expect("a reader"));
    let capture = Capture::create(&pipe).expect("it opens");
    drop(reader.join());
    let flow = flow("10.0.0.1", "10.0.0.2");
    let payload = sealed(&flow, 0, 1);
    for _ in 0..2 {
        capture.record(&record(&flow, &payload));
        capture.drain();
    }
    let error = capture.take_error().expect("the reader is gone");
    assert!(error.to_string().contains("Broken pipe"), "{error}");
}

#[test]
fn a_reader_that_keeps_up_gets_every_packet() {
    let directory = Directory::new("reader");
    let pipe = pipe(&directory);
    let copy = directory.file("copy.pcapng");
    let mut reader = Command::new("cat")
        .arg(&pipe)
        .stdout(File::create(&copy).expect("a file"))
        .spawn()
        .expect("cat");
    let capture = Capture::create(&pipe).expect("it opens");
    let flow = flow("10.0.0.1", "10.0.0.2");
    for psn in 0..3000 {
        let payload = sealed(&flow, 0, psn);
        capture.record(&record(&flow, &payload));
        capture.flush();
    }
    drop(capture);
    reader.wait().expect("cat");
    assert_eq!(read(&copy).len(), 3000);
}

/// What the tests below start as another process: it records until it is killed.
#[test]
#[ignore = "runs as a child of the test that kills it"]
fn child_that_records_for_ever() {
    let name = std::env::var_os("CAPTURE_NAME").expect("a name");
    let capture = Capture::create(name).expect("a capture");
    let flow = flow("10.0.0.1", "10.0.0.2");
    for psn in 0.. {
        let payload = sealed(&flow, 0, psn);
        capture.record(&record(&flow, &payload));
        if psn % 64 == 63 {
            capture.flush();
        }
    }
}

#[test]
fn a_killed_process_leaves_a_readable_file() {
    let directory = Directory::new("killed");
    for round in 0..5 {
        let name = directory.file(&format!("{round}.pcapng"));
        let mut child = Command::new(std::env::current_exe().expect("this test"))
            .args(["child_that_records_for_ever", "--exact", "--ignored"])
            .env("CAPTURE_NAME", &name)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("a child");
        wait_for_length(&name, 100_000 + round * 7_777);
        child.kill().expect("SIGKILL");
        child.wait().expect("its end");

        let packets = read(&name);
        assert!(packets.len() >= 500, "{} packets", packets.len());
        for (psn, packet) in (0..).zip(&packets) {
            let datagram = Datagram::parse_ip(&packet.data).expect("a datagram");
            let parsed = wire::Packet::parse(datagram.payload).expect("a packet");
            assert_eq!(parsed.psn, Psn::new(psn), "none is missing");
        }
        if let Some(lines) = tshark(&name, &["frame.number"]) {
            assert_eq!(lines.len(), packets.len());
        }
        let again = Capture::create(&name).expect("a capture");
        assert_eq!(again.path(), name, "its lock died with it");
    }
}

/// What the test below starts as another process: it begins a capture and ends.
#[test]
#[ignore = "runs as a child of the test about runs"]
fn child_that_begins_a_capture() {
    let name = std::env::var_os("CAPTURE_NAME").expect("a name");
    drop(Capture::create(name).expect("a capture"));
}

#[test]
fn processes_of_one_run_go_on_in_a_capture_and_others_replace_it() {
    let directory = Directory::new("run");
    let name = directory.file("a.pcapng");
    let sections = |run: &str| {
        let status = Command::new(std::env::current_exe().expect("this test"))
            .args(["child_that_begins_a_capture", "--exact", "--ignored"])
            .env("CAPTURE_NAME", &name)
            .env("ROCI_RUN", run)
            .stdout(Stdio::null())
            .status()
            .expect("a child");
        assert!(status.success());
        let bytes = fs::read(&name).expect("a file");
        let headers = bytes.windows(4).filter(|it| *it == b"\x0a\x0d\x0d\x0a");
        headers.count()
    };
    assert_eq!(sections("17"), 1);
    assert_eq!(sections("17"), 2);
    assert_eq!(sections("18"), 1);
    // An empty run id never matches, so the file is replaced.
    assert_eq!(sections(""), 1);
    assert_eq!(sections(""), 1);
}

fn wait_for_length(path: &Path, length: u64) {
    let start = Instant::now();
    while fs::metadata(path).map_or(0, |metadata| metadata.len()) < length {
        assert!(
            start.elapsed() < Duration::from_secs(30),
            "nothing recorded"
        );
        thread::sleep(Duration::from_millis(1));
    }
}

/// Every intact frame that the kernel's own device sent in the captures of `wire`.
fn golden_frames() -> Vec<Vec<u8>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../wire/tests/golden");
    let mut directories = vec![root];
    let mut frames = Vec::new();
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).expect("the captures of wire") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|e| e == "pcap")
                && !path.ends_with("host-bad-icrc.pcap")
            {
                frames.extend(frames_of(&path));
            }
        }
    }
    frames
}

fn frames_of(path: &Path) -> Vec<Vec<u8>> {
    let mut reader = PcapReader::new(File::open(path).expect("a file")).expect("a capture");
    let mut frames = Vec::new();
    while let Some(packet) = reader.next_packet() {
        frames.push(packet.expect("a frame").data.into_owned());
    }
    frames
}

fn comment(index: usize) -> Option<String> {
    index
        .is_multiple_of(3)
        .then(|| format!("packet wr_id {index}"))
}

/// Records the golden frames, every other one as sent by us.
fn golden_capture(directory: &Directory, frames: &[Vec<u8>]) -> PathBuf {
    let capture = Capture::create(directory.file("golden.pcapng")).expect("a capture");
    for (index, frame) in frames.iter().enumerate() {
        let datagram = Datagram::parse_ethernet(frame).expect("a datagram");
        let comment = comment(index);
        capture.record(&Record {
            time: moment() + Duration::from_nanos(index as u64),
            direction: [Direction::Transmit, Direction::Receive][index % 2],
            flow: &datagram.flow,
            fragmentation: datagram.fragmentation,
            traffic_class: datagram.traffic_class,
            hop_limit: datagram.hop_limit,
            payload: datagram.payload,
            comment: comment.as_deref(),
        });
    }
    capture.path().to_owned()
}

#[test]
fn packets_of_the_kernel_are_recorded_unchanged() {
    let directory = Directory::new("golden");
    let frames = golden_frames();
    assert!(frames.len() > 1_700, "{} frames", frames.len());
    let packets = read(&golden_capture(&directory, &frames));
    assert_eq!(packets.len(), frames.len());
    for (packet, frame) in packets.iter().zip(&frames) {
        let recorded = Datagram::parse_ip(&packet.data).expect("a datagram");
        let mut original = Datagram::parse_ethernet(frame).expect("a datagram");
        original.flow_label = 0;
        assert_eq!(recorded, original);
        assert!(is_intact(&recorded));
    }
}

/// The fields of every packet as tshark shows them; none if there is no tshark.
fn tshark(path: &Path, fields: &[&str]) -> Option<Vec<Vec<String>>> {
    let mut command = Command::new("tshark");
    command.arg("-r").arg(path);
    command.args([
        "-o",
        "ip.check_checksum:TRUE",
        "-o",
        "udp.check_checksum:TRUE",
    ]);
    // It takes random payload for its own.
    command.args(["--disable-protocol", "rpcordma"]);
    command.args(["-T", "fields", "-E", "separator=|"]);
    for field in fields {
        command.args(["-e", field]);
    }
    let Ok(output) = command.output() else {
        println!("skipped: tshark is not installed");
        return None;
    };
    let text = String::from_utf8(output.stdout).expect("text");
    let split = |line: &str| line.split('|').map(str::to_owned).collect();
    Some(text.lines().map(split).collect())
}

/// libpcap knows neither journal entries nor most options, and must skip them.
#[test]
fn tcpdump_reads_a_capture_with_notes() {
    let directory = Directory::new("tcpdump");
    let path = directory.file("notes.pcapng");
    let capture = Capture::create(&path).expect("a capture");
    let flow = flow("10.0.0.1", "10.0.0.2");
    for id in 0..3 {
        capture.note(&Note {
            time: moment(),
            message: "a note",
            fields: &[("ROCI_WR_ID", id.to_string())],
        });
        capture.record(&record(&flow, &sealed(&flow, 0, id)));
    }
    drop(capture);
    let tcpdump = Command::new("tcpdump")
        .args(["-n", "-r"])
        .arg(&path)
        .output();
    let Ok(output) = tcpdump else {
        return println!("skipped: tcpdump is not installed");
    };
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complaints}");
    let lines = String::from_utf8_lossy(&output.stdout).lines().count();
    assert_eq!(lines, 3, "{complaints}");
}

#[test]
fn wireshark_dissects_every_packet() {
    let directory = Directory::new("tshark");
    let frames = golden_frames();
    let path = golden_capture(&directory, &frames);
    let fields = [
        "infiniband.bth.opcode",
        "infiniband.invariant.crc",
        "_ws.malformed",
        "ip.checksum.status",
        "udp.checksum.status",
        "frame.packet_flags_direction",
        "frame.comment",
        "frame.time_epoch",
    ];
    let Some(lines) = tshark(&path, &fields) else {
        return;
    };
    assert_eq!(lines.len(), frames.len());
    for (index, (line, frame)) in lines.iter().zip(&frames).enumerate() {
        let datagram = Datagram::parse_ethernet(frame).expect("a datagram");
        let packet = wire::Packet::parse(datagram.payload).expect("a packet");
        let [opcode, crc, malformed, ip, udp, direction, said, time] = &line[..] else {
            panic!("packet {index}: {line:?}");
        };
        assert_eq!(*opcode, packet.opcode.byte().to_string(), "packet {index}");
        // tshark 4.0 shows no ICRC behind an empty SEND.
        if !packet.payload.is_empty() || !crc.is_empty() {
            let found = datagram.payload.last_chunk().expect("an ICRC");
            let found = format!("0x{:08x}", u32::from_be_bytes(*found));
            assert_eq!(*crc, found, "packet {index}");
        }
        assert_eq!(malformed, "", "packet {index}");
        let good_if_ipv4 = if datagram.flow.source.is_ipv4() {
            "1"
        } else {
            ""
        };
        assert_eq!(ip, good_if_ipv4, "packet {index}");
        assert_eq!(udp, "1", "packet {index}");
        assert_eq!(direction, ["0x00000002", "0x00000001"][index % 2]);
        assert_eq!(*said, comment(index).unwrap_or_default());
        assert_eq!(*time, format!("1700000000.{}", 123_456_789 + index));
    }
}
