//! The page `docs/errors.md`.

use std::fmt::Write;

use crate::{Entry, Topic, entries};

const OPENING: &str = "\
# Error codes, causes and remedies

<!-- Made from `crates/errors`; do not edit. `ROCI_BLESS=1 cargo test -p rocinante-errors` rewrites it. -->

All codes that an RDMA program may see: their meaning, their usual causes, and what to do.
`roci explain wc 12` prints the same in a terminal; a name works instead of the number.

With `ROCI_EXPLAIN=1` in its environment, or under `roci run --explain`, a program reports each error on
stderr: the request, the cause, and the relevant numbers. The peer often knows more: check both sides.
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
            "The result of a work request: `status` in `struct ibv_wc`, `Completion::status` in Rust. The \
             first failed completion shows the cause; the ones after it are flushed."
        }
        Topic::Event => {
            "The events of `ibv_get_async_event` and `Context::poll_event`. They belong to no single work \
             request."
        }
        Topic::Nak => {
            "The syndrome in the AETH of a response, as captures show it. The responder of a reliable \
             connection rejects a request with it; the requester gets a completion status."
        }
        Topic::Connection => {
            "The events of `rdma_get_cm_event`. The `status` is 0, a negative error number (see below), or \
             the reason of a rejected connection (see below)."
        }
        Topic::Reject => {
            "The `status` of `RDMA_CM_EVENT_REJECTED`, and the reason in a REJ message."
        }
        Topic::Errno => {
            "The return values of verbs, the values of `errno`, and with a minus sign the `status` of \
             connection manager events."
        }
    }
}

fn anchor(topic: Topic) -> String {
    topic.title().to_lowercase().replace(' ', "-")
}
