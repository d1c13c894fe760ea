//! The columns of queue pairs: titles, texts, and how to sort by them.

use std::cmp::Ordering;

use super::super::open_devices::{Level, OpenDevice, OpenQueuePair, bytes};

/// One queue pair and the device that has it.
#[derive(Clone, Copy)]
pub(super) struct Row<'r> {
    pub(super) device: &'r OpenDevice,
    pub(super) queue_pair: &'r OpenQueuePair,
}

/// Identifies a queue pair among all processes: process, context, number.
pub(super) type RowId = (u32, u32, u32);

impl Row<'_> {
    pub(super) fn id(&self) -> RowId {
        let Self { device, queue_pair } = self;
        (device.pid, device.context, queue_pair.number)
    }

    /// The text that a filter sees.
    pub(super) fn text(&self) -> String {
        let texts = COLUMNS.iter().map(|column| (column.text)(self));
        let device = [self.device.device.clone(), self.device.address.to_string()];
        texts.chain(device).collect::<Vec<_>>().join(" ")
    }

    fn counter(&self, name: &str) -> u64 {
        self.queue_pair.sum(&[name])
    }
}

/// What a column is sorted by.
enum SortValue {
    Number(f64),
    Text(String),
}

/// One column.
pub(super) struct Column {
    pub(super) title: &'static str,
    /// Columns of lower importance are left out first if the terminal is narrow.
    pub(super) importance: u8,
    pub(super) text: fn(&Row<'_>) -> String,
    value: fn(&Row<'_>) -> SortValue,
}

impl Column {
    /// Whether its values are numbers, which stand at the right and are sorted from the largest.
    pub(super) fn is_numeric(&self, row: &Row<'_>) -> bool {
        matches!((self.value)(row), SortValue::Number(_))
    }

    /// The order of two rows in this column: the largest number or the first text comes first.
    pub(super) fn compare(&self, a: &Row<'_>, b: &Row<'_>) -> Ordering {
        match ((self.value)(a), (self.value)(b)) {
            (SortValue::Number(a), SortValue::Number(b)) => b.total_cmp(&a),
            (SortValue::Text(a), SortValue::Text(b)) => a.cmp(&b),
            // A column has values of one kind.
            _ => Ordering::Equal,
        }
    }
}

/// The column that is sorted by at first.
pub(super) const FIRST_SORT: usize = 8;

macro_rules! columns {
    ($($title:literal, $importance:literal, $text:expr, $kind:ident $value:expr;)*) => {
        /// All columns.
        pub(super) static COLUMNS: [Column; [$($title),*].len()] = [$(Column {
            title: $title,
            importance: $importance,
            text: $text,
            value: |row| SortValue::$kind($value(row)),
        }),*];
    };
}

// Title, importance, text, and the value for sorting.
columns! {
    "PID", 9, |row| row.device.pid.to_string(), Number |row: &Row<'_>| -f64::from(row.device.pid);
    "PROGRAM", 7, |row| row.device.program.clone(), Text |row: &Row<'_>| row.device.program.clone();
    "QP", 10, |row| number(row.queue_pair), Text |row: &Row<'_>| number(row.queue_pair);
    "TYPE", 4, |row| row.queue_pair.kind.to_owned(), Text |row: &Row<'_>| row.queue_pair.kind.to_owned();
    "STATE", 10, |row| condition(row.queue_pair), Text |row: &Row<'_>| condition(row.queue_pair);
    "PEER", 8, |row| row.queue_pair.peer_text(), Text |row: &Row<'_>| row.queue_pair.peer_text();
    "LANE", 4, |row| row.queue_pair.lane.to_string(), Number |row: &Row<'_>| -f64::from(row.queue_pair.lane);
    "PATH", 5, |row| row.queue_pair.path.to_owned(), Text |row: &Row<'_>| row.queue_pair.path.to_owned();
    "SENT/s", 10, |row| rate(row, |it| it.bytes_sent), Number |row: &Row<'_>| rate_value(row, |it| it.bytes_sent);
    "RECEIVED/s", 9, |row| rate(row, |it| it.bytes_received), Number |row: &Row<'_>| rate_value(row, |it| it.bytes_received);
    "MESSAGES/s", 6, messages_rate, Number |row: &Row<'_>| rate_value(row, |it| it.messages);
    "MESSAGES", 3, |row| messages(row).to_string(), Number |row: &Row<'_>| messages(row) as f64;
    "RETRANS", 8, |row| row.counter("retransmitted").to_string(), Number |row: &Row<'_>| row.counter("retransmitted") as f64;
    "TIMEOUTS", 3, |row| row.counter("timeouts").to_string(), Number |row: &Row<'_>| row.counter("timeouts") as f64;
    "RNR", 7, |row| not_ready(row).to_string(), Number |row: &Row<'_>| not_ready(row) as f64;
    "WINDOW", 5, |row| level(row.queue_pair.window), Number |row: &Row<'_>| fullness(row.queue_pair.window);
    "SENDS", 4, |row| level(row.queue_pair.send_queue), Number |row: &Row<'_>| fullness(row.queue_pair.send_queue);
    "RECVS", 4, |row| level(row.queue_pair.receive_queue), Number |row: &Row<'_>| fullness(row.queue_pair.receive_queue);
    "CQ", 5, |row| level(fullest_queue(row.queue_pair)), Number |row: &Row<'_>| fullness(fullest_queue(row.queue_pair));
}

fn number(queue_pair: &OpenQueuePair) -> String {
    format!("{:#08x}", queue_pair.number)
}

/// The state, and what the queue pair waits for.
pub(super) fn condition(queue_pair: &OpenQueuePair) -> String {
    let state = queue_pair.state;
    if queue_pair.waits_for_receiver {
        return format!("{state} rnr");
    }
    match queue_pair.present_timeouts {
        0 => state.to_owned(),
        timeouts => format!("{state} retry {timeouts}"),
    }
}

type RateOf = fn(&super::super::open_devices::Rates) -> f64;

fn rate_value(row: &Row<'_>, of: RateOf) -> f64 {
    row.queue_pair.rates.as_ref().map_or(0.0, of)
}

fn rate(row: &Row<'_>, of: RateOf) -> String {
    row.queue_pair
        .rates
        .as_ref()
        .map_or_else(|| "-".to_owned(), |rates| bytes(of(rates)))
}

fn messages_rate(row: &Row<'_>) -> String {
    row.queue_pair
        .rates
        .map_or_else(|| "-".to_owned(), |rates| format!("{:.0}", rates.messages))
}

fn messages(row: &Row<'_>) -> u64 {
    row.queue_pair.sum(&["messages_sent", "messages_received"])
}

fn not_ready(row: &Row<'_>) -> u64 {
    row.queue_pair.sum(&["rnr_naks_sent", "rnr_naks_received"])
}

/// The fuller one of the two completion queues.
fn fullest_queue(queue_pair: &OpenQueuePair) -> Level {
    let (sends, receives) = (queue_pair.send_completions, queue_pair.receive_completions);
    if fullness(sends) >= fullness(receives) {
        sends
    } else {
        receives
    }
}

fn level(level: Level) -> String {
    match level.capacity {
        0 => "-".to_owned(),
        capacity => format!("{}/{capacity}", level.used),
    }
}

fn fullness(level: Level) -> f64 {
    f64::from(level.used) / f64::from(level.capacity.max(1))
}

#[cfg(test)]
mod tests {
    use super::super::super::open_devices::tests::{device, queue_pair};
    use super::*;

    #[test]
    fn the_first_column_to_sort_by_is_what_is_sent() {
        assert_eq!(COLUMNS[FIRST_SORT].title, "SENT/s");
    }

    #[test]
    fn a_state_says_what_the_queue_pair_waits_for() {
        let mut subject = queue_pair(1, 0);
        assert_eq!(condition(&subject), "RTS");
        subject.present_timeouts = 2;
        assert_eq!(condition(&subject), "RTS retry 2");
        subject.waits_for_receiver = true;
        assert_eq!(condition(&subject), "RTS rnr");
    }

    #[test]
    fn the_fuller_completion_queue_is_shown() {
        let mut subject = queue_pair(1, 0);
        subject.receive_completions = Level {
            used: 3,
            capacity: 4,
        };
        let device = device(1, 0.0, 0);
        let row = Row {
            device: &device,
            queue_pair: &subject,
        };
        let column = COLUMNS.iter().find(|column| column.title == "CQ");
        assert_eq!((column.expect("a column").text)(&row), "3/4");
    }
}
