//! Reports each problem once.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use net::stderr;

use super::Diagnostic;

/// How often each problem happened, by object and cause.
static REPORTED: Mutex<Option<HashMap<(String, &'static str), u32>>> = Mutex::new(None);

/// How many different problems are reported. More would only be noise.
const MAX_PROBLEMS: usize = 1000;

/// Writes the paragraph the first time, and the count at each power of ten. Returns whether it is the first time of something
/// that can be remedied.
pub(super) fn report(device: Option<&str>, diagnostic: &Diagnostic) -> bool {
    let prefix = device.map_or_else(String::new, |name| format!("{name}: "));
    let entry = diagnostic.entry.map_or("", |entry| entry.c_name);
    let key = (
        format!("{prefix}{} {entry}", diagnostic.about),
        diagnostic.cause.reason,
    );
    let times = count(key);
    if let Some(text) = times.and_then(|times| text(diagnostic, times)) {
        stderr::print(format_args!("{prefix}{text}"));
    }
    times == Some(1) && !diagnostic.is_ordinary
}

/// Whether this process has explained anything.
pub(super) fn is_any_reported() -> bool {
    let reported = REPORTED.lock().unwrap_or_else(PoisonError::into_inner);
    reported.is_some()
}

/// How often this problem has happened; `None` if it is one of too many.
fn count(key: (String, &'static str)) -> Option<u32> {
    let mut reported = REPORTED.lock().unwrap_or_else(PoisonError::into_inner);
    let reported = reported.get_or_insert_with(HashMap::new);
    if reported.len() >= MAX_PROBLEMS && !reported.contains_key(&key) {
        return None;
    }
    let times = reported.entry(key).or_insert(0);
    *times = times.saturating_add(1);
    Some(*times)
}

fn text(diagnostic: &Diagnostic, times: u32) -> Option<String> {
    if times == 1 {
        return Some(diagnostic.paragraph());
    }
    let is_round = 10_u32.checked_pow(times.ilog10()) == Some(times);
    (is_round && !diagnostic.is_ordinary).then(|| {
        format!(
            "{}: the same problem {times} times so far.",
            diagnostic.about
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_reported_once_and_then_counted() {
        let diagnostic = Diagnostic::new(
            "QP 0x000011".to_owned(),
            "It broke.".to_owned(),
            &errors::cause::NO_RECEIVE,
        );
        let reported: Vec<u32> = (1..=1000)
            .filter(|n| text(&diagnostic, *n).is_some())
            .collect();
        assert_eq!(reported, [1, 10, 100, 1000]);
        assert!(text(&diagnostic, 1).is_some_and(|text| text.contains("It broke. Post receives")));
        assert!(text(&diagnostic, 10).is_some_and(|text| text.contains("10 times")));
    }

    #[test]
    fn an_ordinary_event_is_reported_once_without_a_remedy() {
        let what = "It is full.".to_owned();
        let diagnostic = Diagnostic::new("queues".to_owned(), what, &errors::cause::QUEUE_FULL);
        let diagnostic = diagnostic.ordinary();
        let reported: Vec<u32> = (1..=1000)
            .filter(|n| text(&diagnostic, *n).is_some())
            .collect();
        assert_eq!(reported, [1]);
        assert_eq!(text(&diagnostic, 1).as_deref(), Some("It is full."));
    }
}
