//! The machine that runs the kernel: QEMU, without any help from the processor.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::image::Image;
use super::network::{Family, LARGEST_MTU, Side, TAP};
use super::place::Place;
use super::seat::{Outcome, Seat};

/// Programs run in the first two seats; the last one is for questions meanwhile.
const SEATS: usize = 3;
const QUESTIONS: usize = SEATS - 1;

/// An emulated processor on a busy machine boots slowly.
const BOOT_PATIENCE: Duration = Duration::from_secs(150);
const QUESTION_PATIENCE: Duration = Duration::from_secs(60);

/// Sockets of the machine. `/run` belongs to our namespace, and its paths are short.
const SOCKETS: &str = "/run";

/// A running kernel.
pub(crate) struct Machine {
    qemu: Child,
    seats: Vec<Seat>,
    /// Every frame on the cable.
    pub(crate) capture: PathBuf,
}

impl Machine {
    /// Boots, and returns when commands are taken.
    pub(crate) fn boot(place: &Place, image: &Image) -> Result<Self, String> {
        let capture = place.file("cable.pcap");
        let qemu = start(place, image, &capture)?;
        let mut machine = Self {
            qemu,
            seats: Vec::new(),
            capture,
        };
        let console = place.file("console.log");
        machine
            .take_seats()
            .map_err(|error| format!("{error}; the kernel's words are in {}", console.display()))?;
        Ok(machine)
    }

    fn take_seats(&mut self) -> Result<(), String> {
        let start = Instant::now();
        while self.seats.len() < SEATS {
            if let Ok(Some(status)) = self.qemu.try_wait() {
                return Err(format!("QEMU ended at once: {status}"));
            }
            if start.elapsed() > BOOT_PATIENCE {
                return Err("QEMU opens no serial ports".into());
            }
            match Seat::connect(&socket(self.seats.len())) {
                Ok(seat) => self.seats.push(seat),
                // QEMU is still getting ready.
                Err(_) => sleep(Duration::from_millis(20)),
            }
        }
        // The question waits in the port until the kernel has booted.
        let ready = self.exchange(QUESTIONS, "rdma dev show rxe0", BOOT_PATIENCE)?;
        match ready.succeeded() {
            true => Ok(()),
            false => Err(format!("the kernel has no rxe0: {}", ready.text)),
        }
    }

    /// Asks something that is answered at once.
    pub(crate) fn ask(&mut self, command: &str) -> Result<Outcome, String> {
        self.exchange(QUESTIONS, command, QUESTION_PATIENCE)
    }

    /// Does something that must succeed.
    pub(crate) fn must(&mut self, command: &str) -> Result<String, String> {
        let outcome = self.ask(command)?;
        match outcome.succeeded() {
            true => Ok(outcome.text),
            false => Err(format!("`{command}` over there: {}", outcome.text.trim())),
        }
    }

    fn exchange(
        &mut self,
        seat: usize,
        command: &str,
        patience: Duration,
    ) -> Result<Outcome, String> {
        self.seats[seat]
            .begin(command)
            .map_err(|error| lost(&error))?;
        let outcome = self.seats[seat]
            .finish(patience)
            .map_err(|error| lost(&error))?;
        outcome.ok_or_else(|| format!("`{command}` over there takes too long"))
    }

    /// Starts a program in a seat.
    pub(crate) fn begin(&mut self, seat: usize, command: &str) -> Result<(), String> {
        // In the shell's place, so that the seat's process is the program.
        let command = format!("exec {command}");
        self.seats[seat]
            .begin(&command)
            .map_err(|error| lost(&error))
    }

    /// Waits for the program in a seat, and stops it if it takes too long.
    pub(crate) fn finish(&mut self, seat: usize, patience: Duration) -> Result<Outcome, String> {
        if let Some(outcome) = self.seats[seat]
            .finish(patience)
            .map_err(|error| lost(&error))?
        {
            return Ok(outcome);
        }
        // The seat's process is the first of its group.
        let group = pid_file(seat);
        self.ask(&format!("busybox kill -KILL -- -$(cat {group})"))?;
        let outcome = self.seats[seat]
            .finish(QUESTION_PATIENCE)
            .map_err(|error| lost(&error))?;
        outcome.ok_or_else(|| "a program over there can't be killed".into())
    }

    /// Waits until a program over there listens, with a socket or with `rdma_cm`.
    pub(crate) fn wait_for_listener(
        &mut self,
        seat: usize,
        patience: Duration,
    ) -> Result<bool, String> {
        let seat = pid_file(seat);
        let wait = format!("timeout {} await-listener {seat}", patience.as_secs());
        Ok(self.ask(&wait)?.succeeded())
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // It has nothing to save. That it has ended already is no error.
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }
}

fn lost(error: &std::io::Error) -> String {
    format!("the machine does not answer: {error}")
}

/// Where the machine keeps the number of a seat's process.
fn pid_file(seat: usize) -> String {
    format!("/tmp/vport0p{}.pid", seat + 1)
}

fn socket(seat: usize) -> PathBuf {
    Path::new(SOCKETS).join(format!("seat{seat}"))
}

fn start(place: &Place, image: &Image, capture: &Path) -> Result<Child, String> {
    let errors = File::create(place.file("qemu.log")).map_err(|error| error.to_string())?;
    let mut command = Command::new("qemu-system-x86_64");
    command
        .args("-M pc -accel tcg,thread=multi -cpu max -smp 2 -m 768".split(' '))
        .args("-nodefaults -display none -no-reboot".split(' '))
        .arg("-kernel")
        .arg(&image.kernel)
        .arg("-initrd")
        .arg(&image.initramfs)
        .args(["-append", &kernel_command_line()])
        .args([
            "-serial",
            &format!("file:{}", place.file("console.log").display()),
        ])
        .args(["-device", "virtio-serial-pci"])
        .args(cable(capture));
    for seat in 0..SEATS {
        let path = socket(seat);
        let path = path.display();
        let (port, number) = (format!("port{seat}"), seat + 1);
        command.args([
            "-chardev",
            &format!("socket,id={port},path={path},server=on,wait=off"),
            "-device",
            &format!("virtserialport,chardev={port},nr={number}"),
        ]);
    }
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(errors)
        .spawn()
        .map_err(|error| format!("QEMU can't be started: {error}"))
}

fn kernel_command_line() -> String {
    let (ipv4, ipv6) = (
        Side::Kernel.place(Family::Ipv4),
        Side::Kernel.place(Family::Ipv6),
    );
    format!(
        "console=ttyS0 panic=-1 quiet edd=off mitigations=off tsc=reliable net.ifnames=0 \
         peer.ipv4={ipv4} peer.ipv6={ipv6} peer.mtu={LARGEST_MTU}"
    )
}

/// Without offloads, so that what is captured is what a real cable would carry.
fn cable(capture: &Path) -> [String; 6] {
    let capture = capture.display();
    [
        "-netdev".into(),
        format!("tap,id=cable,ifname={TAP},script=no,downscript=no,vnet_hdr=off"),
        "-device".into(),
        format!("virtio-net-pci,netdev=cable,host_mtu={LARGEST_MTU},romfile="),
        "-object".into(),
        format!("filter-dump,id=dump,netdev=cable,file={capture},maxlen=65536"),
    ]
}
