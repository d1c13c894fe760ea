//! The work requests: how long each waited where.

use std::fmt::Write as _;

use super::View;
use super::colours::{BAD, FAINT, GOOD, STRONG, WARNING, paint};
use super::table::{Cell, Edge, Table};
use crate::analysis::Analysis;
use crate::text_format::{bytes, count, duration};
use crate::work_request::WorkRequest;

/// The work requests and the asynchronous events; empty if the capture has none.
pub(super) fn list(analysis: &Analysis, view: &View) -> String {
    let mut text = table(analysis, view);
    let events = &analysis.capture.async_events;
    let mut events = events
        .iter()
        .filter(|(time, _)| view.shows_time(u64::try_from(*time).unwrap_or(0)))
        .peekable();
    if events.peek().is_some() {
        let _ = writeln!(text, "\n{}", paint(STRONG, "Asynchronous events"));
    }
    for (time, name) in events.take(view.messages) {
        let _ = writeln!(text, "  {}  {name}", paint(FAINT, signed_moment(*time)));
    }
    text
}

fn table(analysis: &Analysis, view: &View) -> String {
    let wanted = analysis.work_requests.iter().filter(|request| {
        let is_meant = view.queue_pair.is_none() || request.number == view.queue_pair;
        is_meant && view.shows_time(u64::try_from(request.posted).unwrap_or(0))
    });
    let wanted: Vec<&WorkRequest> = wanted.collect();
    if wanted.is_empty() || view.messages == 0 {
        return String::new();
    }
    let mut table = Table::new([
        ("posted", Edge::Right),
        ("QP", Edge::Left),
        ("wr_id", Edge::Right),
        ("request", Edge::Left),
        ("size", Edge::Right),
        ("sent after", Edge::Right),
        ("completed after", Edge::Right),
        ("then polled", Edge::Right),
        ("status", Edge::Left),
    ]);
    for request in wanted.iter().take(view.messages) {
        table.push(row(analysis, request));
    }
    let mut text = format!("\n{}\n", paint(STRONG, "Work requests"));
    text.push_str(&table.render(view.width()));
    let left = wanted.len().saturating_sub(view.messages);
    if left > 0 {
        let more = count(left as u64, "more request", "more requests");
        let hint = format!("  … {more}: --messages, --qp, --from and --to choose");
        let _ = writeln!(text, "{}", paint(FAINT, hint));
    }
    text
}

fn row(analysis: &Analysis, request: &WorkRequest) -> Vec<Cell> {
    let number = match request.number {
        Some(number) => format!("{:#x}", number.value()),
        None => "SRQ".to_owned(),
    };
    let begun = request.message.map(|id| analysis[id].begun);
    let sent = begun.and_then(|begun| i64::try_from(begun).ok());
    let after = |from: Option<i64>, to: Option<i64>| {
        let wait = from.zip(to).map(|(from, to)| to.saturating_sub(from));
        let wait = wait.and_then(|wait| u64::try_from(wait).ok());
        wait.map_or(String::new(), duration)
    };
    let (style, status) = match request.status.as_deref() {
        Some("IBV_WC_SUCCESS") => (GOOD, "success".to_owned()),
        Some(status) => (BAD, status.to_owned()),
        None if request.is_receive => (FAINT, "not used".to_owned()),
        None if is_answered(analysis, request) => (FAINT, "no completion".to_owned()),
        None => (WARNING, "not completed".to_owned()),
    };
    vec![
        Cell::styled(FAINT, signed_moment(request.posted)),
        Cell::new(number),
        Cell::new(request.id.to_string()),
        Cell::new(request.work.as_str()),
        Cell::new(bytes(request.length)),
        Cell::new(after(Some(request.posted), sent)),
        Cell::new(after(Some(request.posted), request.completed)),
        Cell::new(after(request.completed, request.polled)),
        Cell::styled(style, status),
    ]
}

/// Whether its message was answered although no completion is in the capture: it is not signaled.
fn is_answered(analysis: &Analysis, request: &WorkRequest) -> bool {
    let message = request.message.map(|id| &analysis[id]);
    message.is_some_and(|message| message.answered.is_some())
}

/// A time before the first packet is negative.
fn signed_moment(time: i64) -> String {
    let moment = crate::text_format::moment(time.unsigned_abs());
    if time < 0 {
        format!("-{moment}")
    } else {
        moment
    }
}
