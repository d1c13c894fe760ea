//! `roci explain --follow`: reports what happens in a capture while it is being written.
//!
//! The file is analysed again whenever it has grown. What is new in the result is printed: messages that have ended, and
//! problems. A problem whose end may still come, such as a request without a response, is printed when it has lasted for a
//! while, as one "so far"; its end is printed, too.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use explain::terminal::{View, message_line, problem_line};
use explain::{Analysis, Anomaly, ReadError};

use crate::output;

/// How often the file is looked at. A person reads no faster.
const INTERVAL: Duration = Duration::from_millis(300);

/// How long a problem must last before it is told although its end may still come. Almost every request that the end of the
/// file leaves without a response has one at the next look; no number of looks was compared with another.
const LASTING: Duration = INTERVAL.saturating_mul(7);

/// Follows a capture until the process is ended.
pub(crate) fn follow(capture: &Path, view: &View) -> anyhow::Result<()> {
    let name = capture.display();
    let mut told = Told::default();
    let mut known = 0;
    loop {
        let file = File::open(capture).with_context(|| format!("{name} can't be opened"))?;
        let length = file.metadata().map_or(0, |metadata| metadata.len());
        if length < known {
            // Another capture replaces it.
            told = Told::default();
        }
        let mut lines = Vec::new();
        if length != known {
            known = length;
            match Analysis::read(file) {
                // It has just been created.
                Err(ReadError::Empty) => {}
                analysis => {
                    let analysis =
                        analysis.with_context(|| format!("{name} can't be explained"))?;
                    lines = told.new_lines(&analysis, view, Instant::now());
                }
            }
        }
        lines.extend(told.lasting_lines(Instant::now()));
        lines.into_iter().try_for_each(output::print)?;
        std::thread::sleep(INTERVAL);
    }
}

/// The time, frame and kind of a problem.
type ProblemKey = (u64, u32, &'static str);

/// What was told.
#[derive(Default)]
struct Told {
    /// The first frames of messages: their places change when packets before them are found.
    messages: HashSet<(u32, u32)>,
    problems: HashSet<ProblemKey>,
    /// Problems whose end may still come.
    open: HashMap<ProblemKey, OpenProblem>,
}

struct OpenProblem {
    since: Instant,
    /// `None` once it was told.
    line: Option<String>,
}

impl Told {
    /// Messages and problems that have ended.
    fn new_lines(&mut self, analysis: &Analysis, view: &View, now: Instant) -> Vec<String> {
        let mut lines = Vec::new();
        for message in &analysis.messages {
            let key = (analysis[message.first].frame, message.first_psn.value());
            if analysis.is_settled(message)
                && !self.messages.contains(&key)
                && let Some(line) = message_line(analysis, message, view)
            {
                self.messages.insert(key);
                lines.push((message.begun, line));
            }
        }
        let mut open = HashMap::new();
        for anomaly in &analysis.anomalies {
            let key = key(analysis, anomaly);
            if self.problems.contains(&key) && !anomaly.is_open {
                continue;
            }
            let Some(line) = problem_line(analysis, anomaly, view) else {
                continue;
            };
            if anomaly.is_open {
                let begun = OpenProblem {
                    since: now,
                    line: None,
                };
                let problem = match self.open.remove(&key) {
                    Some(told @ OpenProblem { line: None, .. }) => told,
                    before => OpenProblem {
                        line: Some(line),
                        ..before.unwrap_or(begun)
                    },
                };
                open.insert(key, problem);
            } else {
                self.problems.insert(key);
                lines.push((anomaly.time, line));
            }
        }
        self.open = open;
        lines.sort_by_key(|(time, _)| *time);
        lines.into_iter().map(|(_, line)| line).collect()
    }

    /// Problems that have lasted for a while. Each is told once.
    fn lasting_lines(&mut self, now: Instant) -> Vec<String> {
        let open = self.open.iter_mut();
        let mut lasting: Vec<_> = open
            .filter(|(_, problem)| now >= problem.since + LASTING)
            .collect();
        lasting.sort_by_key(|(key, _)| **key);
        let lines = lasting.into_iter();
        lines
            .filter_map(|(_, problem)| problem.line.take())
            .collect()
    }
}

fn key(analysis: &Analysis, anomaly: &Anomaly) -> ProblemKey {
    let frame = anomaly.packet.map_or(0, |packet| analysis[packet].frame);
    (anomaly.time, frame, anomaly.kind.explanation().name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first packets of a capture of the kernel's device, in which the first messages found no receive at first.
    fn capture(packets: usize) -> Analysis {
        const FILE_HEADER: usize = 24;
        const PACKET_HEADER: usize = 16;
        let whole = include_bytes!("../../../wire/tests/golden/gold-rnrok.pcap");
        let mut end = FILE_HEADER;
        for _ in 0..packets {
            let length = whole[end + 8..end + 12].try_into().expect("four bytes");
            end += PACKET_HEADER + u32::from_le_bytes(length) as usize;
        }
        Analysis::read(&whole[..end]).expect("a capture")
    }

    /// How many packets there are up to the first RNR NAK.
    fn first_nak() -> usize {
        let all = capture_whole();
        let is_nak = |packet: &explain::Packet| packet.role == explain::Role::NotReady;
        1 + all.packets.iter().position(is_nak).expect("a NAK")
    }

    fn capture_whole() -> Analysis {
        let whole = include_bytes!("../../../wire/tests/golden/gold-rnrok.pcap");
        Analysis::read(whole.as_slice()).expect("a capture")
    }

    #[test]
    fn a_problem_that_ends_soon_is_told_once_with_its_end() {
        let (mut told, now) = (Told::default(), Instant::now());
        let view = View::default();
        let before = told.new_lines(&capture(first_nak()), &view, now);
        assert!(!before.concat().contains("receiver"), "{before:?}");
        assert!(told.lasting_lines(now).is_empty());
        let all = told.new_lines(&capture_whole(), &view, now).concat();
        let all = anstream::adapter::strip_str(&all).to_string();
        assert_eq!(all.matches("receiver-not-ready\n").count(), 1, "{all}");
        assert!(all.contains("it went through"), "{all}");
        let later = told.lasting_lines(now + LASTING).concat();
        assert!(!later.contains("still-trying"), "{later}");
    }

    #[test]
    fn a_problem_that_lasts_is_told_as_one_so_far_and_its_end_later() {
        let (mut told, now) = (Told::default(), Instant::now());
        let view = View::default();
        let _ = told.new_lines(&capture(first_nak()), &view, now);
        let so_far = told.lasting_lines(now + LASTING).concat();
        assert!(so_far.contains("still-trying, so far"), "{so_far}");
        assert!(told.lasting_lines(now + 2 * LASTING).is_empty(), "once");
        let end = told.new_lines(&capture_whole(), &view, now + 2 * LASTING);
        assert!(end.concat().contains("it went through"), "{end:?}");
    }

    #[test]
    fn only_what_the_view_shows_is_told() {
        let mut told = Told::default();
        let view = View {
            queue_pair: Some(wire::Qpn::new(0xff_ffff)),
            ..View::default()
        };
        let lines = told.new_lines(&capture_whole(), &view, Instant::now());
        assert!(lines.is_empty(), "{lines:?}");
    }
}
