//! Tables of what is reached on many links.

use std::time::Duration;

use engine::Congestion;

use super::link::Link;
use super::run::{Outcome, Setup, Share};

/// Tables show the median run of as many seeds.
const SEEDS: u64 = 3;

/// What shares the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Network {
    /// Few senders on many kinds of links: alone, several, and beside TCP.
    Dumbbell,
    /// Many hosts send to one at once.
    Incast,
}

const MILLISECOND: Duration = Duration::from_millis(1);

/// A link of 300 Mbit/s with a round trip of a millisecond and a short queue.
const SHALLOW: Link = Link {
    rate: 300,
    delay: Duration::from_micros(500),
    queue: 50,
    loses_one_in: None,
    delays_one_in: None,
    marks_from: None,
};

const DEEP: Link = Link {
    queue: 1000,
    ..SHALLOW
};

const FAST: Link = Link {
    rate: 1000,
    queue: 100,
    ..SHALLOW
};

const LONG: Link = Link {
    rate: 200,
    delay: Duration::from_millis(25),
    ..DEEP
};

/// The links of the tables, with their names.
const LINKS: [(&str, Link); 13] = [
    ("300 Mbit/s, 1 ms, queue 50", SHALLOW),
    ("1 Gbit/s, 1 ms, queue 100", FAST),
    ("300 Mbit/s, 1 ms, queue 1000", DEEP),
    ("300 Mbit/s, 1 ms, loss 0.1 %", losing(DEEP, 1000)),
    ("300 Mbit/s, 1 ms, loss 1 %", losing(DEEP, 100)),
    (
        "300 Mbit/s, 1 ms, 1 % late",
        Link {
            delays_one_in: Some(100),
            ..DEEP
        },
    ),
    (
        "300 Mbit/s, 10 ms, loss 0.1 %",
        Link {
            delay: Duration::from_millis(5),
            ..losing(DEEP, 1000)
        },
    ),
    ("200 Mbit/s, 50 ms", LONG),
    ("200 Mbit/s, 50 ms, loss 0.1 %", losing(LONG, 1000)),
    ("200 Mbit/s, 50 ms, loss 1 %", losing(LONG, 100)),
    (
        "1 Gbit/s, 20 ms",
        Link {
            delay: Duration::from_millis(10),
            queue: 1000,
            ..FAST
        },
    ),
    (
        "1 Gbit/s, 100 µs, queue 100",
        Link {
            delay: Duration::from_micros(50),
            ..FAST
        },
    ),
    (
        "1 Gbit/s, 1 ms, queue 1000, marks from 60",
        Link {
            queue: 1000,
            marks_from: Some(60),
            ..FAST
        },
    ),
];

const fn losing(link: Link, one_in: usize) -> Link {
    Link {
        loses_one_in: Some(one_in),
        ..link
    }
}

/// A run with one of our senders.
fn alone(link: Link) -> Setup {
    Setup {
        link,
        congestion: Congestion::default(),
        held_lists: true,
        senders: 1,
        queue_pairs: 1,
        outstanding: 64,
        cubic: 0,
        bbr: 0,
        duration: (link.delay * 400).clamp(1000 * MILLISECOND, 5000 * MILLISECOND),
        seed: 0,
    }
}

/// What a report is about.
#[derive(Debug, Clone, Copy)]
pub struct Report {
    /// What shares the link.
    pub network: Network,
    /// The control of congestion of our devices.
    pub congestion: Congestion,
    /// Whether our devices list what they hold behind a loss.
    pub held_lists: bool,
    /// How many hosts send in an incast; without it, the usual numbers.
    pub senders: Option<usize>,
    /// Only this seed instead of a median.
    pub seed: Option<u64>,
}

impl Report {
    /// Prints its tables.
    pub fn print(&self, print: impl Fn(&str)) {
        let median = |setup| self.median(setup);
        match self.network {
            Network::Dumbbell => {
                print_alone(&print, median);
                print_several(&print, median);
                print_beside_tcp(&print, median);
            }
            Network::Incast => print_incast(self.senders, &print, median),
        }
    }

    /// The run of the median seed, or that of one seed.
    fn median(&self, setup: Setup) -> Outcome {
        let seeds = self.seed.map_or(0..SEEDS, |seed| seed..seed + 1);
        let run = |seed| {
            let changed = Setup {
                seed,
                congestion: self.congestion,
                held_lists: self.held_lists,
                ..setup
            };
            changed.run()
        };
        let mut outcomes: Vec<_> = seeds.map(run).collect();
        let first = |it: &Outcome| {
            sum(if it.ours.is_empty() {
                &it.tcp
            } else {
                &it.ours
            })
        };
        outcomes.sort_by(|one, other| first(one).total_cmp(&first(other)));
        outcomes.swap_remove(outcomes.len() / 2)
    }
}

fn print_alone(print: &impl Fn(&str), median: impl Fn(Setup) -> Outcome) {
    print("| link | ours | CUBIC | BBR | p50 | p99 | queue | repeated |");
    print("|---|---|---|---|---|---|---|---|");
    for (name, link) in LINKS {
        let setup = alone(link);
        let ours = median(setup);
        let tcp = Setup {
            senders: 0,
            ..setup
        };
        let cubic = median(Setup { cubic: 1, ..tcp });
        let bbr = median(Setup { bbr: 1, ..tcp });
        print(&format!(
            "| {name} | {} | {} | {} | {} |",
            part(&ours.ours),
            part(&cubic.tcp),
            part(&bbr.tcp),
            details(&ours)
        ));
    }
}

fn print_several(print: &impl Fn(&str), median: impl Fn(Setup) -> Outcome) {
    print("");
    print(
        "| link | senders | ours, Jain | CUBIC, Jain | BBR, Jain | p50 | p99 | queue | repeated |",
    );
    print("|---|---|---|---|---|---|---|---|---|");
    for (name, link) in LINKS[..3].iter().chain(&LINKS[12..]) {
        for (senders, queue_pairs) in [(8, 1), (64, 1), (1, 8), (1, 64)] {
            let setup = Setup {
                senders,
                queue_pairs,
                outstanding: 16,
                duration: 2000 * MILLISECOND,
                ..alone(*link)
            };
            let ours = median(setup);
            let flows = senders * queue_pairs;
            let tcp = Setup {
                senders: 0,
                ..setup
            };
            let cubic = median(Setup {
                cubic: flows,
                ..tcp
            });
            let bbr = median(Setup { bbr: flows, ..tcp });
            print(&format!(
                "| {name} | {senders} · {queue_pairs} queue pairs | {} | {} | {} | {} |",
                shares(&ours.ours),
                shares(&cubic.tcp),
                shares(&bbr.tcp),
                details(&ours)
            ));
        }
    }
}

fn print_beside_tcp(print: &impl Fn(&str), median: impl Fn(Setup) -> Outcome) {
    print("");
    print("| link | beside | ours | TCP | used | p50 | p99 | queue | repeated |");
    print("|---|---|---|---|---|---|---|---|---|");
    for (name, link) in &LINKS[..3] {
        for (beside, cubic, bbr) in [("CUBIC", 1, 0), ("BBR", 0, 1)] {
            let setup = alone(*link);
            let outcome = median(Setup {
                cubic,
                bbr,
                duration: 4 * setup.duration,
                ..setup
            });
            let all = [&outcome.ours[..], &outcome.tcp[..]].concat();
            print(&format!(
                "| {name} | {beside} | {} | {} | {} | {} |",
                part(&outcome.ours),
                part(&outcome.tcp),
                part(&all),
                details(&outcome)
            ));
        }
    }
}

fn print_incast(senders: Option<usize>, print: &impl Fn(&str), median: impl Fn(Setup) -> Outcome) {
    print("| senders | ours, Jain | CUBIC, Jain | BBR, Jain | p50 | p99 | queue | repeated |");
    print("|---|---|---|---|---|---|---|---|");
    let usual = [32, 100, 320, 1000];
    for senders in senders.map_or(usual.to_vec(), |senders| vec![senders]) {
        let setup = Setup {
            senders,
            outstanding: 1,
            duration: 500 * MILLISECOND,
            ..alone(Link {
                rate: 10_000,
                delay: Duration::from_micros(25),
                ..FAST
            })
        };
        let ours = median(setup);
        let tcp = Setup {
            senders: 0,
            ..setup
        };
        let cubic = median(Setup {
            cubic: senders,
            ..tcp
        });
        let bbr = median(Setup {
            bbr: senders,
            ..tcp
        });
        print(&format!(
            "| {senders} | {} | {} | {} | {} |",
            shares(&ours.ours),
            shares(&cubic.tcp),
            shares(&bbr.tcp),
            details(&ours)
        ));
    }
}

fn sum(shares: &[Share]) -> f64 {
    shares.iter().map(|share| share.of_link).sum()
}

fn part(shares: &[Share]) -> String {
    format!("{:.2}", sum(shares))
}

/// What all of them take, and how evenly.
fn shares(shares: &[Share]) -> String {
    format!("{:.2}, {:.2}", sum(shares), fairness(shares))
}

/// Jain's index: 1 if all have the same share, and the inverse of their number if one has all.
fn fairness(shares: &[Share]) -> f64 {
    let squares: f64 = shares.iter().map(|share| share.of_link.powi(2)).sum();
    sum(shares).powi(2) / (squares * shares.len() as f64)
}

/// The times of messages, the longest queue, and how much of what we sent was sent again.
fn details(outcome: &Outcome) -> String {
    let time = |part: usize| {
        let index = outcome.times.len() * part / 100;
        let time = outcome.times.get(index).copied().unwrap_or_default();
        format!("{:.1} ms", time.as_secs_f64() * 1e3)
    };
    let repeated: u64 = outcome.ours.iter().map(|share| share.repeated).sum();
    let once: u64 = outcome.ours.iter().map(|share| share.packets).sum();
    let share = 100.0 * repeated as f64 / (once + repeated).max(1) as f64;
    let (queue, p50, p99) = (outcome.longest_queue, time(50), time(99));
    format!("{p50} | {p99} | {queue} | {share:.1} %")
}
