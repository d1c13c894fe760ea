//! The faults: processes are killed and stopped, links and addresses are removed.

use std::fmt;
use std::time::{Duration, Instant};

use super::cluster::{Cluster, Side};
use super::program::{Number, after};
use super::random::Random;
use super::workload::Population;

/// Longer than all retries of a queue pair, which take about four seconds.
const LONG: (u64, u64) = (6000, 8000);

/// Milliseconds that a process is stopped, and that a host is cut off.
const STOP: (u64, u64) = (100, 3000);
const OUTAGE: (u64, u64) = (50, 1500);

/// Milliseconds between two faults.
const PAUSE: (u64, u64) = (100, 600);

/// What ends a fault.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Undo {
    Resume(Number),
    LinkUp(Side),
    AddAddress(Side),
}

pub(super) struct Faults {
    random: Random,
    next: Instant,
    pending: Vec<(Instant, Undo)>,
    killed: usize,
    stopped: usize,
    links: usize,
    addresses: usize,
}

impl Faults {
    pub(super) fn new(random: Random) -> Self {
        Self {
            random,
            next: after(1000),
            pending: Vec::new(),
            killed: 0,
            stopped: 0,
            links: 0,
            addresses: 0,
        }
    }

    pub(super) fn tick(
        &mut self,
        cluster: &Cluster,
        population: &mut Population<'_>,
    ) -> Result<(), String> {
        let now = Instant::now();
        self.undo(cluster, population, |at| at <= now)?;
        if now < self.next {
            return Ok(());
        }
        self.next = after(self.random.between(PAUSE.0, PAUSE.1));
        match self.random.between(0, 99) {
            0..35 => self.kill(population),
            35..75 => self.stop(population),
            75..87 => self.cut(cluster, population, Undo::LinkUp)?,
            _ => self.cut(cluster, population, Undo::AddAddress)?,
        }
        Ok(())
    }

    /// Ends all faults that last.
    pub(super) fn end(
        &mut self,
        cluster: &Cluster,
        population: &mut Population<'_>,
    ) -> Result<(), String> {
        self.undo(cluster, population, |_| true)
    }

    fn kill(&mut self, population: &mut Population<'_>) {
        let victim = self.random.choose(&population.victims(true)).copied();
        if let Some(program) = victim.and_then(|number| population.program(number)) {
            program.kill();
            self.killed += 1;
        }
    }

    fn stop(&mut self, population: &mut Population<'_>) {
        let Some(&number) = self.random.choose(&population.victims(false)) else {
            return;
        };
        let duration = self.duration(STOP);
        let program = population.program(number);
        let Some(program) = program.filter(|program| !program.is_stopped) else {
            return;
        };
        program.stop();
        population.disturb_by_stop(number, duration);
        self.pending
            .push((Instant::now() + duration, Undo::Resume(number)));
        self.stopped += 1;
    }

    /// Takes a link or an address from one of the hosts, unless one is missing already.
    fn cut(
        &mut self,
        cluster: &Cluster,
        population: &mut Population<'_>,
        undo: fn(Side) -> Undo,
    ) -> Result<(), String> {
        let sides = [Side::Server, Side::Client];
        let undo = undo(*self.random.choose(&sides).expect("there are two"));
        let duration = self.duration(OUTAGE);
        let is_cut = |(_, undo): &(Instant, Undo)| !matches!(undo, Undo::Resume(_));
        if self.pending.iter().any(is_cut) {
            return Ok(());
        }
        match undo {
            Undo::LinkUp(side) => {
                self.links += 1;
                cluster.set_link(side, false)?;
            }
            Undo::AddAddress(side) => {
                self.addresses += 1;
                cluster.set_address(side, false)?;
            }
            Undo::Resume(_) => unreachable!("hosts are not stopped"),
        }
        population.disturb_all(duration);
        self.pending.push((Instant::now() + duration, undo));
        Ok(())
    }

    fn duration(&mut self, usual: (u64, u64)) -> Duration {
        let (least, most) = if self.random.percent(10) { LONG } else { usual };
        Duration::from_millis(self.random.between(least, most))
    }

    fn undo(
        &mut self,
        cluster: &Cluster,
        population: &mut Population<'_>,
        is_due: impl Fn(Instant) -> bool,
    ) -> Result<(), String> {
        let due: Vec<_> = self.pending.extract_if(.., |(at, _)| is_due(*at)).collect();
        for (_, undo) in due {
            match undo {
                Undo::Resume(number) => {
                    if let Some(program) = population.program(number) {
                        program.resume();
                    }
                }
                Undo::LinkUp(side) => cluster.set_link(side, true)?,
                Undo::AddAddress(side) => cluster.set_address(side, true)?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} kills, {} stops, {} interfaces down, {} addresses removed",
            self.killed, self.stopped, self.links, self.addresses
        )
    }
}
