//! Why a device of the system refuses a call.

use std::io;

/// A device of the system, such as a NIC, refused a call. Devices of this crate never do: their errors have names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SystemRefusal {
    /// The device does not have it.
    #[error("this device has no {0}")]
    Lacks(&'static str),
    /// This library does not offer it at devices of the system.
    #[error("{0} are not offered at devices of the system yet: use a software device")]
    NotOffered(&'static str),
    /// A function of the system's library failed.
    #[error("{call} failed: {}{}", io::Error::from_raw_os_error(*number), advice(call, *number))]
    Call {
        /// The function.
        call: &'static str,
        /// The number of the system error.
        number: i32,
    },
}

impl SystemRefusal {
    /// The number of the system error, if a function failed.
    #[must_use]
    pub const fn os_error(&self) -> Option<i32> {
        match self {
            Self::Call { number, .. } => Some(*number),
            _ => None,
        }
    }
}

fn advice(call: &str, number: i32) -> &'static str {
    /// The numbers of Linux.
    const OUT_OF_MEMORY: i32 = 12;
    const INVALID: i32 = 22;
    match (call, number) {
        ("ibv_reg_mr", OUT_OF_MEMORY) => {
            "; the limit of locked memory may be too small: see `ulimit -l` and `roci doctor`"
        }
        ("ibv_post_send" | "ibv_post_recv", OUT_OF_MEMORY) => {
            "; the queue may be full: poll completions, or create it larger"
        }
        ("ibv_post_send", INVALID) => {
            "; check the number of segments, the length of inline data and the state of the queue pair"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_what_to_do() {
        let call = "ibv_reg_mr";
        let text = SystemRefusal::Call { call, number: 12 }.to_string();
        assert!(
            text.starts_with("ibv_reg_mr failed: Cannot allocate memory"),
            "{text}"
        );
        assert!(text.contains("ulimit -l"), "{text}");
    }
}
