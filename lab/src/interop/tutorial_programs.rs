//! The Rust programs of the tutorial on the kernel's device, each side in the kernel's machine.

use std::time::Duration;

use super::machine::Machine;
use super::network::{Family, Side};

/// How long a program may take on an emulated machine.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The programs, and their paths in the machine.
pub(super) const PROGRAMS: [(&str, &str); 6] = [
    ("lo_rc_send", "usr/bin/lo_rc_send"),
    ("rc_test", "usr/bin/rc_test"),
    ("cm_sum", "usr/bin/cm_sum"),
    ("chat", "usr/bin/chat"),
    ("sync_async", "usr/bin/sync_async"),
    ("ud_echo", "usr/bin/ud_echo"),
];

/// One run of a program.
struct Run {
    /// The command of the server, if it needs one.
    server: Option<&'static str>,
    /// The command of the client. `SERVER` stands for the server's address.
    client: &'static str,
    /// What the client prints.
    prints: &'static str,
}

const RUNS: [Run; 7] = [
    Run {
        server: None,
        client: "lo_rc_send --device rxe0",
        prints: "work request 1 completed",
    },
    Run {
        server: None,
        client: "sync_async --device rxe0 --rounds 20",
        prints: "async     20 messages came back unchanged",
    },
    Run {
        server: Some("rc_test --device rxe0 --mode send"),
        client: "rc_test --device rxe0 --mode send --server-ip SERVER",
        prints: "work request 1 ended with status 0",
    },
    Run {
        server: Some("rc_test --device rxe0 --cm --mode write"),
        client: "rc_test --device rxe0 --cm --mode write --server-ip SERVER",
        prints: "work request 1 ended with status 0",
    },
    Run {
        server: Some("cm_sum server --device rxe0"),
        client: "cm_sum client SERVER --device rxe0",
        prints: "the server says 690",
    },
    Run {
        server: Some("ud_echo server --device rxe0"),
        client: "ud_echo client SERVER --device rxe0",
        prints: "\"3 hello\" was answered by \"3 HELLO\"",
    },
    Run {
        server: Some("chat server --device rxe0"),
        // The line is seen before the client quits.
        client: "sh -c '(echo hello; sleep 2; echo q) | chat client SERVER --device rxe0'",
        prints: "[seen] hello",
    },
];

/// Runs the programs. Returns how many runs there were.
pub(super) fn check(machine: &mut Machine) -> Result<usize, String> {
    for run in &RUNS {
        run.check(machine)?;
    }
    Ok(RUNS.len())
}

impl Run {
    fn check(&self, machine: &mut Machine) -> Result<(), String> {
        if let Some(server) = self.server {
            machine.begin(0, &on_the_kernel_s_device(server))?;
            if !machine.wait_for_listener(0, TIMEOUT)? {
                let text = machine.finish(0, Duration::ZERO)?.text;
                return Err(format!("`{server}` does not listen:\n{text}"));
            }
        }
        let address = Side::Kernel.address(Family::Ipv4);
        let client = self.client.replace("SERVER", address);
        machine.begin(1, &on_the_kernel_s_device(&client))?;
        let outcome = machine.finish(1, TIMEOUT)?;
        let is_good = outcome.succeeded() && outcome.text.contains(self.prints);
        let client = (!is_good).then(|| format!("`{client}`:\n{}", outcome.text));
        let server = match self.server {
            Some(server) => {
                let outcome = machine.finish(0, TIMEOUT)?;
                (!outcome.succeeded()).then(|| format!("`{server}`:\n{}", outcome.text))
            }
            None => None,
        };
        let failures: Vec<String> = client.into_iter().chain(server).collect();
        if failures.is_empty() {
            Ok(())
        } else {
            Err(format!(
                "a program of the tutorial failed on the kernel's device: {}",
                failures.join("\n")
            ))
        }
    }
}

fn on_the_kernel_s_device(command: &str) -> String {
    format!("env ROCI_DEVICES=system {command}")
}
