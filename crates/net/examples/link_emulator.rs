//! A slow, long, lossy or disordered link between two TUN devices, for kernels without `netem`.
//!
//! `cargo run --release -p rocinante-net --example link_emulator -- near far rate=300 delay=0.5 queue=50`
//!
//! The devices are created here and belong to this process. Their users move them to network namespaces and give them
//! addresses. `cargo xtask bench --network` does that, and gives this process a real-time priority: otherwise it
//! measures how long this process waits for a CPU.
#![allow(
    unsafe_code,
    reason = "three system calls that the standard library does not offer"
)]

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// The longest packet of a device; the users' MTU is shorter.
const MAX_PACKET: usize = 9216;

/// How many packets are read before those that are due are delivered.
const PACKETS_PER_TURN: usize = 16;

/// How long a late packet waits if too few others follow it.
const MAX_LATENESS: Duration = Duration::from_millis(10);

/// The properties of one direction.
#[derive(Clone, Copy, Default)]
struct Link {
    /// Megabits per second; unlimited without it.
    rate: Option<f64>,
    /// Milliseconds from one end to the other.
    delay: f64,
    /// The share of packets that are lost, in per cent.
    loss: f64,
    /// The share of packets that arrive late, in per cent.
    late: f64,
    /// How many later packets overtake a late one.
    places: usize,
    /// How many packets wait for a link with a rate before further ones are dropped.
    queue: usize,
}

impl Link {
    fn parse(words: &[String]) -> Result<Self, String> {
        let mut link = Link {
            queue: 1000,
            places: 3,
            ..Link::default()
        };
        for word in words {
            let (name, value) = word.split_once('=').ok_or(format!("{word}: no `=`"))?;
            let number: f64 = value.parse().map_err(|_| format!("{word}: no number"))?;
            match name {
                "rate" => link.rate = Some(number),
                "delay" => link.delay = number,
                "loss" => link.loss = number,
                "late" => link.late = number,
                "places" => link.places = number as usize,
                "queue" => link.queue = number as usize,
                _ => return Err(format!("{name}: no such property")),
            }
        }
        Ok(link)
    }

    fn transit(&self, bytes: usize) -> Duration {
        let rate = self.rate.map(|megabits| megabits * 1e6 / 8.0);
        Duration::from_secs_f64(rate.map_or(0.0, |rate| bytes as f64 / rate))
    }
}

/// A packet that waits for others to overtake it.
struct Late {
    to_overtake: usize,
    until: Instant,
    packet: Vec<u8>,
}

/// One direction of the link.
struct Direction {
    link: Link,
    random: u64,
    /// When the link has transmitted all that it has accepted.
    idle_at: Instant,
    /// When each packet in the queue will have been transmitted.
    queue: VecDeque<Instant>,
    /// Packets on their way, with the time of their arrival.
    under_way: VecDeque<(Instant, Vec<u8>)>,
    late: Option<Late>,
}

impl Direction {
    fn new(link: Link, seed: u64, now: Instant) -> Self {
        Self {
            link,
            random: seed,
            idle_at: now,
            queue: VecDeque::new(),
            under_way: VecDeque::new(),
            late: None,
        }
    }

    /// Whether something happens that happens in this share of all cases.
    fn happens(&mut self, per_cent: f64) -> bool {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        ((self.random >> 11) as f64) < per_cent / 100.0 * (1_u64 << 53) as f64
    }

    /// Loses a packet, or puts it on its way.
    fn accept(&mut self, now: Instant, packet: &[u8]) {
        if self.happens(self.link.loss) {
            return;
        }
        while self.queue.front().is_some_and(|at| *at <= now) {
            self.queue.pop_front();
        }
        if self.queue.len() >= self.link.queue {
            return;
        }
        self.idle_at = self.idle_at.max(now) + self.link.transit(packet.len());
        if self.link.rate.is_some() {
            self.queue.push_back(self.idle_at);
        }
        let at = self.idle_at + Duration::from_secs_f64(self.link.delay / 1000.0);
        if self.late.is_none() && self.happens(self.link.late) {
            self.late = Some(Late {
                to_overtake: self.link.places,
                until: at + MAX_LATENESS,
                packet: packet.to_vec(),
            });
            return;
        }
        self.under_way.push_back((at, packet.to_vec()));
        if let Some(late) = &mut self.late {
            late.to_overtake = late.to_overtake.saturating_sub(1);
            if late.to_overtake == 0 {
                self.end_lateness(at);
            }
        }
    }

    fn end_lateness(&mut self, at: Instant) {
        if let Some(late) = self.late.take() {
            self.under_way.push_back((at, late.packet));
        }
    }

    /// The next packet that has arrived.
    fn arrived(&mut self, now: Instant) -> Option<Vec<u8>> {
        if self.late.as_ref().is_some_and(|late| late.until <= now) {
            self.end_lateness(now);
        }
        if self.under_way.front()?.0 > now {
            return None;
        }
        self.under_way.pop_front().map(|(_, packet)| packet)
    }

    /// When the next packet arrives.
    fn next(&self) -> Option<Instant> {
        let late = self.late.as_ref().map(|late| late.until);
        let next = self.under_way.front().map(|(at, _)| *at);
        late.into_iter().chain(next).min()
    }

    fn run(&mut self, mut from: &File, mut to: &File) -> io::Result<()> {
        let mut buffer = [0; MAX_PACKET];
        loop {
            for _ in 0..PACKETS_PER_TURN {
                match from.read(&mut buffer) {
                    Ok(length) => self.accept(now(), &buffer[..length]),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error),
                }
            }
            while let Some(packet) = self.arrived(now()) {
                // A device whose queue is full, or that is not up yet, loses the packet.
                let _ = to.write(&packet);
            }
            wait_for(from, self.next())?;
        }
    }
}

fn now() -> Instant {
    Instant::now()
}

/// Waits until a packet can be read, or until a time.
fn wait_for(file: &File, until: Option<Instant>) -> io::Result<()> {
    let mut poll = libc::pollfd {
        fd: file.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    let timeout = until.map(|until| until.saturating_duration_since(now()));
    let timeout = timeout.map(|timeout| libc::timespec {
        tv_sec: timeout.as_secs() as libc::time_t,
        tv_nsec: libc::c_long::from(timeout.subsec_nanos()),
    });
    let timeout = timeout
        .as_ref()
        .map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: both pointers are to variables of this function, or null where that is allowed; `poll` is one entry.
    let result = unsafe { libc::ppoll(&raw mut poll, 1, timeout, std::ptr::null()) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Creates a TUN device.
fn open_device(name: &str) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    let device = options
        .custom_flags(libc::O_NONBLOCK)
        .open("/dev/net/tun")?;
    // SAFETY: the structure consists of integers and of a union of integers and one pointer, for which zeros are valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let room = request.ifr_name.len() - 1;
    for (to, byte) in request.ifr_name.iter_mut().zip(name.bytes().take(room)) {
        *to = byte.cast_signed() as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
    // SAFETY: TUNSETIFF reads and writes an `ifreq`, which `request` is.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(device)
}

fn emulate(words: &[String]) -> Result<(), String> {
    let [near, far, properties @ ..] = words else {
        return Err("usage: link_emulator NEAR FAR [rate=MBIT/S] [delay=MS] [loss=%] [late=%] [places=N] [queue=PACKETS]".into());
    };
    let link = Link::parse(properties)?;
    let device = |name: &str| {
        let opened = open_device(name).map_err(|error| format!("{name}: {error}"));
        opened.map(Arc::new)
    };
    let devices = [device(near)?, device(far)?];
    // The devices exist: the user waits for this line.
    println!("ready");
    let directions = [(0, 1), (1, 0)].map(|(from, to)| {
        let seed = 0x9e37_79b9_7f4a_7c15 + from as u64;
        let (from, to) = (Arc::clone(&devices[from]), Arc::clone(&devices[to]));
        thread::spawn(move || Direction::new(link, seed, now()).run(&from, &to))
    });
    for direction in directions {
        let ended = direction.join().map_err(|_| "a direction has panicked")?;
        ended.map_err(|error| error.to_string())?;
    }
    Ok(())
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match emulate(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
