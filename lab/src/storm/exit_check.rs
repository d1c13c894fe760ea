//! Decides whether a program ended in an allowed way.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use super::program::{Intervention, Program, shown_status};

/// How a program ended, if that is allowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    Success,
    /// It failed with a message.
    ClearError,
    /// Our signal ended it, or its peer's end.
    Signalled,
}

/// Text that no program may print.
const NEVER: [&str; 4] = ["panicked at", "LOST:", "stack overflow", "corrupted"];

/// The last message of a program that runs out of memory, before it aborts.
const OUT_OF_MEMORY: &str = "memory allocation of";

const ABORT: i32 = 6;

/// Ends a program of perftest that writes to the TCP connection with a peer that was killed.
const BROKEN_PIPE: i32 = 13;

/// The error says what is wrong with its end.
pub(super) fn judge(program: &Program, status: ExitStatus) -> Result<End, String> {
    let errors = program.errors();
    let verdict = verdict(program.intervention, program.is_limited, status, &errors);
    verdict.map_err(|why| program.describe(&format!("{}: {why}", shown_status(status))))
}

fn verdict(
    intervention: Intervention,
    is_limited: bool,
    status: ExitStatus,
    errors: &str,
) -> Result<End, &'static str> {
    if NEVER.iter().any(|text| errors.contains(text)) {
        return Err("no program may say that");
    }
    match (status.signal(), status.code()) {
        (Some(_), _) if intervention != Intervention::None => Ok(End::Signalled),
        (Some(ABORT), _) if is_limited && errors.contains(OUT_OF_MEMORY) => Ok(End::ClearError),
        (Some(BROKEN_PIPE), _) => Ok(End::Signalled),
        (Some(_), _) => Err("it got a signal that the step did not send"),
        (None, Some(0)) => Ok(End::Success),
        _ if errors.trim().is_empty() => Err("it did not say why"),
        _ => Ok(End::ClearError),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXIT_1: i32 = 1 << 8;
    const SIGKILL: i32 = 9;
    const SIGSEGV: i32 = 11;
    const SIGABRT: i32 = 6;

    fn judged(
        intervention: Intervention,
        limited: bool,
        status: i32,
        errors: &str,
    ) -> Result<End, &'static str> {
        verdict(intervention, limited, ExitStatus::from_raw(status), errors)
    }

    #[test]
    fn a_failure_must_say_why() {
        let said = judged(Intervention::None, false, EXIT_1, "no route to 10.77.0.1");
        assert_eq!(said, Ok(End::ClearError));
        assert!(judged(Intervention::None, false, EXIT_1, "\n").is_err());
    }

    #[test]
    fn only_our_own_signals_are_expected() {
        assert_eq!(
            judged(Intervention::Killed, false, SIGKILL, ""),
            Ok(End::Signalled)
        );
        assert!(judged(Intervention::None, false, SIGKILL, "").is_err());
        assert!(judged(Intervention::None, true, SIGSEGV, "words").is_err());
    }

    #[test]
    fn only_a_program_that_lacks_memory_may_abort() {
        let said = "memory allocation of 4096 bytes failed";
        let end = judged(Intervention::None, true, SIGABRT, said);
        assert_eq!(end, Ok(End::ClearError));
        assert!(judged(Intervention::None, false, SIGABRT, said).is_err());
        assert!(judged(Intervention::None, true, SIGABRT, "double free").is_err());
    }

    #[test]
    fn a_panic_is_never_an_accepted_end() {
        let said = "thread 'main' panicked at src/main.rs:1";
        assert!(judged(Intervention::None, true, EXIT_1, said).is_err());
        assert!(judged(Intervention::Killed, true, SIGKILL, said).is_err());
    }
}
