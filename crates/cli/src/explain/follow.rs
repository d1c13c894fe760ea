//! `roci explain --follow`: reports what happens in a capture while it is being written.
//!
//! The file is analysed again whenever it has grown. What is new in the result is printed: messages that have ended, and
//! problems.

use std::collections::HashSet;
use std::fs::File;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use explain::terminal::{View, message_line, problem_line};
use explain::{Analysis, Outcome, ReadError};

use crate::output;

/// How often the file is looked at. A person reads no faster.
const INTERVAL: Duration = Duration::from_millis(300);

/// Follows a capture until the process is ended.
pub(crate) fn follow(capture: &Path, view: &View) -> anyhow::Result<()> {
    let name = capture.display();
    let mut printed = Printed::default();
    let mut known = 0;
    loop {
        let file = File::open(capture).with_context(|| format!("{name} can't be opened"))?;
        let length = file.metadata().map_or(0, |metadata| metadata.len());
        if length < known {
            // Another capture replaces it.
            printed = Printed::default();
        }
        if length != known {
            known = length;
            match Analysis::read(file) {
                // It has just been created.
                Err(ReadError::Empty) => {}
                analysis => printed.print_new(
                    &analysis.with_context(|| format!("{name} can't be explained"))?,
                    view,
                )?,
            }
        }
        std::thread::sleep(INTERVAL);
    }
}

/// What was printed.
#[derive(Default)]
struct Printed {
    /// The first frames of messages: their places change when packets before them are found.
    messages: HashSet<(u32, u32)>,
    problems: HashSet<(usize, u32, &'static str)>,
}

impl Printed {
    fn print_new(&mut self, analysis: &Analysis, view: &View) -> anyhow::Result<()> {
        let mut lines = Vec::new();
        for message in &analysis.messages {
            let frame = analysis[message.first].frame;
            let is_open = message.outcome == Outcome::Unanswered;
            if !is_open && self.messages.insert((frame, message.first_psn.value())) {
                lines.push((message.begun, message_line(message, view)));
            }
        }
        for anomaly in &analysis.anomalies {
            let frame = anomaly.packet.map_or(0, |packet| analysis[packet].frame);
            let connection = anomaly.connection.map_or(0, |id| id.index() + 1);
            let kind = anomaly.kind.explanation().name;
            if self.problems.insert((connection, frame, kind)) {
                lines.push((anomaly.time, problem_line(anomaly, view)));
            }
        }
        lines.sort_by_key(|(time, _)| *time);
        lines
            .into_iter()
            .try_for_each(|(_, line)| output::print(line))
    }
}
