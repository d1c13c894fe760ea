//! The lanes of an open device beside its first, and which lane a completion queue gets.

use std::sync::Arc;

use parking_lot::Mutex;

use super::Driver;
use crate::lane::thread::Thread;
use crate::lanes::{FirstLane, LanesOfThreads};
use crate::options::{OpenError, OpenOptions};
use crate::waiting::notifier::Notifier;

/// The lanes beside the first. They are opened when a thread needs them.
pub(super) struct Lanes {
    /// How many lanes there may be, with the first.
    limit: usize,
    options: OpenOptions,
    threads: Mutex<LanesOfThreads>,
    /// By index, without the first.
    open: Mutex<Vec<OtherLane>>,
}

enum OtherLane {
    NotNeeded,
    Open(Arc<Driver>),
    /// It could not be opened, for example because the process may open no more files.
    Unavailable,
}

impl Lanes {
    /// Captures, faults and the checker need all packets in one order, so there is one lane then.
    pub(super) fn new(options: &OpenOptions, simulated: bool) -> Self {
        let one = simulated
            || options.capture.is_some()
            || options.faults.is_some()
            || options.check.is_some();
        let limit = if one { 1 } else { options.lanes.max(1) };
        Self {
            limit,
            options: options.clone(),
            threads: Mutex::default(),
            open: Mutex::new((1..limit).map(|_| OtherLane::NotNeeded).collect()),
        }
    }
}

impl Driver {
    /// How many lanes the device may have. Programs that spread completion queues over the vectors of a device get a
    /// lane for each.
    #[must_use]
    pub fn max_lanes(&self) -> usize {
        self.lanes.as_ref().map_or(1, |lanes| lanes.limit)
    }

    /// Which lane of its device this is. The first is 0.
    #[must_use]
    pub fn lane(&self) -> usize {
        self.index
    }

    /// The lane of a new completion queue, and of the queue pairs that send with it: the given one, or that of the
    /// calling thread.
    #[must_use]
    pub fn lane_for_queue(self: &Arc<Self>, wanted: Option<usize>) -> Arc<Self> {
        let first = || Arc::clone(self);
        let Some(lanes) = self.lanes.as_ref().filter(|lanes| lanes.limit > 1) else {
            return first();
        };
        if self.is_inherited() {
            return first();
        }
        let count = lanes.limit;
        let index = match wanted {
            Some(wanted) => wanted % count,
            None => lanes.threads.lock().of_this_thread(count),
        };
        match index.checked_sub(1) {
            Some(other) => self.open_lane(lanes, other).unwrap_or_else(first),
            None => first(),
        }
    }

    /// The lane of a queue pair whose send completion queue has the lane `of_queue`. If that queue belongs to another device, this is
    /// the result, and its engine reports the queue as unknown.
    #[must_use]
    pub fn lane_for_queue_pair(self: &Arc<Self>, of_queue: &Arc<Self>) -> Arc<Self> {
        let is_ours = Arc::ptr_eq(&self.lane.common, &of_queue.lane.common);
        Arc::clone(if is_ours { of_queue } else { self })
    }

    fn open_lane(&self, lanes: &Lanes, other: usize) -> Option<Arc<Self>> {
        let mut open = lanes.open.lock();
        let lane = open.get_mut(other)?;
        if matches!(lane, OtherLane::NotNeeded) {
            *lane = match self.new_lane(&lanes.options, other + 1) {
                Ok(driver) => OtherLane::Open(Arc::new(driver)),
                Err(_) => OtherLane::Unavailable,
            };
        }
        match lane {
            OtherLane::Open(driver) => Some(Arc::clone(driver)),
            OtherLane::NotNeeded | OtherLane::Unavailable => None,
        }
    }

    fn new_lane(&self, options: &OpenOptions, index: usize) -> Result<Self, OpenError> {
        let first = FirstLane {
            other: index,
            common: Arc::clone(&self.lane.common),
            objects: Arc::clone(&self.lane.objects),
        };
        let lane = Self::create_lane(&self.device, options, Some(&first))?;
        let thread = Thread::start(Arc::clone(&lane)).map_err(OpenError::System)?;
        let driver = Self::over(lane, self.device.clone(), options, Some(thread));
        Ok(Self {
            index,
            exit_announced: None,
            ..driver
        })
    }

    /// Sends deferred acknowledgements, of all lanes if this is the first.
    pub fn flush(&self) {
        self.call(|_| ());
        self.for_other_lanes(|lane| lane.call(|_| ()));
    }

    /// The lane that serves a channel, if it is another one of this device.
    pub(super) fn other_lane_of(&self, notifier: &Notifier) -> Option<Arc<Self>> {
        let lanes = self.lanes.as_ref()?;
        let other = notifier.lane().checked_sub(1)?;
        // The lock of a forked child may be held forever.
        if self.is_inherited() {
            return None;
        }
        match lanes.open.lock().get(other) {
            Some(OtherLane::Open(driver)) => Some(Arc::clone(driver)),
            _ => None,
        }
    }

    pub(super) fn for_other_lanes(&self, mut work: impl FnMut(&Self)) {
        let Some(lanes) = &self.lanes else { return };
        if self.is_inherited() {
            return;
        }
        let open = lanes.open.lock();
        let drivers = open.iter().filter_map(|lane| match lane {
            OtherLane::Open(driver) => Some(Arc::clone(driver)),
            OtherLane::NotNeeded | OtherLane::Unavailable => None,
        });
        let drivers: Vec<_> = drivers.collect();
        drop(open);
        drivers.iter().for_each(|driver| work(driver));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CheckOptions;

    #[test]
    fn captures_faults_checks_and_simulations_have_one_lane() {
        let usual = OpenOptions {
            lanes: 4,
            ..OpenOptions::default()
        };
        assert_eq!(Lanes::new(&usual, false).limit, 4);
        assert_eq!(Lanes::new(&usual, true).limit, 1);
        let changes: [fn(&mut OpenOptions); 4] = [
            |options| options.capture = Some("packets.pcapng".into()),
            |options| options.faults = Some("drop=1%".into()),
            |options| options.check = Some(CheckOptions::default()),
            |options| options.lanes = 0,
        ];
        for change in changes {
            let mut options = usual.clone();
            change(&mut options);
            assert_eq!(Lanes::new(&options, false).limit, 1);
        }
    }
}
