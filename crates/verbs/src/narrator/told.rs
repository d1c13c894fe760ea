//! Telling each thing once.

use std::collections::HashMap;
use std::io::Write;
use std::sync::{Mutex, PoisonError};

use super::Tale;

/// How often each thing happened: of whom, and what.
static TOLD: Mutex<Option<HashMap<(String, &'static str), u32>>> = Mutex::new(None);

/// So many different things are told; after that it is noise.
const MOST: usize = 1000;

/// Writes the paragraph the first time, and a count when it has become ten times as many.
pub(super) fn tell(device: Option<&str>, tale: &Tale) {
    let who = match device {
        Some(name) => format!("roci: {name}"),
        None => "roci".to_owned(),
    };
    let entry = tale.entry.map_or("", |entry| entry.c_name);
    let key = (format!("{who} {} {entry}", tale.about), tale.cause.reason);
    let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
    let told = told.get_or_insert_with(HashMap::new);
    if told.len() >= MOST && !told.contains_key(&key) {
        return;
    }
    let times = told.entry(key).or_insert(0);
    *times = times.saturating_add(1);
    if let Some(text) = text(tale, *times) {
        // Nobody reads it: so be it. In one piece, so that threads don't mix their words.
        let _ = std::io::stderr().write_all(format!("{who}: {text}\n").as_bytes());
    }
}

fn text(tale: &Tale, times: u32) -> Option<String> {
    if times == 1 {
        return Some(tale.paragraph());
    }
    let is_round = 10_u32.checked_pow(times.ilog10()) == Some(times);
    (is_round && !tale.is_ordinary)
        .then(|| format!("{}: the same {times} times so far.", tale.about))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thing_is_told_once_and_then_counted() {
        let tale = Tale::new(
            "QP 0x000011".to_owned(),
            "It broke.".to_owned(),
            &errors::cause::NO_RECEIVE,
        );
        let told: Vec<u32> = (1..=1000).filter(|n| text(&tale, *n).is_some()).collect();
        assert_eq!(told, [1, 10, 100, 1000]);
        assert!(text(&tale, 1).is_some_and(|text| text.contains("It broke. Post receives")));
        assert!(text(&tale, 10).is_some_and(|text| text.contains("10 times")));
    }

    #[test]
    fn an_ordinary_thing_is_told_once_without_advice() {
        let what = "It is full.".to_owned();
        let tale = Tale::new("queues".to_owned(), what, &errors::cause::QUEUE_FULL);
        let tale = tale.ordinary();
        let told: Vec<u32> = (1..=1000).filter(|n| text(&tale, *n).is_some()).collect();
        assert_eq!(told, [1]);
        assert_eq!(text(&tale, 1).as_deref(), Some("It is full."));
    }
}
