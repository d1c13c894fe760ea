//! The analysis as text for a terminal.

mod anomalies;
mod colours;
mod fold;
mod ladder;
mod lists;
mod requests;
mod table;

use std::fmt::Write as _;

use wire::Qpn;

use crate::analysis::Analysis;
use crate::anomaly::{Anomaly, Severity};
use crate::connection::Connection;
use crate::message::Message;
use crate::packet::Marks;
pub use crate::text_format::grouped;
use crate::text_format::{bytes, count, duration};
use crate::typed_index::ConnectionId;

use colours::{BAD, GOOD, STRONG, WARNING, paint};

/// What to show, and the width.
#[derive(Clone, Debug)]
pub struct View {
    /// The width of a line in characters.
    pub width: usize,
    /// The most lines of each ladder; 0 omits ladders.
    pub ladder: usize,
    /// The most messages to list.
    pub messages: usize,
    /// Only connections of this queue pair.
    pub queue_pair: Option<Qpn>,
    /// Only packets from this time on, in nanoseconds since the first packet.
    pub from: u64,
    /// Only packets up to this time.
    pub to: u64,
}

impl Default for View {
    fn default() -> Self {
        View {
            width: 100,
            ladder: 40,
            messages: 20,
            queue_pair: None,
            from: 0,
            to: u64::MAX,
        }
    }
}

impl View {
    /// The smallest width.
    const NARROWEST: usize = 60;

    fn width(&self) -> usize {
        self.width.max(Self::NARROWEST)
    }

    fn shows(&self, analysis: &Analysis, connection: &Connection) -> bool {
        let Some(wanted) = self.queue_pair else {
            return true;
        };
        let numbers = connection.ends.iter().filter_map(|end| end.queue_pair);
        numbers.into_iter().any(|id| analysis[id].number == wanted)
    }

    fn shows_time(&self, time: u64) -> bool {
        (self.from..=self.to).contains(&time)
    }

    fn shows_message(&self, analysis: &Analysis, message: &Message) -> bool {
        self.shows_time(message.begun) && self.shows(analysis, &analysis[message.connection])
    }

    fn shows_anomaly(&self, analysis: &Analysis, anomaly: &Anomaly) -> bool {
        let connection = anomaly.connection.map(|id| &analysis[id]);
        let shown = connection.is_none_or(|connection| self.shows(analysis, connection));
        shown && self.shows_time(anomaly.time)
    }

    fn connections(&self, analysis: &Analysis) -> Vec<ConnectionId> {
        let all = (0..analysis.connections.len()).map(ConnectionId::new);
        all.filter(|&id| self.shows(analysis, &analysis[id]))
            .collect()
    }
}

/// The whole analysis, with colours. Print it through a stream that removes them when needed.
pub fn render(analysis: &Analysis, view: &View) -> String {
    let mut text = summary(analysis);
    if analysis.packets.is_empty() {
        text.push_str(&without_packets(analysis, view));
        return text;
    }
    let connections = view.connections(analysis);
    if connections.is_empty() {
        text.push_str("\nNo connection has that queue pair.\n");
        return text;
    }
    text.push_str(&lists::connections(analysis, view, &connections));
    text.push_str(&lists::messages(analysis, view));
    text.push_str(&requests::list(analysis, view));
    text.push_str(&anomalies::list(analysis, view));
    if view.ladder > 0 {
        text.push_str(&ladder::draw(analysis, view, &connections));
    }
    text
}

/// A message in one line, for a capture that is followed. `None` if the view does not show it.
pub fn message_line(analysis: &Analysis, message: &Message, view: &View) -> Option<String> {
    view.shows_message(analysis, message)
        .then(|| lists::line(message, view.width()))
}

/// A problem in one paragraph, for a capture that is followed. `None` if the view does not show it.
pub fn problem_line(analysis: &Analysis, anomaly: &Anomaly, view: &View) -> Option<String> {
    view.shows_anomaly(analysis, anomaly)
        .then(|| anomalies::line(anomaly, view.width()))
}

fn summary(analysis: &Analysis) -> String {
    let mut text = String::new();
    let capture = &analysis.capture;
    let headline = format!(
        "{} of RoCEv2 in {}",
        count(analysis.statistics.packets, "packet", "packets"),
        duration(capture.duration)
    );
    let parts = [
        count(analysis.endpoints.len() as u64, "address", "addresses"),
        count(
            analysis.connections.len() as u64,
            "connection",
            "connections",
        ),
        count(analysis.messages.len() as u64, "message", "messages"),
        format!("{} of data", bytes(analysis.statistics.payload)),
    ];
    let _ = writeln!(text, "{}: {}.", paint(STRONG, headline), parts.join(", "));
    let _ = writeln!(text, "{}", summary_sentence(analysis));
    let times = &analysis.statistics.response_times;
    let (shortest, longest) = (duration(times.minimum), duration(times.maximum));
    let _ = match times.count {
        0 => Ok(()),
        1 => writeln!(text, "The response took {shortest}."),
        _ => {
            let median = duration(times.median);
            writeln!(
                text,
                "Responses took {shortest} to {longest}, half of them at most {median}."
            )
        }
    };
    let frames = count(capture.frames, "frame", "frames");
    let _ = writeln!(
        text,
        "The {} file has {frames}{}.",
        capture.format,
        others(analysis)
    );
    for remark in &capture.remarks {
        let _ = writeln!(text, "{} {remark}", paint(STRONG, "note:"));
    }
    text
}

fn others(analysis: &Analysis) -> String {
    let mut parts = Vec::new();
    if analysis.capture.foreign > 0 {
        parts.push(format!(
            "{} of something else",
            grouped(analysis.capture.foreign)
        ));
    }
    if analysis.capture.journal > 0 {
        parts.push(format!(
            "{} of posts and completions",
            grouped(analysis.capture.journal)
        ));
    }
    parts.extend(captured_again(analysis));
    if parts.is_empty() {
        String::new()
    } else {
        format!(", {}", parts.join(", "))
    }
}

/// The frames with packets that another capture point had captured before.
fn captured_again(analysis: &Analysis) -> Option<String> {
    let mut twice = analysis
        .packets
        .iter()
        .filter(|packet| packet.marks.contains(Marks::SEEN_TWICE));
    let directions = Marks::LEFT_HERE | Marks::CAME_HERE;
    let number = match analysis.capture.seen_twice {
        0 => return None,
        number => grouped(number),
    };
    Some(if twice.all(|packet| packet.marks.contains(directions)) {
        format!("{number} of packets that were captured when sent and again when received")
    } else {
        format!("{number} of packets that were captured on another interface, too")
    })
}

/// The one-sentence summary.
fn summary_sentence(analysis: &Analysis) -> String {
    let number = |severity| {
        let found = analysis.anomalies.iter();
        found
            .filter(|anomaly| anomaly.kind.severity() == severity)
            .count() as u64
    };
    let (errors, warnings) = (number(Severity::Error), number(Severity::Warning));
    let notes = number(Severity::Note);
    let mut parts = Vec::new();
    if errors > 0 {
        parts.push(paint(BAD, count(errors, "failure", "failures")));
    }
    if warnings > 0 {
        parts.push(paint(
            WARNING,
            count(warnings, "disturbance", "disturbances"),
        ));
    }
    if notes > 0 {
        parts.push(count(notes, "remark", "remarks"));
    }
    if parts.is_empty() && analysis.packets.is_empty() {
        "There is nothing to explain.".to_owned()
    } else if parts.is_empty() {
        paint(GOOD, "Nothing went wrong.")
    } else {
        format!("{}, explained below.", parts.join(", "))
    }
}

fn without_packets(analysis: &Analysis, view: &View) -> String {
    let mut text = anomalies::list(analysis, view);
    text.push_str(
        "
No packet of this capture is RoCEv2: none goes to UDP port 4791. To get some:
  ROCI_PCAP=trace.pcapng PROGRAM      programs on Rocinante record every packet themselves
  roci run --pcap trace.pcapng -- PROGRAM
  tcpdump -i any -w trace.pcap udp port 4791
                                      for Linux's Soft-RoCE, between two machines
RDMA network cards bypass the kernel: capture at the switch, or with the card's own sniffer.
",
    );
    text
}
