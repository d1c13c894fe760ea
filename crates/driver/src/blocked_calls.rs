//! Calls of the program that block.
//!
//! With explanations or the check, each is listed while it waits. One thread looks at the list. It reports a call that has
//! waited for two seconds if it is known why nothing comes, and lists all long waits before a signal ends the program.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use net::fatal_signals;
use net::stderr::print;
use net::thread_sanitizer::Unobserved;

use crate::clock::now;
use crate::times::REPORT_INTERVAL;

/// Whether calls are listed.
static ENABLED: AtomicBool = AtomicBool::new(false);

static LISTED: Mutex<Listed> = Mutex::new(Listed {
    watched: None,
    is_asleep: false,
    next: 0,
    calls: BTreeMap::new(),
});

type Describe = Arc<dyn Fn() -> Situation + Send + Sync>;

struct Listed {
    /// The fork generation whose thread looks at the calls: the threads of a parent do not exist in its child.
    watched: Option<u32>,
    /// Whether this thread sleeps until it is woken, because there is no call to look at.
    is_asleep: bool,
    next: u64,
    calls: BTreeMap<u64, Call>,
}

struct Call {
    name: &'static str,
    since: Instant,
    describe: Describe,
    look: Look,
}

/// How often a call was looked at.
enum Look {
    Never,
    /// Once, at this time, with this situation.
    Once(Instant, Situation),
    /// Twice. It was reported then, or there is nothing to report.
    Twice,
}

/// What a call waits for, and what is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Situation {
    /// What is there.
    pub facts: String,
    /// Why the call does not return, and what to do; `None` if that is not known.
    pub problem: Option<String>,
}

impl Situation {
    /// That of a call which may still return.
    #[must_use]
    pub fn without_problem(facts: impl Into<String>) -> Self {
        Self {
            facts: facts.into(),
            problem: None,
        }
    }
}

/// A blocking call, which is listed until this is dropped.
#[derive(Debug)]
#[must_use = "the call is listed until this is dropped"]
pub struct BlockedCall(Option<u64>);

/// Lists calls from now on, and starts the thread that reports them.
pub(crate) fn enable() {
    let generation = Some(net::fork::generation());
    let mut listed = lock();
    if listed.watched == generation {
        return;
    }
    listed.watched = generation;
    listed.calls.clear();
    drop(listed);
    // As for the thread of a lane: it needs memory to start, which a program may limit later.
    let running = Arc::new(Barrier::new(2));
    let reached = Arc::clone(&running);
    let builder = std::thread::Builder::new().name("roci-blocked".to_owned());
    let thread = builder.spawn(move || {
        let _unobserved = Unobserved::begin();
        fatal_signals::begin_reporting();
        reached.wait();
        watch();
    });
    if thread.is_ok() {
        running.wait();
        ENABLED.store(true, Ordering::Release);
    }
}

impl BlockedCall {
    /// Lists a call of this name, if calls are listed. Another thread calls what `describe` returns.
    pub fn begin<D: Fn() -> Situation + Send + Sync + 'static>(
        name: &'static str,
        describe: impl FnOnce() -> D,
    ) -> Self {
        if !ENABLED.load(Ordering::Acquire) {
            return Self(None);
        }
        let call = Call {
            name,
            since: now(),
            describe: Arc::new(describe()),
            look: Look::Never,
        };
        let mut listed = lock();
        if listed.watched != Some(net::fork::generation()) {
            return Self(None);
        }
        let number = listed.next;
        listed.next += 1;
        listed.calls.insert(number, call);
        // Otherwise the thread wakes up before it is time to look at this call.
        let must_wake = std::mem::take(&mut listed.is_asleep);
        drop(listed);
        if must_wake {
            fatal_signals::wake();
        }
        Self(Some(number))
    }
}

impl Drop for BlockedCall {
    fn drop(&mut self) {
        let Some(number) = self.0 else { return };
        let removed = lock().calls.remove(&number);
        if removed.is_some_and(|call| matches!(call.look, Look::Twice)) {
            // Perhaps no signal must wait any more.
            fatal_signals::wake();
        }
    }
}

impl Call {
    /// When it is to be looked at.
    fn next_look(&self) -> Option<Instant> {
        match self.look {
            Look::Never => Some(self.since + REPORT_INTERVAL),
            Look::Once(at, _) => Some(at + REPORT_INTERVAL),
            Look::Twice => None,
        }
    }

    /// Notes its situation. Returns what is to be reported.
    fn look(&mut self, situation: Situation, now: Instant) -> Option<String> {
        match std::mem::replace(&mut self.look, Look::Twice) {
            Look::Never => {
                self.look = Look::Once(now, situation);
                None
            }
            Look::Once(_, before) if before == situation => {
                let problem = situation.problem?;
                Some(format!(
                    "{} has waited for {} s. {} {problem}",
                    self.name,
                    now.saturating_duration_since(self.since).as_secs(),
                    situation.facts
                ))
            }
            Look::Once(..) | Look::Twice => None,
        }
    }
}

fn lock() -> MutexGuard<'static, Listed> {
    LISTED.lock().unwrap_or_else(PoisonError::into_inner)
}

fn watch() {
    let mut intercepts = false;
    loop {
        let seen = fatal_signals::seen();
        if let Some(signal) = fatal_signals::received() {
            print_all(signal);
            fatal_signals::reported();
        }
        let texts = look_at_all(now());
        let mut listed = lock();
        let is_long = |call: &Call| matches!(call.look, Look::Twice);
        let has_long = listed.calls.values().any(is_long);
        let next = listed.calls.values().filter_map(Call::next_look).min();
        listed.is_asleep = next.is_none();
        drop(listed);
        // Before the report: who reads it may send a signal next.
        match (intercepts, has_long) {
            (false, true) => fatal_signals::intercept(),
            (true, false) => fatal_signals::release(),
            _ => {}
        }
        intercepts = has_long;
        texts.iter().for_each(print);
        fatal_signals::wait(seen, next.map(|at| at.saturating_duration_since(now())));
    }
}

/// Looks at the calls for which it is time. Their situations are found out without a lock. Returns what is to be reported.
fn look_at_all(now: Instant) -> Vec<String> {
    let due = |call: &Call| call.next_look().is_some_and(|at| at <= now);
    let listed = lock();
    let calls = listed.calls.iter().filter(|(_, call)| due(call));
    let calls: Vec<_> =
        (calls.map(|(number, call)| (*number, Arc::clone(&call.describe)))).collect();
    drop(listed);
    let looks = calls.into_iter().filter_map(|(number, describe)| {
        let situation = describe();
        lock().calls.get_mut(&number)?.look(situation, now)
    });
    looks.collect()
}

/// Lists the calls that have waited for long.
fn print_all(signal: &str) {
    let listed = lock();
    let long = (listed.calls.values()).filter(|call| matches!(call.look, Look::Twice));
    let long: Vec<_> = long
        .map(|call| (call.name, call.since, Arc::clone(&call.describe)))
        .collect();
    drop(listed);
    if long.is_empty() {
        return;
    }
    let mut text = format!("{signal} ends the program. These calls wait:");
    for (name, since, describe) in long {
        let seconds = now().saturating_duration_since(since).as_secs();
        let Situation { facts, problem } = describe();
        text += &format!("\n    {name}, for {seconds} s: {facts}");
        problem.iter().for_each(|it| text += &format!(" {it}"));
    }
    print(text);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call() -> Call {
        Call {
            name: "ibv_destroy_cq",
            since: now(),
            describe: Arc::new(|| unreachable!("the test passes situations")),
            look: Look::Never,
        }
    }

    fn situation(facts: &str, problem: Option<&str>) -> Situation {
        Situation {
            facts: facts.to_owned(),
            problem: problem.map(str::to_owned),
        }
    }

    #[test]
    fn a_problem_that_stays_is_reported_once_after_two_seconds() {
        let mut call = call();
        let (start, problem) = (call.since, situation("It is so.", Some("Do that.")));
        assert_eq!(call.next_look(), Some(start + REPORT_INTERVAL));
        assert_eq!(call.look(problem.clone(), start + REPORT_INTERVAL), None);
        assert_eq!(call.next_look(), Some(start + 2 * REPORT_INTERVAL));
        let said = call.look(problem, start + 2 * REPORT_INTERVAL);
        let expected = "ibv_destroy_cq has waited for 2 s. It is so. Do that.";
        assert_eq!(said.as_deref(), Some(expected));
        assert_eq!(call.next_look(), None);
    }

    #[test]
    fn a_problem_that_changes_and_a_wait_without_one_are_not_reported() {
        for situations in [
            [
                situation("It holds 1.", Some("Poll.")),
                situation("It holds 2.", Some("Poll.")),
            ],
            [
                situation("It is empty.", None),
                situation("It is empty.", None),
            ],
        ] {
            let mut call = call();
            let at = call.since + 2 * REPORT_INTERVAL;
            let said = situations.map(|it| call.look(it, at));
            assert_eq!(said, [None, None]);
        }
    }
}
