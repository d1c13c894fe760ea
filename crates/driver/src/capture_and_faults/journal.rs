//! Notes in a capture: posts, completions and asynchronous events.

use engine::observation::ReceiveQueueId;
use engine::{AsyncEvent, Completion, Observation};
use errors::CodeKind;
use net::tap::capture::{Capture, Note};
use wire::Qpn;

use crate::clock::wall_time;
use crate::diagnostics::work_name;

/// Records an observation that a reader of a capture wants to see. Queue pair 1 is not the program's.
pub(super) fn observation(capture: &Capture, observation: &Observation) {
    match observation {
        Observation::SendPosted(post) if post.queue_pair != Qpn::GSI => {
            let (work, length) = (work_name(post.work.kind()), post.length);
            let number = post.queue_pair.value();
            let id = post.id;
            let message = format!("QP {number:#x} posts {work}, wr_id {id}, {length} bytes");
            let fields = request("post-send", Some(post.queue_pair), id, work, length);
            write(capture, &message, &fields);
        }
        Observation::ReceivePosted {
            queue,
            id,
            segments,
        } if *queue != ReceiveQueueId::Own(Qpn::GSI) => {
            let lengths = segments.iter().map(|segment| u64::from(segment.length));
            let length = lengths.sum();
            let (owner, number) = match queue {
                ReceiveQueueId::Own(number) => (format!("QP {:#x}", number.value()), Some(*number)),
                ReceiveQueueId::Shared(_) => ("a shared receive queue".to_owned(), None),
            };
            let message = format!("{owner} gets a receive, wr_id {id}, {length} bytes");
            let fields = request("post-receive", number, *id, RECEIVE, length);
            write(capture, &message, &fields);
        }
        Observation::Completed(_, completion) => result(capture, "completion", completion),
        Observation::Polled(_, completion) => result(capture, "poll", completion),
        _ => {}
    }
}

/// The name of a receive.
const RECEIVE: &str = "receive";

/// Records an asynchronous event.
pub(super) fn event(capture: &Capture, event: AsyncEvent) {
    let name = errors::entry(CodeKind::Event, event.code()).map_or("unknown", |entry| entry.c_name);
    let (message, number) = match event.queue_pair() {
        Some(number) => (
            format!("asynchronous event: {name} of QP {:#x}", number.value()),
            Some(queue_pair(number)),
        ),
        None => (format!("asynchronous event: {name}"), None),
    };
    let fields = [
        ("ROCI_EVENT", "async".to_owned()),
        ("ROCI_WORK", name.to_owned()),
    ];
    let fields: Vec<_> = fields.into_iter().chain(number).collect();
    write(capture, &message, &fields);
}

fn result(capture: &Capture, kind: &str, completion: &Completion) {
    if completion.queue_pair == Qpn::GSI {
        return;
    }
    let work = work_name(completion.work);
    let code = u32::from(completion.status as u8);
    let status = errors::entry(CodeKind::Completion, code).map_or("unknown", |entry| entry.c_name);
    let (number, id) = (completion.queue_pair.value(), completion.id);
    let verb = if kind == "poll" {
        "is polled"
    } else {
        "completes"
    };
    let message = format!("{work} of QP {number:#x} {verb}, wr_id {id}: {status}");
    let length = u64::from(completion.length);
    let mut fields = request(kind, Some(completion.queue_pair), id, work, length);
    fields.push(("ROCI_STATUS", status.to_owned()));
    write(capture, &message, &fields);
}

fn request(
    kind: &str,
    number: Option<Qpn>,
    id: u64,
    work: &str,
    length: u64,
) -> Vec<(&'static str, String)> {
    let number = number.map(queue_pair);
    let fields = [
        ("ROCI_EVENT", kind.to_owned()),
        ("ROCI_WR_ID", id.to_string()),
        ("ROCI_WORK", work.to_owned()),
        ("ROCI_LENGTH", length.to_string()),
    ];
    fields.into_iter().chain(number).collect()
}

fn queue_pair(number: Qpn) -> (&'static str, String) {
    ("ROCI_QP", format!("{:#x}", number.value()))
}

fn write(capture: &Capture, message: &str, fields: &[(&str, String)]) {
    capture.note(&Note {
        time: wall_time(),
        message,
        fields,
    });
}
