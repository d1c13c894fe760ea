//! The program's call that led to an observation.

use std::backtrace::Backtrace;

use net::thread_sanitizer;

/// How many frames are shown.
const MAX_FRAMES: usize = 8;

/// The crates between the program and the device.
const OWN: [&str; 6] = ["engine", "check", "driver", "host", "capi", "verbs"];

/// The stack of a call. Its functions are looked up when it is shown.
#[derive(Debug)]
pub(crate) struct Call {
    stack: Backtrace,
    /// Where the program's functions are that called each other, innermost first, for ThreadSanitizer.
    places: Vec<usize>,
}

impl Call {
    pub(crate) fn capture() -> Self {
        Self {
            stack: Backtrace::force_capture(),
            places: thread_sanitizer::calls(),
        }
    }

    /// The program's functions, innermost first.
    pub(crate) fn frames(&self) -> Vec<String> {
        program_frames(&self.stack.to_string())
    }

    pub(super) fn places(&self) -> &[usize] {
        &self.places
    }
}

/// Takes the frames that follow those of this library.
fn program_frames(text: &str) -> Vec<String> {
    let mut frames: Vec<String> = Vec::new();
    for line in text.lines() {
        let line = line.trim();
        let name = line.split_once(": ").filter(|(index, _)| is_index(index));
        match (name, line.strip_prefix("at "), frames.last_mut()) {
            (Some((_, name)), _, _) => frames.push(name.to_owned()),
            (None, Some(place), Some(frame)) => {
                *frame = format!("{frame} at {place}");
            }
            _ => {}
        }
    }
    let first = frames.iter().rposition(|frame| is_own(frame));
    let program = frames.into_iter().skip(first.map_or(0, |it| it + 1));
    let program = program.filter(|frame| is_of_program(frame));
    program.take(MAX_FRAMES).collect()
}

/// Whether a frame helps to find the call: not inline functions of verbs.h, the start of a process, the standard
/// library, or functions without a name.
fn is_of_program(frame: &str) -> bool {
    let others = ["ibv_", "__ibv_", "__libc_start", "_start", "<unknown>"];
    !frame.contains(" at /rustc/") && !others.iter().any(|other| frame.starts_with(other))
}

fn is_index(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether a frame is in the sources of this library: in its repository, or in a directory of downloaded packages.
fn is_own(frame: &str) -> bool {
    let Some((_, place)) = frame.split_once(" at ") else {
        return frame.starts_with("std::backtrace");
    };
    OWN.iter()
        .any(|name| place.contains(&format!("crates/{name}/src/")))
        || place.contains("/rocinante-") && place.contains("/src/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_the_program_follow_those_of_the_library() {
        let text = "   0: std::backtrace::Backtrace::force_capture\n             at /rustc/x.rs:1:5\n   \
                    1: drop\n             at ./crates/driver/src/lane.rs:344:30\n   \
                    2: drop_in_place<Locked>\n             at /rustc/mod.rs:805:1\n   3: {closure#0}\n             \
                    at ./crates/capi/src/verbs/post_receive.rs:20:32\n   4: call_once\n             at /rustc/y.rs:1:1\n   \
                    5: ibv_post_send\n             at /usr/include/infiniband/verbs.h:3327\n   6: main\n             \
                    at ./server.c:12\n   7: main\n             at /rustc/rt.rs:1:1";
        assert_eq!(program_frames(text), ["main at ./server.c:12"]);
    }
}
