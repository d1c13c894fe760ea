//! The machine that runs the kernel, and how it is told what to do.

use std::path::PathBuf;
use std::process::Child;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::backend::Backend;
use super::image::Image;
use super::network::{Family, LARGEST_MTU, Side};
use super::place::Place;
use super::seat::{Outcome, Seat};
use super::{qemu, uml};

/// Programs run in the first two seats; the last one is for questions meanwhile.
pub(crate) const SEATS: usize = 3;
const QUESTIONS: usize = SEATS - 1;

/// An emulated processor on a busy machine boots slowly.
const BOOT_PATIENCE: Duration = Duration::from_secs(240);
const QUESTION_PATIENCE: Duration = Duration::from_secs(60);

/// A running kernel.
pub(crate) struct Machine {
    pub(crate) backend: Backend,
    /// The machine, and who else watches the cable.
    processes: Vec<Child>,
    seats: Vec<Seat>,
    /// Every frame on the cable.
    pub(crate) capture: PathBuf,
}

impl Machine {
    /// Boots, and returns when commands are taken.
    pub(crate) fn boot(place: &Place, image: &Image) -> Result<Self, String> {
        let capture = place.file("cable.pcap");
        let processes = match image.backend {
            Backend::Qemu => vec![qemu::start(place, image, &capture)?],
            Backend::Uml => vec![uml::start(place, image)?, uml::capture(&capture)?],
        };
        let mut machine = Self {
            backend: image.backend,
            processes,
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
            if let Ok(Some(status)) = self.processes[0].try_wait() {
                return Err(format!("the machine ended at once: {status}"));
            }
            if start.elapsed() > BOOT_PATIENCE {
                return Err("the machine takes no commands".into());
            }
            match self.backend.connect(self.seats.len()) {
                Ok(seat) => self.seats.push(seat),
                // It is still getting ready.
                Err(_) => sleep(Duration::from_millis(20)),
            }
        }
        // The question waits in the port until the kernel has booted.
        let ready = self.exchange(QUESTIONS, "rdma dev show rxe0", BOOT_PATIENCE)?;
        if ready.succeeded() {
            Ok(())
        } else {
            Err(format!("the kernel has no rxe0: {}", ready.text))
        }
    }

    /// Asks something that is answered at once.
    pub(crate) fn ask(&mut self, command: &str) -> Result<Outcome, String> {
        self.exchange(QUESTIONS, command, QUESTION_PATIENCE)
    }

    /// Does something that must succeed.
    pub(crate) fn must(&mut self, command: &str) -> Result<String, String> {
        let outcome = self.ask(command)?;
        if outcome.succeeded() {
            Ok(outcome.text)
        } else {
            Err(format!("`{command}` over there: {}", outcome.text.trim()))
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
        for process in &mut self.processes {
            // It has nothing to save. That it has ended already is no error.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

fn lost(error: &std::io::Error) -> String {
    format!("the machine does not answer: {error}")
}

/// Where the machine keeps the number of a seat's process.
fn pid_file(seat: usize) -> String {
    format!("/tmp/seat{}.pid", seat + 1)
}

/// What the first process over there is told on the kernel's command line.
pub(crate) fn addresses() -> String {
    let (ipv4, ipv6) = (
        Side::Kernel.place(Family::Ipv4),
        Side::Kernel.place(Family::Ipv6),
    );
    format!("peer.ipv4={ipv4} peer.ipv6={ipv6} peer.mtu={LARGEST_MTU}")
}
