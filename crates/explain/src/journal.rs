//! What a program did: journal entries in our own captures.
//!
//! A journal entry is a block of pcapng that Wireshark shows as a line between the packets, and that other tools skip. Its
//! fields are lines of text, `ROCI_WR_ID=7`.

use wire::Qpn;

/// Something that a program did, or that its device told it.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    /// In nanoseconds, since 1970 at first, later since the first packet: it may be before that.
    pub(crate) time: i128,
    pub(crate) process: Option<usize>,
    pub(crate) kind: EventKind,
    pub(crate) queue_pair: Option<Qpn>,
    pub(crate) id: u64,
    /// The operation, as our captures name it.
    pub(crate) work: String,
    pub(crate) length: u64,
    /// The status of a completion by its name in C.
    pub(crate) status: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EventKind {
    SendPosted,
    ReceivePosted,
    Completed,
    Polled,
    Async,
}

impl Event {
    /// `None` if the entry is none of ours.
    pub(crate) fn parse(entry: &[u8], process: Option<usize>) -> Option<Self> {
        let text = String::from_utf8_lossy(entry);
        let field = |name: &str| {
            let mut fields = text.lines().filter_map(|line| line.split_once('='));
            fields.find(|(key, _)| *key == name).map(|(_, value)| value)
        };
        let kind = match field("ROCI_EVENT")? {
            "post-send" => EventKind::SendPosted,
            "post-receive" => EventKind::ReceivePosted,
            "completion" => EventKind::Completed,
            "poll" => EventKind::Polled,
            "async" => EventKind::Async,
            _ => return None,
        };
        let queue_pair = field("ROCI_QP")
            .and_then(|number| number.strip_prefix("0x"))
            .and_then(|digits| u32::from_str_radix(digits, 16).ok());
        Some(Event {
            time: field("ROCI_TIME_NS")?.parse::<u64>().ok()?.into(),
            process,
            kind,
            queue_pair: queue_pair.map(Qpn::new),
            id: field("ROCI_WR_ID")
                .and_then(|id| id.parse().ok())
                .unwrap_or(0),
            work: field("ROCI_WORK").unwrap_or_default().to_owned(),
            length: field("ROCI_LENGTH")
                .and_then(|length| length.parse().ok())
                .unwrap_or(0),
            status: field("ROCI_STATUS").unwrap_or_default().to_owned(),
        })
    }
}

/// The place of a process in the list, by the program name that our captures have in a section. Other programs do
/// not name a process.
pub(crate) fn process(application: &str, known: &mut Vec<String>) -> Option<usize> {
    let (_, name) = application
        .strip_prefix("Rocinante ")
        .and_then(|rest| rest.split_once(" in "))?;
    let place = known.iter().position(|other| other == name);
    Some(place.unwrap_or_else(|| {
        known.push(name.to_owned());
        known.len() - 1
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_of_ours_is_read_and_others_are_left_out() {
        let entry = b"__REALTIME_TIMESTAMP=1\nMESSAGE=x\nROCI_EVENT=completion\nROCI_TIME_NS=1500\nROCI_QP=0x11\nROCI_WR_ID=7\nROCI_STATUS=IBV_WC_SUCCESS\n\n\0";
        let event = Event::parse(entry, Some(2)).expect("one of ours");
        assert_eq!((event.time, event.id, event.process), (1500, 7, Some(2)));
        assert_eq!(event.kind, EventKind::Completed);
        assert_eq!(event.queue_pair, Some(Qpn::new(0x11)));
        assert_eq!(event.status, "IBV_WC_SUCCESS");
        assert!(Event::parse(b"__REALTIME_TIMESTAMP=1\nMESSAGE=x\n\n", None).is_none());
        assert!(Event::parse(b"\xff\xfe", None).is_none());
    }

    #[test]
    fn a_process_is_listed_once() {
        let mut known = Vec::new();
        let name = "Rocinante 0.1.0 in rping (process 7)";
        assert_eq!(process(name, &mut known), Some(0));
        assert_eq!(process("Dumpcap 4.0", &mut known), None);
        assert_eq!(process(name, &mut known), Some(0));
        assert_eq!(known, ["rping (process 7)"]);
    }
}
