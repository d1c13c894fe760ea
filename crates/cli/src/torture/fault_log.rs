//! Reads the log of injected faults (`net::tap::fault`, `ROCI_FAULT_LOG`).

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use net::tap::fault::{Action, FaultSpec};

/// What the processes of one run have logged.
#[derive(Default, Clone, Debug, PartialEq)]
pub(super) struct FaultRecord {
    /// The process and the command line of each context, the first one first.
    pub(super) contexts: Vec<(u32, String)>,
    /// The faults, in the order in which they were injected.
    pub(super) faults: Vec<InjectedFault>,
    /// At least how many packets of each name each context has sent and received.
    pub(super) packets: BTreeMap<PacketClass, u64>,
}

/// A fault, as a rule that injects it again.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct InjectedFault {
    pub(super) context: usize,
    pub(super) rule: String,
    /// The packet: its opcode, queue pair and PSN in this run.
    pub(super) packet: String,
}

/// Packets of one name that one context sends or receives.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PacketClass {
    pub(super) context: usize,
    pub(super) is_sent: bool,
    /// A condition of a rule: `opcode=RC_SEND_ONLY` or `cm=REQ`.
    pub(super) name: String,
}

impl FaultRecord {
    /// An empty record if there is no log: then no process has opened a device.
    pub(super) fn read(path: &Path) -> Self {
        let text = std::fs::read(path).unwrap_or_default();
        Self::parse(&String::from_utf8_lossy(&text))
    }

    fn parse(text: &str) -> Self {
        let mut record = Self::default();
        for line in text.lines() {
            let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
            // A line of another form was written by another version: the others still count.
            let _ = match kind {
                "context" => record.add_context(rest),
                "packets" => record.add_packets(rest),
                "fault" => record.add_fault(rest),
                _ => None,
            };
        }
        record
    }

    fn add_context(&mut self, rest: &str) -> Option<()> {
        let (_, rest) = rest.split_once(" process ")?;
        let (process, command) = rest.split_once(' ').unwrap_or((rest, ""));
        self.contexts
            .push((process.parse().ok()?, command.to_owned()));
        Some(())
    }

    fn add_packets(&mut self, rest: &str) -> Option<()> {
        let words: Vec<_> = rest.split(' ').collect();
        let [context, direction, name, count] = words[..] else {
            return None;
        };
        let class = PacketClass {
            context: context.parse().ok()?,
            is_sent: direction == "tx",
            name: name.to_owned(),
        };
        self.packets.insert(class, count.parse().ok()?);
        Some(())
    }

    fn add_fault(&mut self, rest: &str) -> Option<()> {
        let (rule, packet) = rest.split_once(" # ").unwrap_or((rest, "a packet"));
        let (context, rule) = rule.split_once(' ')?;
        self.faults.push(InjectedFault {
            context: context.parse().ok()?,
            rule: rule.to_owned(),
            packet: packet.to_owned(),
        });
        Some(())
    }

    /// The process of a context.
    pub(super) fn process(&self, context: usize) -> Option<u32> {
        let (process, _) = self.contexts.get(context.checked_sub(1)?)?;
        Some(*process)
    }

    /// Which packets of which programs the faults concern, in words.
    pub(super) fn descriptions(&self) -> Vec<String> {
        self.faults
            .iter()
            .map(|fault| self.describe(fault))
            .collect()
    }

    fn describe(&self, fault: &InjectedFault) -> String {
        let command = self.contexts.get(fault.context.wrapping_sub(1));
        let command = command.map_or("a process", |(_, command)| command.as_str());
        format!(
            "{}: {} (context {}: {command})",
            fault.rule, fault.packet, fault.context
        )
    }
}

impl InjectedFault {
    fn action(&self) -> Option<Action> {
        let spec: FaultSpec = self.rule.parse().ok()?;
        spec.rules().first().map(|rule| rule.action)
    }

    /// How long the process stays stopped, if it is a stop.
    pub(super) fn stops_for(&self) -> Option<Duration> {
        match self.action() {
            Some(Action::Stop(by)) => Some(by),
            _ => None,
        }
    }

    /// The name of its kind.
    pub(super) fn kind(&self) -> String {
        let action = self
            .action()
            .map_or_else(String::new, |action| action.to_string());
        if self.rule.contains(",cm=") {
            format!("{action} of a CM message")
        } else {
            action
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_packets_and_faults_are_read() {
        let record = FaultRecord::parse(
            "context 1 process 11 ./server\ncontext 2 process 12 ./client 10.0.0.7\n\
             packets 2 tx opcode=RC_SEND_ONLY 1\npackets 2 tx opcode=RC_SEND_ONLY 2\n\
             fault 2 stop:context=2,opcode=RC_SEND_ONLY,nth=2,by=50ms # RC SEND_ONLY to QP 0x11, PSN 5\n\
             something else\n",
        );
        assert_eq!(record.process(2), Some(12));
        assert_eq!(record.packets.values().copied().collect::<Vec<_>>(), [2]);
        let [fault] = &record.faults[..] else {
            panic!("{record:?}");
        };
        assert_eq!(fault.stops_for(), Some(Duration::from_millis(50)));
        assert_eq!(
            record.describe(fault),
            "stop:context=2,opcode=RC_SEND_ONLY,nth=2,by=50ms: RC SEND_ONLY to QP 0x11, PSN 5 (context 2: ./client 10.0.0.7)"
        );
    }
}
