//! The tests of our C libraries, run on rdma-core's with the kernel's device.
//!
//! They were written for ours. That they hold on the originals shows that what they demand is what
//! programs are used to. Where the kernel's device lacks something, the first demand that it does not
//! meet is known here.

use std::time::{Duration, Instant};

use super::guest;
use super::machine::Machine;
use super::program::Programs;
use super::seat::Outcome;
use super::table::Cell;

const PATIENCE: Duration = Duration::from_secs(120);

/// Two devices with the names and the addresses that the tests know. Only these two: one of the tests
/// counts them. Their link-local addresses need not be probed for by others first.
const LAY: &str = "echo 0 > /proc/sys/net/ipv6/conf/default/accept_dad; \
    ip link add left0 type veth peer name right0 \
    && ip link set left0 up && ip link set right0 up \
    && ip addr add 10.214.0.1/24 dev left0 \
    && rdma link delete rxe0 \
    && rdma link add left type rxe netdev left0 && rdma link add right type rxe netdev right0";

const CLEAR: &str = "rdma link delete left; rdma link delete right; ip link delete left0; \
    rdma link add rxe0 type rxe netdev eth0";

/// Not one of the loopback network, which the kernel's connection manager leaves without a device.
const LEFT_ADDRESS: &str = "10.214.0.1";

/// A test, and what the kernel does not meet of it.
struct Test {
    name: &'static str,
    lacks: Option<Lack>,
}

/// The demand as the test names it, and why it is not met.
struct Lack {
    demand: &'static str,
    because: &'static str,
}

const TESTS: [Test; 8] = [
    lacks(
        "arguments",
        "Segmentation fault",
        "a null pointer for a device ends the program; we answer EINVAL",
    ),
    lacks(
        "connections",
        "Segmentation fault",
        "holds up to a null pointer for an id, which ends the program; we answer EINVAL",
    ),
    lacks(
        "devices",
        "attr.device_cap_flags & IBV_DEVICE_XRC",
        "rxe has no XRC",
    ),
    lacks(
        "events",
        "is_readable(b->context->async_fd, 5000)",
        "holds up to the event of a violated key, which rxe does not send",
    ),
    lacks(
        "forking",
        "WEXITSTATUS(status) == 0",
        "a child may use its parent's device, which lives in the kernel",
    ),
    lacks(
        "memory",
        "ibv_reg_mr(end->pd, constant, 4096, 0) gives",
        "rxe registers memory that may not be read",
    ),
    lacks(
        "posting",
        "cq != NULL (errno 95)",
        "holds up to a completion queue with timestamps, which rxe has not",
    ),
    lacks(
        "sockets",
        "rsend(*(int *)socket, \"more\", 4, 0) == -1",
        "holds up to a SEND behind a shutdown, which rsockets take",
    ),
];

const fn lacks(name: &'static str, demand: &'static str, because: &'static str) -> Test {
    let lacks = Some(Lack { demand, because });
    Test { name, lacks }
}

/// How a test went on either library.
pub(crate) struct Line {
    pub(crate) name: &'static str,
    pub(crate) ours: Cell,
    pub(crate) kernels: Cell,
    /// What the kernel's device lacks, if that is known.
    pub(crate) remark: Option<&'static str>,
}

/// Runs every test on both.
pub(crate) fn run(machine: &mut Machine, programs: &Programs) -> Result<Vec<Line>, String> {
    machine.must(LAY)?;
    let lines = TESTS.iter().map(|test| try_one(machine, programs, test));
    let lines: Result<Vec<_>, String> = lines.collect();
    machine.must(CLEAR)?;
    lines
}

fn try_one(machine: &mut Machine, programs: &Programs, test: &Test) -> Result<Line, String> {
    let program = guest::library_test(test.name);
    let start = Instant::now();
    let ours = programs.run_alone(&program, PATIENCE)?;
    let ours_took = start.elapsed();
    let start = Instant::now();
    machine.begin(0, &format!("env LEFT_ADDRESS={LEFT_ADDRESS} {program}"))?;
    let kernels = machine.finish(0, PATIENCE)?;
    programs.keep(test.name, None, [&kernels, &ours]);
    Ok(Line {
        name: test.name,
        ours: cell(passes(&ours), ours_took),
        kernels: cell(judge(test, &kernels, &ours), start.elapsed()),
        remark: test.lacks.as_ref().map(|lack| lack.because),
    })
}

fn cell(verdict: Result<(), String>, took: Duration) -> Cell {
    match verdict {
        Ok(()) => Cell::Good(took),
        Err(reason) => Cell::Bad(reason),
    }
}

fn passes(said: &Outcome) -> Result<(), String> {
    let (code, text) = (said.code, said.text.trim());
    match said.succeeded() && text.ends_with("done") {
        true => Ok(()),
        false => Err(format!("it ended with {code}: {text}")),
    }
}

/// The same words as with ours, or the demand that is known not to be met.
fn judge(test: &Test, kernels: &Outcome, ours: &Outcome) -> Result<(), String> {
    match &test.lacks {
        None => passes(kernels).and_then(|()| match kernels.text == ours.text {
            true => Ok(()),
            false => Err(format!("kernel: {}; ours: {}", kernels.text, ours.text)),
        }),
        Some(lack) if !kernels.succeeded() && kernels.text.contains(lack.demand) => Ok(()),
        Some(lack) => Err(format!(
            "not `{}` but: {}",
            lack.demand,
            kernels.text.trim()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(code: i32, text: &str) -> Outcome {
        let text = text.to_owned();
        Outcome { code, text }
    }

    #[test]
    fn both_must_say_the_same() {
        let test = Test {
            name: "memory",
            lacks: None,
        };
        let ours = said(0, "3 keys\ndone\n");
        assert_eq!(judge(&test, &said(0, "3 keys\ndone\n"), &ours), Ok(()));
        assert!(judge(&test, &said(0, "4 keys\ndone\n"), &ours).is_err());
        assert!(judge(&test, &said(1, "3 keys\n"), &ours).is_err());
    }

    #[test]
    fn only_the_known_demand_may_fail() {
        let test = lacks("memory", "ibv_alloc_dm", "there is none");
        let ours = said(0, "done\n");
        let known = said(1, "memory.c:7: ibv_alloc_dm (errno 95)\n");
        assert_eq!(judge(&test, &known, &ours), Ok(()));
        assert!(judge(&test, &said(1, "memory.c:9: x\n"), &ours).is_err());
        assert!(judge(&test, &said(0, "done\n"), &ours).is_err());
    }
}
