//! The page `docs/errors.md`.

use std::fmt::Write;

use crate::{Entry, Topic, entries};

const OPENING: &str = "\
# Errors, and what to do about them

<!-- Made from `crates/advice`; do not edit. `ROCI_BLESS=1 cargo test -p advice` makes it again. -->

Every code that an RDMA program may meet: what it says, what mostly lies behind it, and what to do.
`roci explain wc 12` prints the same in a terminal; a name will do instead of the number.

A program that runs with `ROCI_EXPLAIN=1` in its environment, or under `roci run --explain`, is told
right away, on stderr: which request it was, which of the causes below it was, and with which numbers.
The peer often knows more: look at both ends.
";

/// The whole page.
#[must_use]
pub fn page() -> String {
    let mut text = format!("{OPENING}\n");
    for topic in Topic::ALL {
        let _ = writeln!(text, "- [{}](#{})", topic.title(), anchor(topic));
    }
    for topic in Topic::ALL {
        let _ = write!(text, "\n## {}\n\n{}\n", topic.title(), opening(topic));
        for entry in entries(topic) {
            text.push('\n');
            text.push_str(&section(entry));
        }
    }
    text
}

fn section(entry: &Entry) -> String {
    let mut text = format!("### {}: `{}`\n\n", entry.reference(), entry.c_name);
    if let Some(name) = entry.rust_name {
        let _ = write!(text, "`{name}`: ");
    }
    text.push_str(entry.meaning);
    text.push('\n');
    for (index, cause) in entry.causes.iter().enumerate() {
        if index == 0 {
            text.push('\n');
        }
        let _ = writeln!(text, "- {} *{}*", cause.reason, cause.remedy);
    }
    text
}

const fn opening(topic: Topic) -> &'static str {
    match topic {
        Topic::Completion => {
            "The fate of a work request: `status` in `struct ibv_wc`, `Completion::status` in Rust. Only \
             the first one that is not a success says what went wrong: what follows is flushed."
        }
        Topic::Event => {
            "What `ibv_get_async_event` and `Context::poll_event` give: things that belong to no single \
             work request."
        }
        Topic::Nak => {
            "The syndrome in the AETH of an answer, as captures show it. A responder of a reliable \
             connection refuses with it; the requester sees a completion status."
        }
        Topic::Connection => {
            "What `rdma_get_cm_event` gives. Its `status` is 0, a negative error number (see below), or \
             for a rejected connection the reason (see below)."
        }
        Topic::Reject => {
            "The `status` of `RDMA_CM_EVENT_REJECTED`, and the reason in a REJ message."
        }
        Topic::Errno => {
            "What verbs return or leave in `errno`, and with a minus sign the `status` of the connection \
             manager's events."
        }
    }
}

fn anchor(topic: Topic) -> String {
    topic.title().to_lowercase().replace(' ', "-")
}
