//! Checks the program: reports violations of the rules of the verbs on stderr, in a file, and at the end.
//!
//! The devices of a process share one checker, because one request may conflict with one of another device.

mod call;
mod options;
mod output;
mod summary;
mod thread_sanitizer;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use ::check::{Checker, DeviceId, Level, Rule};
use engine::Observation;
use net::exit_hooks::Stage;
use net::tap::record_log::RecordLog;

pub use ::check::Profile;
pub use options::CheckOptions;

use crate::diagnostics::Explained;
use crate::fabric::here;
use call::Call;
use options::Suppressions;
use output::Output;
use summary::Summary;
use thread_sanitizer::Fibers;

/// The exit status of a program with errors, if [`CheckOptions::fail`] is set.
const FAILED: i32 = 66;

/// How many violations are reported. More would only be noise.
const MAX_REPORTED: usize = 1000;

pub(crate) type Finding = ::check::Finding<Option<Arc<Call>>>;

/// The checker of this process, with the fork generation that created it.
static OF_PROCESS: Mutex<Option<(u32, Arc<ProcessCheck>)>> = Mutex::new(None);

/// The checker of a process.
pub(crate) struct ProcessCheck {
    fail: bool,
    suppressions: Suppressions,
    /// Whether requests of several processes are compared.
    compares_processes: bool,
    /// Whether ThreadSanitizer is told what the devices do.
    tells_threads: bool,
    state: Mutex<State>,
    /// The records of all processes whose requests are compared. Locked before the state, and never with a lane: a
    /// file may be slow.
    log: Mutex<Option<RecordLog>>,
    /// How many bytes of records of this process are in the log; the maximum if there is no log any more.
    published: AtomicU64,
    /// Locked after the state is released: a reader of stderr may be slow.
    output: Mutex<Output>,
}

struct State {
    checker: Checker<Option<Arc<Call>>>,
    /// Records that are not in the log yet.
    unpublished: Vec<u8>,
    /// How many bytes of records there were, in the log or not.
    recorded: u64,
    /// Why there is no log any more.
    log_failure: Option<String>,
    devices: BTreeMap<DeviceId, Weak<dyn CheckedDevice>>,
    next_device: u32,
    /// What ThreadSanitizer knows of the devices, if the program was built with it.
    fibers: Fibers,
    /// How often each rule was violated, by object.
    counts: BTreeMap<(Rule, String), u32>,
    /// Problems that were explained, each once.
    explained: Vec<Explained>,
}

/// The part of the checker that one device uses.
pub(crate) struct DeviceCheck {
    id: DeviceId,
    process: Arc<ProcessCheck>,
}

/// A device whose program is checked.
pub(crate) trait CheckedDevice: Send + Sync {
    /// Handles what has happened and was not handled yet, if no other thread uses the device now.
    fn try_check(&self);
}

impl DeviceCheck {
    /// Starts to check a device.
    pub(crate) fn new(options: &CheckOptions) -> Self {
        // A simulated world is one process.
        let own = || Arc::new(ProcessCheck::new(options, None));
        let process = here(|machine| machine.checker(&own)).unwrap_or_else(|| of_process(options));
        let mut state = process.lock();
        let id = DeviceId(state.next_device);
        state.next_device += 1;
        drop(state);
        Self { id, process }
    }

    /// Sets the device to examine when the process ends.
    pub(crate) fn set_device(&self, device: Weak<dyn CheckedDevice>) {
        let mut state = self.process.lock();
        state.devices.insert(self.id, device);
    }

    /// Handles observations. The caller reports the findings after it has released the lane's lock, and lets no packet
    /// leave before the records are [published](Self::is_published).
    pub(crate) fn observe(
        &self,
        observations: impl IntoIterator<Item = Observation>,
    ) -> (Vec<Finding>, Recorded) {
        let mut findings = Vec::new();
        let mut call = None;
        let mut state = self.process.lock();
        for observation in observations {
            if call.is_none() && is_call(&observation) {
                call = Some(Arc::new(Call::capture()));
            }
            (state.checker).observe(self.id, observation, &call, &mut findings);
        }
        for deed in state.checker.take_deeds() {
            state.fibers.tell(&deed);
        }
        (findings, state.take_records())
    }

    /// Whether a thread that learns from a packet must know what was observed before.
    pub(crate) fn tells_threads(&self) -> bool {
        self.process.tells_threads
    }

    /// Whether other processes read the records of this one.
    pub(crate) fn publishes(&self) -> bool {
        self.process.compares_processes
    }

    /// Whether these records are in the log.
    pub(crate) fn is_published(&self, recorded: Recorded) -> bool {
        self.process.published.load(Ordering::Acquire) >= recorded.0
    }

    /// Writes records into the log, compares those of other processes, and reports what is found. The caller holds no
    /// lock.
    pub(crate) fn publish(&self) {
        self.process.publish();
    }

    /// Reports findings, each kind once for each object.
    pub(crate) fn report(&self, findings: Vec<Finding>) {
        self.process.report(findings);
    }

    /// Counts problems that were explained to the user.
    pub(crate) fn note_explained(&self, problems: Vec<Explained>) {
        for problem in problems {
            self.process.note_explained(problem);
        }
    }

    /// Reports what the device leaves behind.
    pub(crate) fn close(&self) {
        let mut state = self.process.lock();
        state.devices.remove(&self.id);
        let mut findings = Vec::new();
        state.checker.close(self.id, &mut findings);
        state.fibers.close(self.id);
        drop(state);
        self.process.report(findings);
    }
}

/// The records of a process up to a position.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Recorded(u64);

/// Counts a problem of no device that was explained to the user, if the process is checked.
pub(crate) fn note_explained(problem: Explained) {
    if let Some(process) = of_this_process() {
        process.note_explained(problem);
    }
}

/// The checker of this process, if there is one.
fn of_this_process() -> Option<Arc<ProcessCheck>> {
    let current = OF_PROCESS.lock().unwrap_or_else(PoisonError::into_inner);
    let (created, process) = current.as_ref()?;
    (*created == net::fork::generation()).then(|| Arc::clone(process))
}

/// Whether the observation is a call of the program whose stack a finding shows.
fn is_call(observation: &Observation) -> bool {
    matches!(
        observation,
        Observation::SendPosted(_)
            | Observation::ReceivePosted { .. }
            | Observation::QueuePairDestroyed(_)
            | Observation::QueuePairReset(_)
            | Observation::QueuePair(..)
            | Observation::CompletionQueue(..)
            | Observation::Registered { .. }
            | Observation::Deregistered { .. }
            | Observation::ReadDepth(..)
    )
}

fn of_process(options: &CheckOptions) -> Arc<ProcessCheck> {
    let generation = net::fork::generation();
    let mut current = OF_PROCESS.lock().unwrap_or_else(PoisonError::into_inner);
    match &*current {
        Some((created, process)) if *created == generation => Arc::clone(process),
        _ => {
            let log = options.processes.then(open_log).flatten();
            let process = Arc::new(ProcessCheck::new(options, log));
            if current.is_none() {
                net::exit_hooks::at_exit(Stage::Check, finish);
            }
            *current = Some((generation, Arc::clone(&process)));
            process
        }
    }
}

/// The log of records, with which requests of several processes are compared.
fn open_log() -> Option<RecordLog> {
    let size = Checker::<Option<Arc<Call>>>::RECORD_BYTES;
    let log = RecordLog::open("check-processes", size);
    log.inspect_err(|error| {
        output::print(&format!("processes are not compared: {error}"));
    })
    .ok()
}

/// Reports what is left when the program ends, and a summary.
fn finish() {
    let Some(process) = of_this_process() else {
        return;
    };
    process.examine_open_devices();
    process.publish();
    // The last process empties the file.
    *process.log() = None;
    if process.summarize() && process.fail {
        net::exit_hooks::exit_now(FAILED);
    }
}

impl ProcessCheck {
    fn new(options: &CheckOptions, log: Option<RecordLog>) -> Self {
        let tells_threads = net::thread_sanitizer::is_present();
        let checker = Checker::new().with_profile(options.profile);
        let mut checker = checker.with_threads(tells_threads);
        let number = getrandom::u64().ok().filter(|_| log.is_some());
        if let Some(number) = number {
            checker = checker.with_processes(number, std::process::id());
        }
        Self {
            fail: options.fail,
            compares_processes: number.is_some(),
            tells_threads,
            suppressions: Suppressions::read(options.suppressions.as_deref()),
            output: Mutex::new(Output::new(options.json.as_deref())),
            log: Mutex::new(log),
            published: AtomicU64::new(0),
            state: Mutex::new(State {
                checker,
                unpublished: Vec::new(),
                recorded: 0,
                log_failure: None,
                devices: BTreeMap::new(),
                fibers: Fibers::default(),
                next_device: 0,
                counts: BTreeMap::new(),
                explained: Vec::new(),
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn log(&self) -> MutexGuard<'_, Option<RecordLog>> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn publish(&self) {
        let mut guard = self.log();
        let Some(log) = &mut *guard else {
            // No packet waits for a log that is gone.
            return self.published.store(u64::MAX, Ordering::Release);
        };
        let mut state = self.lock();
        let (records, recorded) = (std::mem::take(&mut state.unpublished), state.recorded);
        drop(state);
        let mut of_all = Vec::new();
        let done = log
            .append(&records)
            .and_then(|()| log.read_new(|records| of_all.extend_from_slice(records)));
        let mut findings = Vec::new();
        let mut state = self.lock();
        state.checker.replay(&of_all, &mut findings);
        if let Err(error) = done {
            state.log_failure = Some(format!("processes were not compared to the end: {error}"));
            *guard = None;
            self.published.store(u64::MAX, Ordering::Release);
        } else {
            self.published.store(recorded, Ordering::Release);
        }
        drop(state);
        drop(guard);
        self.report(findings);
    }

    /// Handles the last observations of devices that the program has not closed.
    fn examine_open_devices(&self) {
        let devices: Vec<_> = self.lock().devices.keys().copied().collect();
        for id in devices {
            let device = self.lock().devices.get(&id).and_then(Weak::upgrade);
            if let Some(device) = device {
                device.try_check();
            }
            let mut state = self.lock();
            let mut findings = Vec::new();
            state.checker.close(id, &mut findings);
            state.fibers.close(id);
            drop(state);
            self.report(findings);
        }
    }

    fn report(&self, findings: Vec<Finding>) {
        for finding in findings {
            if !self.suppressions.cover(&finding) && self.lock().is_new(&finding) {
                self.output().write(&finding);
                if finding.rule.level() == Level::Error {
                    here(|machine| machine.note_finding(&|| finding.paragraph()));
                }
            }
        }
    }

    fn note_explained(&self, problem: Explained) {
        if self.suppressions.cover_explained(&problem.what) {
            return;
        }
        if problem.is_mistake {
            self.output().write_explained(&problem);
        }
        let mut state = self.lock();
        if state.explained.len() < MAX_REPORTED {
            state.explained.push(problem);
        }
    }

    fn output(&self) -> MutexGuard<'_, Output> {
        self.output.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a summary. Returns whether there were errors.
    fn summarize(&self) -> bool {
        let state = self.lock();
        let summary = Summary::new(&state.counts, &state.explained);
        let log_failure = state.log_failure.clone();
        drop(state);
        log_failure.iter().for_each(|it| output::print(it));
        output::print(&summary.to_string());
        summary.has_errors()
    }
}

impl State {
    /// Keeps the records of what has happened until they are written into the log.
    fn take_records(&mut self) -> Recorded {
        let records = self.checker.take_records();
        self.recorded += records.len() as u64;
        self.unpublished.extend(records);
        Recorded(self.recorded)
    }

    /// Counts a finding. Returns whether it is the first of its kind for its object.
    fn is_new(&mut self, finding: &Finding) -> bool {
        let key = (finding.rule, finding.about.clone());
        if self.counts.len() >= MAX_REPORTED && !self.counts.contains_key(&key) {
            return false;
        }
        let count = self.counts.entry(key).or_insert(0);
        *count = count.saturating_add(1);
        *count == 1
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::{Duration, Instant};

    use engine::{
        Access, Buffer, Device, QueuePairInit, QueuePairType, RemoteMemory, SendRequest, Work,
    };

    use super::*;
    use crate::clock::now;
    use crate::driver::connected_end::End;
    use crate::{Driver, OpenOptions};

    fn compared() -> OpenOptions {
        let check = CheckOptions {
            processes: true,
            ..CheckOptions::default()
        };
        OpenOptions {
            check: Some(check),
            ..OpenOptions::default()
        }
    }

    fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
        let timeout: Instant = now() + Duration::from_secs(20);
        while !holds() {
            assert!(now() < timeout, "{what}");
            thread::yield_now();
        }
    }

    #[test]
    fn violations_are_reported_once_and_up_to_a_limit() {
        let process = ProcessCheck::new(&CheckOptions::default(), None);
        let mut state = process.lock();
        let finding = |number: usize| Finding {
            rule: ::check::Rule::Leak,
            about: number.to_string(),
            what: String::new(),
            calls: Vec::new(),
        };
        let mut are_new = (0..=MAX_REPORTED).map(|number| state.is_new(&finding(number)));
        assert!(are_new.by_ref().take(MAX_REPORTED).all(|it| it));
        assert_eq!(are_new.next(), Some(false), "too many");
        drop(are_new);
        assert!(!state.is_new(&finding(0)), "it is known");
        assert_eq!(state.counts.len(), MAX_REPORTED);
        assert_eq!(state.counts.values().max(), Some(&2));
    }

    /// Another thread writes into the log, and the file is slow.
    #[test]
    fn packets_wait_for_the_log_and_nobody_waits_for_it_with_the_device() {
        let open = |address| Driver::open(address, &compared()).expect("a loopback address");
        let here = End::of(&open("127.58.93.21"));
        let there = End::open("127.58.93.22");
        here.connect(&there);
        there.connect(&here);
        let process = of_process(&CheckOptions::default());
        let log = process.log();
        thread::scope(|scope| {
            scope.spawn(|| here.send_to(&there));
            wait_until("the request is recorded", || {
                !process.lock().unpublished.is_empty()
            });
            wait_until("the device is free", || {
                here.driver.lane().state.try_lock().is_ok()
            });
            let arrived = || {
                there
                    .driver
                    .call(|device| device.counters().packets_received)
            };
            thread::sleep(Duration::from_millis(20));
            assert_eq!(arrived(), 0, "a packet overtook its record");
            drop(log);
            wait_until("the packet arrives", || arrived() > 0);
        });
        assert!(process.lock().unpublished.is_empty());
    }

    /// Another process may know already what this device does last.
    #[test]
    fn what_a_device_receives_while_it_closes_is_in_the_log() {
        let driver = Driver::without_thread_with("127.58.93.25", &compared());
        let memory = Buffer::zeroed(8);
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let (domain, completions, region) = driver.call(|device| {
            let domain = device.allocate_domain().expect("room");
            let completions = device.create_completion_queue(8).expect("room");
            let region = device.register(domain, Arc::clone(&memory), 0, access);
            (domain, completions, region.expect("memory"))
        });
        let init = QueuePairInit::new(QueuePairType::Rc, domain, completions);
        let (_, number) = driver.create_queue_pair(init).expect("room");
        let there = End {
            driver,
            completions,
            number,
        };
        let here = End::open("127.58.93.26");
        here.connect(&there);
        there.connect(&here);
        let mut log = open_log().expect("a log");
        let target = RemoteMemory {
            address: region.address,
            key: region.remote_key,
        };
        let write = SendRequest::new(2, Work::Write(target)).inline(&[7; 8]);
        let posted = |device: &mut Device| device.post_send(here.number, write);
        here.driver.post(posted).expect("room");
        assert!(there.has_readable_socket(Duration::from_secs(20)));
        drop(there);
        assert_eq!(memory.to_vec(), [7; 8]);
        let mut records = Vec::new();
        let read = log.read_new(|new| records.extend_from_slice(new));
        read.expect("a file");
        let place = memory.address().to_le_bytes();
        let is_told = records.windows(place.len()).any(|bytes| bytes == place);
        assert!(is_told, "the access");
    }
}
