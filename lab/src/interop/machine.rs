//! The machine that runs the kernel, and its commands.

use std::io;
use std::path::PathBuf;
use std::process::Child;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::backend::Backend;
use super::build_directory::BuildDirectory;
use super::command_channel::{CHANNELS, CommandChannel, Outcome};
use super::image::Image;
use super::network::{self, FIRST_CONTROL_PORT};
use super::{qemu, uml};

/// The channel for queries while programs run in the other two.
const QUERY_CHANNEL: usize = CHANNELS - 1;

/// How long booting may take: an emulated processor is slow on a busy machine.
const BOOT_TIMEOUT: Duration = Duration::from_secs(240);
const QUERY_TIMEOUT: Duration = Duration::from_secs(60);

/// A running kernel.
pub(crate) struct Machine {
    pub(crate) backend: Backend,
    /// The virtual machine, and the process that captures packets of the link.
    processes: Vec<Child>,
    channels: Vec<CommandChannel>,
    /// Every frame on the link.
    pub(crate) capture: PathBuf,
}

impl Machine {
    /// Boots a machine and waits until it takes commands.
    pub(crate) fn boot(build_directory: &BuildDirectory, image: &Image) -> Result<Self, String> {
        let capture = build_directory.file("link.pcap");
        let processes = match image.backend {
            Backend::Qemu => vec![qemu::start(build_directory, image, &capture)?],
            Backend::Uml => vec![uml::start(build_directory, image)?, uml::capture(&capture)?],
        };
        let mut machine = Self {
            backend: image.backend,
            processes,
            channels: Vec::new(),
            capture,
        };
        let console = build_directory.file("console.log");
        machine.open_channels().map_err(|error| {
            format!("{error}; the kernel's console is in {}", console.display())
        })?;
        Ok(machine)
    }

    fn open_channels(&mut self) -> Result<(), String> {
        let start = Instant::now();
        while self.channels.len() < CHANNELS {
            if let Ok(Some(status)) = self.processes[0].try_wait() {
                return Err(format!("the machine ended at once: {status}"));
            }
            if start.elapsed() > BOOT_TIMEOUT {
                return Err("the machine takes no commands".into());
            }
            match connect(self.backend, self.channels.len()) {
                Ok(channel) => self.channels.push(channel),
                // It is still booting.
                Err(_) => sleep(Duration::from_millis(20)),
            }
        }
        // The command waits in the port until the kernel has booted.
        let ready = self.exchange(QUERY_CHANNEL, "rdma dev show rxe0", BOOT_TIMEOUT)?;
        if ready.succeeded() {
            Ok(())
        } else {
            Err(format!("the kernel has no rxe0: {}", ready.text))
        }
    }

    /// Runs a command that ends at once.
    pub(crate) fn ask(&mut self, command: &str) -> Result<Outcome, String> {
        self.exchange(QUERY_CHANNEL, command, QUERY_TIMEOUT)
    }

    /// Runs a command that must succeed.
    pub(crate) fn must(&mut self, command: &str) -> Result<String, String> {
        let outcome = self.ask(command)?;
        if outcome.succeeded() {
            Ok(outcome.text)
        } else {
            Err(format!(
                "`{command}` on the kernel's side: {}",
                outcome.text.trim()
            ))
        }
    }

    fn exchange(
        &mut self,
        channel: usize,
        command: &str,
        timeout: Duration,
    ) -> Result<Outcome, String> {
        self.channels[channel]
            .begin(command)
            .map_err(|error| lost(&error))?;
        let outcome = self.channels[channel]
            .finish(timeout)
            .map_err(|error| lost(&error))?;
        outcome.ok_or_else(|| format!("`{command}` on the kernel's side takes too long"))
    }

    /// Starts a program on a channel.
    pub(crate) fn begin(&mut self, channel: usize, command: &str) -> Result<(), String> {
        // Replaces the shell, so that the channel's process is the program.
        let command = format!("exec {command}");
        self.channels[channel]
            .begin(&command)
            .map_err(|error| lost(&error))
    }

    /// Waits for the program on a channel, and stops it after the timeout.
    pub(crate) fn finish(&mut self, channel: usize, timeout: Duration) -> Result<Outcome, String> {
        if let Some(outcome) = self.channels[channel]
            .finish(timeout)
            .map_err(|error| lost(&error))?
        {
            return Ok(outcome);
        }
        // The channel's process is the first of its group.
        let group = pid_file(channel);
        self.ask(&format!("busybox kill -KILL -- -$(cat {group})"))?;
        let outcome = self.channels[channel]
            .finish(QUERY_TIMEOUT)
            .map_err(|error| lost(&error))?;
        outcome.ok_or_else(|| "a program on the kernel's side can't be killed".into())
    }

    /// Waits until a program of the kernel's side listens, with a socket or with `rdma_cm`.
    pub(crate) fn wait_for_listener(
        &mut self,
        channel: usize,
        timeout: Duration,
    ) -> Result<bool, String> {
        let channel = pid_file(channel);
        let wait = format!("timeout {} await-listener {channel}", timeout.as_secs());
        Ok(self.ask(&wait)?.succeeded())
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        for process in &mut self.processes {
            // The machine has nothing to save. It is no error if it has ended already.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

fn lost(error: &io::Error) -> String {
    format!("the machine does not answer: {error}")
}

/// The file in the machine with the process number of a channel.
fn pid_file(channel: usize) -> String {
    format!("/tmp/command{}.pid", channel + 1)
}

fn connect(backend: Backend, channel: usize) -> io::Result<CommandChannel> {
    match backend {
        Backend::Qemu => CommandChannel::at_serial_port(&qemu::socket(channel)),
        Backend::Uml => {
            let port = FIRST_CONTROL_PORT + u16::try_from(channel).expect("channels are few");
            CommandChannel::at_address(network::control_address(port))
        }
    }
}
