//! How much memory may be registered.

use super::{Check, Machine};

/// What a program of moderate size registers, in bytes.
const ENOUGH: u64 = 64 << 20;

/// The capability that makes the limit void.
const CAP_IPC_LOCK: u32 = 14;

/// Registered memory is locked, and the limit of locked memory is often small.
pub(super) fn locked_memory(machine: &Machine) -> Check {
    const CHECK: &str = "locked memory";
    if is_privileged(machine) {
        return Check::ok(CHECK, "this process may register any amount of memory");
    }
    match limit(machine) {
        None => Check::ok(CHECK, "there is no limit for registered memory"),
        Some(limit) if limit >= ENOUGH => {
            Check::ok(CHECK, format!("{} MiB may be registered", limit >> 20))
        }
        Some(limit) => Check::warn(
            CHECK,
            format!(
                "only {} KiB may be registered at system devices; more fails with `Cannot allocate memory`",
                limit >> 10
            ),
            "raise it with `ulimit -l unlimited`, `memlock` in /etc/security/limits.conf, LimitMEMLOCK= of a systemd unit, \
             or `docker run --ulimit memlock=-1`",
        ),
    }
}

/// The soft limit in bytes; `None` if there is none.
fn limit(machine: &Machine) -> Option<u64> {
    let limits = machine.tree.text("proc/self/limits")?;
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max locked memory"))?;
    line.split_whitespace().next()?.parse().ok()
}

fn is_privileged(machine: &Machine) -> bool {
    let status = machine.tree.text("proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|text| u64::from_str_radix(text.trim(), 16).ok());
    effective.is_some_and(|bits| bits & (1 << CAP_IPC_LOCK) != 0)
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{nic, problem, problems};

    const LIMITS: &str = "proc/self/limits";

    #[test]
    fn a_small_limit_is_a_problem() {
        let fixture = nic();
        let line = "Max locked memory         65536                65536                bytes";
        fixture.file(
            LIMITS,
            &format!("Limit  Soft Limit\n{line}\nMax address space"),
        );
        let (check, text) = problem(&fixture);
        assert_eq!(check, "locked memory");
        assert!(text.starts_with("only 64 KiB"), "{text}");
        fixture.file("proc/self/status", "Name:\troci\nCapEff:\t0000000000004000");
        assert_eq!(problems(&fixture), []);
    }

    #[test]
    fn a_large_limit_or_none_is_no_problem() {
        let fixture = nic();
        for limit in ["unlimited", "268435456"] {
            fixture.file(
                LIMITS,
                &format!("Max locked memory  {limit}  {limit}  bytes"),
            );
            assert_eq!(problems(&fixture), []);
        }
    }
}
