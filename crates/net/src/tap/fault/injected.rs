//! The faults of one packet.

use std::fmt;
use std::time::Duration;

use super::spec::{Action, Span};

/// The combined faults of one packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Injected {
    /// It is lost.
    pub dropped: bool,
    /// It is sent or delivered twice.
    pub duplicated: bool,
    /// One of its bits is flipped.
    pub corrupted: bool,
    /// How long it is held back.
    pub held: Option<Duration>,
    /// It is answered as if no receive were posted.
    pub not_ready: bool,
    /// How long completion events are held back from now on.
    pub late_events: Option<Duration>,
    /// How long the port is down from now on.
    pub port_down: Option<Duration>,
    /// The process stops before it handles the packet.
    pub stopped: bool,
    /// The process ends before it handles the packet.
    pub killed: bool,
}

impl Injected {
    /// No fault.
    pub const NONE: Injected = Injected {
        dropped: false,
        duplicated: false,
        corrupted: false,
        held: None,
        not_ready: false,
        late_events: None,
        port_down: None,
        stopped: false,
        killed: false,
    };

    /// Whether there is no fault.
    pub fn is_none(&self) -> bool {
        *self == Self::NONE
    }

    /// A packet that is dropped is only dropped; what the process does stays.
    pub(super) fn of_a_dropped_packet(self) -> Self {
        Injected {
            dropped: true,
            port_down: self.port_down,
            stopped: self.stopped,
            killed: self.killed,
            ..Injected::NONE
        }
    }

    pub(super) fn add(&mut self, action: Action) {
        match action {
            Action::Drop => self.dropped = true,
            Action::Duplicate => self.duplicated = true,
            Action::Corrupt => self.corrupted = true,
            Action::Delay(by) | Action::Reorder(by) => {
                self.held = Some(self.held.unwrap_or_default().saturating_add(by));
            }
            Action::NotReady => self.not_ready = true,
            Action::LateEvent(by) => self.late_events = self.late_events.max(Some(by)),
            Action::PortDown(by) => {
                self.dropped = true;
                self.port_down = self.port_down.max(Some(by));
            }
            Action::Stop(_) => self.stopped = true,
            Action::Kill => self.killed = true,
        }
    }
}

impl fmt::Display for Injected {
    /// For example `dropped by fault injection`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words: Vec<String> = Vec::new();
        let mut word = |is_so: bool, word: &str| {
            if is_so {
                words.push(word.to_owned());
            }
        };
        word(self.killed, "process killed");
        word(self.stopped, "process stopped");
        word(self.dropped, "dropped");
        word(self.duplicated, "duplicated");
        word(self.corrupted, "corrupted");
        word(self.not_ready, "answered with RNR NAK");
        if let Some(held) = self.held {
            words.push(format!("held back for {}", Span(held)));
        }
        if let Some(late) = self.late_events {
            words.push(format!("completion events delayed by {}", Span(late)));
        }
        if let Some(down) = self.port_down {
            words.push(format!("port down for {}", Span(down)));
        }
        write!(f, "{} by fault injection", words.join(" and "))
    }
}
