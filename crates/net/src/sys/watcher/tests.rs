//! Ends a process with a watcher in many ways, and checks that the datagrams arrive. The test
//! program starts itself again as that process.

use std::env;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio, abort, exit};
use std::sync::Arc;
use std::time::{Duration, Instant};

use wire::{Flow, IcrcChecker, Route};

use super::layout::{MAX_SLOTS, SLOT_LENGTH};
use crate::socket::{Sender, reseal};
use crate::sys::process::fork;
use crate::sys::seccomp::{Forbidden, forbid};
use crate::watcher::{Notice, Source, Watcher, WatcherError};

const PORT: &str = "ROCI_TEST_WATCHER_PORT";
const HOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// How long to wait for notices: a loaded machine takes longer than the promised 100 ms.
const NOTICE_TIMEOUT: Duration = Duration::from_secs(5);

/// How long to wait to be sure that nothing arrives: longer than the first pauses of the watcher.
const NO_NOTICE_TIMEOUT: Duration = Duration::from_millis(400);

/// When the watcher sends, in milliseconds after the end of its owner.
const TIMES: [u64; 7] = [0, 50, 200, 1000, 3000, 7000, 15_000];

/// The watched process, and the socket that receives its notices.
struct Owner {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
    peer: UdpSocket,
}

impl Owner {
    /// Starts it with one notice.
    fn start() -> Self {
        let mut owner = Self::without_watcher();
        let answer = owner.ask("open");
        assert!(answer.starts_with("open "), "{answer}");
        owner
    }

    /// Starts it, in a process group of its own.
    fn without_watcher() -> Self {
        let peer = UdpSocket::bind((HOST, 0)).unwrap();
        peer.set_read_timeout(Some(NOTICE_TIMEOUT)).unwrap();
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["sys::watcher::tests::owner", "--exact", "--ignored"])
            .args(["--nocapture", "--quiet"])
            .env(PORT, peer.local_addr().unwrap().port().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut owner = Self {
            child,
            output,
            peer,
        };
        assert_eq!(owner.line(), "ready");
        owner
    }

    fn ask(&mut self, order: &str) -> String {
        self.tell(order);
        self.line()
    }

    fn tell(&mut self, order: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{order}").unwrap();
    }

    /// The next line that the process printed, without those of the test harness.
    fn line(&mut self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert_ne!(self.output.read_line(&mut line).unwrap(), 0, "it is gone");
            if let Some((_, text)) = line.trim_end().split_once("> ") {
                return text.to_owned();
            }
        }
    }

    /// The watchers of this process: the processes that have a descriptor of it.
    fn watchers(&self) -> Vec<u32> {
        watchers_of(self.child.id())
    }

    fn signal(&self, signal: libc::c_int, to_group: bool) {
        let pid = self.child.id().cast_signed();
        // SAFETY: takes no pointers. The process and its group are our own child's.
        let result = unsafe { libc::kill(if to_group { -pid } else { pid }, signal) };
        assert_eq!(result, 0);
    }

    /// Expects the notice three times, the first within the promised time.
    fn expect_notices(&self, since: Instant, way: &str) {
        for repetition in 0..3 {
            let text = self
                .receive()
                .unwrap_or_else(|| panic!("{way}: nothing came"));
            assert_eq!(text, b"gone", "{way}");
            if repetition == 0 {
                println!("{way}: announced after {:?}", since.elapsed());
            }
        }
    }

    fn expect_silence(&self) {
        self.peer.set_read_timeout(Some(NO_NOTICE_TIMEOUT)).unwrap();
        assert_eq!(self.receive(), None);
    }

    /// The payload of a packet whose ICRC is right.
    fn receive(&self) -> Option<Vec<u8>> {
        let mut buffer = [0; 512];
        let (length, from) = self.peer.recv_from(&mut buffer).ok()?;
        let flow = Flow {
            source: from.ip(),
            destination: HOST,
            source_port: from.port(),
            destination_port: self.peer.local_addr().unwrap().port(),
        };
        let packet = &buffer[..length];
        IcrcChecker::new()
            .check(&flow, packet)
            .expect("its ICRC is right");
        Some(packet[12..length - 4].to_vec())
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn watchers_of(pid: u32) -> Vec<u32> {
    let wanted = format!("Pid:\t{pid}\n");
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let numbers = processes.filter_map(|it| it.file_name().to_str()?.parse().ok());
    numbers
        .filter(|it| name_of(*it).as_deref() == Some("roci-watcher"))
        .filter(|it| {
            let Ok(descriptors) = fs::read_dir(format!("/proc/{it}/fdinfo")) else {
                return false;
            };
            let texts = descriptors.flatten();
            texts
                .filter_map(|it| fs::read_to_string(it.path()).ok())
                .any(|text| text.contains(&wanted))
        })
        .collect()
}

fn name_of(pid: u32) -> Option<String> {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(name.trim_end().to_owned())
}

/// The state of a process, such as `S` for one that sleeps.
fn state_of(pid: u32) -> Option<char> {
    let fields = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    fields.rsplit_once(") ")?.1.chars().next()
}

/// Waits until there are this many watchers. Returns them.
fn until(owner: &Owner, count: usize) -> Vec<u32> {
    let begin = Instant::now();
    loop {
        let watchers = owner.watchers();
        if watchers.len() == count {
            return watchers;
        }
        assert!(begin.elapsed() < NOTICE_TIMEOUT, "{watchers:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Not a test: the code of the watched process.
#[test]
#[ignore = "started by other tests as a process of its own"]
fn owner() {
    let Ok(port) = env::var(PORT) else { return };
    let mut owned: Option<Owned> = None;
    heed_signals();
    say("ready");
    for order in io::stdin().lines().map_while(Result::ok) {
        let answer = match order.as_str() {
            "exit" => exit(0),
            "abort" => abort(),
            // SAFETY: takes no pointers and does not return.
            "_exit" => unsafe { libc::_exit(3) },
            "segfault" => segfault(),
            "exec" => panic!("{}", Command::new("sleep").arg("10").exec()),
            // The forked child runs for ten more seconds; only the parent ends.
            "daemonize" => {
                fork(|| {});
                exit(0)
            }
            "wait" => wait_for_any().to_string(),
            "clear" => {
                owned.as_mut().unwrap().notice.clear();
                "cleared".to_owned()
            }
            "move" => {
                move_notice();
                "moved".to_owned()
            }
            "close" => {
                owned = None;
                format!("closed {}", open_descriptors())
            }
            "open" => match Owned::new(port.parse().unwrap()) {
                Ok(new) => {
                    owned = Some(new);
                    format!("open {}", open_descriptors())
                }
                Err(error) => format!("{error:?}"),
            },
            "adopt" => {
                // SAFETY: takes no pointers.
                let set = unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
                set.to_string()
            }
            "forbid ppoll" => {
                forbid(Forbidden {
                    call: libc::SYS_ppoll,
                    // The watcher passes no signal mask.
                    argument: 3,
                    value: 0,
                    errno: libc::EPERM,
                });
                "forbidden".to_owned()
            }
            other => panic!("what is `{other}`?"),
        };
        say(&answer);
    }
}

/// Lets signals end this process. `nohup` and the background jobs of a shell ignore some signals,
/// and children inherit that.
fn heed_signals() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: the default action is no function of this program.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// Moves the notice beyond the last slot, as any process of the user can.
fn move_notice() {
    let descriptors = fs::read_dir("/proc/self/fd").unwrap().flatten();
    let is_table = |path: &std::path::Path| {
        let target = fs::read_link(path).unwrap_or_default();
        target.to_string_lossy().contains("roci-exit-notices")
    };
    let path = descriptors.map(|it| it.path()).find(|it| is_table(it));
    let mut options = fs::OpenOptions::new();
    let table = options.read(true).write(true).open(path.unwrap()).unwrap();
    let mut slot = [0; SLOT_LENGTH];
    table.read_exact_at(&mut slot, 0).unwrap();
    let beyond = (MAX_SLOTS * SLOT_LENGTH) as u64;
    table.write_all_at(&slot, beyond).unwrap();
    table.write_all_at(&[0; SLOT_LENGTH], 0).unwrap();
}

fn say(text: &str) {
    println!("> {text}");
}

/// What the process keeps so that its notices are sent.
struct Owned {
    notice: Notice,
    _source: Source,
    _watcher: Arc<Watcher>,
}

impl Owned {
    fn new(port: u16) -> Result<Self, WatcherError> {
        let sender = Sender::bind(HOST).unwrap();
        let watcher = Watcher::of_process()?;
        let source = watcher.source(&sender).unwrap();
        let mut notice = source.notice();
        let flow = Flow {
            destination_port: port,
            ..sender.flow_to(HOST)
        };
        let mut packet = *b"\x64............gone....";
        let packet = &mut packet[1..];
        reseal(&flow, packet);
        let route = Route::new(flow);
        notice.set(&sender, &route, packet).unwrap();
        Ok(Self {
            notice,
            _source: source,
            _watcher: watcher,
        })
    }
}

/// The error of `wait` without a child.
fn wait_for_any() -> i32 {
    // SAFETY: a null pointer for the status is allowed.
    let result = unsafe { libc::wait(std::ptr::null_mut()) };
    assert_eq!(result, -1, "a child that the program did not start");
    io::Error::last_os_error().raw_os_error().unwrap()
}

fn segfault() -> ! {
    let nowhere = std::ptr::dangling_mut::<u8>();
    // SAFETY: none. Nothing is mapped there, so the kernel ends this process, as the test wants.
    unsafe { nowhere.write_volatile(0) };
    unreachable!("nobody lives at address 1")
}

fn open_descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn every_end_of_a_process_is_announced() {
    for way in ["exit", "_exit", "abort", "segfault", "exec", "daemonize"] {
        let mut owner = Owner::start();
        let begin = Instant::now();
        owner.tell(way);
        owner.expect_notices(begin, way);
    }
}

/// A container may forbid `ppoll`. A watcher that tries it again and again uses a whole CPU, and
/// does not see the end of its owner.
#[test]
fn a_watcher_that_may_not_poll_sleeps_and_ends_with_its_owner() {
    let mut owner = Owner::without_watcher();
    assert_eq!(owner.ask("forbid ppoll"), "forbidden");
    let answer = owner.ask("open");
    assert!(answer.starts_with("open "), "{answer}");
    let [watcher] = until(&owner, 1)[..] else {
        unreachable!()
    };
    let begin = Instant::now();
    while state_of(watcher) != Some('S') {
        assert!(begin.elapsed() < NOTICE_TIMEOUT, "it does not sleep");
        std::thread::sleep(Duration::from_millis(2));
    }
    owner.tell("exit");
    assert_eq!(owner.receive().expect("a notice"), b"gone");
    until(&owner, 0);
}

/// A peer whose network is interrupted for some seconds must learn of the end, too.
#[test]
fn notices_are_repeated_for_fifteen_seconds() {
    let mut owner = Owner::start();
    let begin = Instant::now();
    owner.tell("exit");
    owner
        .peer
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    for time in TIMES {
        assert_eq!(owner.receive().expect("a notice"), b"gone");
        assert!(begin.elapsed() >= Duration::from_millis(time), "{time} ms");
    }
    owner.expect_silence();
    until(&owner, 0);
}

#[test]
fn every_signal_that_ends_a_process_is_announced() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGKILL, libc::SIGHUP] {
        let owner = Owner::start();
        let begin = Instant::now();
        owner.signal(signal, false);
        owner.expect_notices(begin, &format!("signal {signal}"));
    }
}

#[test]
fn a_signal_to_the_process_group_does_not_end_the_watcher() {
    for signal in [libc::SIGINT, libc::SIGKILL] {
        let owner = Owner::start();
        let begin = Instant::now();
        owner.signal(signal, true);
        owner.expect_notices(begin, &format!("signal {signal} to the group"));
    }
}

#[test]
fn a_signal_to_the_watcher_does_not_end_it() {
    let owner = Owner::start();
    let [watcher] = until(&owner, 1)[..] else {
        unreachable!()
    };
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: takes no pointers; the watcher belongs to our own child.
        unsafe { libc::kill(watcher.cast_signed(), signal) };
    }
    let begin = Instant::now();
    owner.signal(libc::SIGKILL, false);
    owner.expect_notices(begin, "after signals to the watcher");
}

#[test]
fn the_watcher_holds_nothing_of_its_owner() {
    let owner = Owner::start();
    let [watcher] = until(&owner, 1)[..] else {
        unreachable!()
    };
    // Control, table, process descriptor and socket. The socket may not have arrived yet.
    let begin = Instant::now();
    let directory = format!("/proc/{watcher}/fd");
    while fs::read_dir(&directory).unwrap().count() != 4 {
        assert!(begin.elapsed() < NOTICE_TIMEOUT);
        std::thread::yield_now();
    }
    assert_eq!(
        fs::read_link(format!("/proc/{watcher}/cwd")).unwrap(),
        std::path::Path::new("/")
    );
    let status = fs::read_to_string(format!("/proc/{watcher}/stat")).unwrap();
    let fields: Vec<&str> = status.split(' ').collect();
    let (parent, session) = (fields[3], fields[5]);
    assert_ne!(parent, owner.child.id().to_string());
    assert_eq!(session, watcher.to_string());
}

#[test]
fn the_output_ends_with_the_owner_and_not_with_the_watcher() {
    let mut owner = Owner::start();
    let [watcher] = until(&owner, 1)[..] else {
        unreachable!()
    };
    owner.tell("exit");
    let mut rest = String::new();
    owner.output.read_to_string(&mut rest).unwrap();
    // It repeats the notice for fifteen seconds more.
    let is_running = state_of(watcher).is_some_and(|state| state != 'Z');
    assert!(is_running, "it held the pipe");
    assert_eq!(owner.receive().expect("a notice"), b"gone");
}

#[test]
fn wait_does_not_see_the_watcher() {
    let mut owner = Owner::start();
    until(&owner, 1);
    assert_eq!(owner.ask("wait"), libc::ECHILD.to_string());
}

#[test]
fn a_process_that_adopts_orphans_has_no_watcher() {
    let mut owner = Owner::without_watcher();
    assert_eq!(owner.ask("adopt"), "0");
    assert_eq!(owner.ask("open"), "AdoptsOrphans");
    assert_eq!(owner.ask("wait"), libc::ECHILD.to_string());
}

#[test]
fn an_orderly_end_is_not_announced() {
    let mut owner = Owner::start();
    owner.ask("clear");
    owner.tell("exit");
    owner.expect_silence();
    until(&owner, 0);
}

#[test]
fn a_notice_beyond_the_last_slot_is_not_read() {
    let mut owner = Owner::start();
    assert_eq!(owner.ask("move"), "moved");
    owner.tell("exit");
    owner.expect_silence();
    until(&owner, 0);
}

#[test]
fn the_watcher_ends_with_the_last_user_and_leaves_no_descriptor() {
    let mut owner = Owner::start();
    until(&owner, 1);
    let closed = owner.ask("close");
    until(&owner, 0);
    let open = owner.ask("open");
    until(&owner, 1);
    for _ in 0..5 {
        assert_eq!(owner.ask("close"), closed);
        assert_eq!(owner.ask("open"), open);
    }
    until(&owner, 1);
    owner.expect_silence();
}

#[test]
fn threads_that_begin_at_once_share_one_watcher() {
    let watchers: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| Watcher::of_process().unwrap()))
            .collect();
        threads.into_iter().map(|it| it.join().unwrap()).collect()
    });
    let first = &watchers[0];
    assert!(watchers.iter().all(|it| Arc::ptr_eq(it, first)));
}

#[test]
fn a_watcher_starts_quickly() {
    let mut times: Vec<_> = (0..20)
        .map(|_| {
            let begin = Instant::now();
            let watcher = Watcher::start().unwrap();
            (begin.elapsed(), watcher)
        })
        .map(|(time, _)| time)
        .collect();
    times.sort();
    println!("started within {:?}, at most {:?}", times[10], times[19]);
    assert!(times[10] < Duration::from_millis(100));
}
