//! Runs a scenario.

mod draw;

use std::time::Duration;

use crate::CheckError;
use crate::cluster::{Cluster, Profile, Service};
use crate::connections::Connections;
use crate::datagrams::Datagrams;
use crate::overrun::Overrun;
use crate::rng::Rng;
use crate::scenario::Scenario;
use crate::summary::{Options, Summary};
use draw::{MESSAGES, UNRELIABLE, WINDOWS, base, faultless, faulty};

impl Scenario {
    /// Runs this scenario.
    pub(crate) fn execute(self, mut rng: Rng, options: Options) -> Result<Summary, CheckError> {
        let profile = match self {
            Scenario::Faultless => faultless_profile(&mut rng),
            Scenario::Faulty => faulty_profile(&mut rng),
            Scenario::LateReceivers => late_receivers(&mut rng),
            Scenario::Violations => violations(&mut rng),
            Scenario::Windows => windows(&mut rng),
            Scenario::Disruptions => disruptions(&mut rng),
            Scenario::HostFailure => host_failure(&mut rng),
            Scenario::Unreliable => unreliable(&mut rng),
            Scenario::Extended => extended(&mut rng),
            Scenario::Datagrams => return self.send_datagrams(rng, options),
            Scenario::Overrun => return self.overrun(rng, options),
            Scenario::Connections => return self.connect(rng, options),
        };
        let mut cluster = Cluster::build(profile, options.device_bug(), rng)?;
        cluster.world.prints = options.packets;
        cluster.run()?;
        Ok(Summary::of(self, cluster.queue_pairs(), &cluster.world))
    }

    fn send_datagrams(self, mut rng: Rng, options: Options) -> Result<Summary, CheckError> {
        let delay = Duration::from_micros(rng.between(1, 50) as u64);
        let faults = if rng.percent(60) {
            faulty(&mut rng, 2, delay)
        } else {
            faultless(delay)
        };
        let mut datagrams = Datagrams::build(faults, options.device_bug(), rng)?;
        datagrams.world.prints = options.packets;
        datagrams.run()?;
        Ok(Summary::of(self, datagrams.queue_pairs(), &datagrams.world))
    }

    fn overrun(self, rng: Rng, options: Options) -> Result<Summary, CheckError> {
        let mut overrun = Overrun::build(options.device_bug(), rng)?;
        overrun.world.prints = options.packets;
        overrun.run()?;
        Ok(Summary::of(self, overrun.queue_pairs(), &overrun.world))
    }

    fn connect(self, rng: Rng, options: Options) -> Result<Summary, CheckError> {
        let mut connections = Connections::build(options.bug, rng)?;
        connections.world.prints = options.packets;
        connections.run()?;
        Ok(Summary {
            event_counts: std::mem::take(&mut connections.event_counts),
            ..Summary::of(self, connections.queue_pairs(), &connections.world)
        })
    }
}

fn faultless_profile(rng: &mut Rng) -> Profile {
    Profile {
        drains: rng.weighted(&[(1, 0), (1, 20)]),
        bad_posts: 20,
        ..base(rng)
    }
}

fn faulty_profile(rng: &mut Rng) -> Profile {
    let base = base(rng);
    Profile {
        faults: faulty(rng, base.hosts, base.faults.delay),
        late_receives: rng.percent(40),
        ..base
    }
}

fn late_receivers(rng: &mut Rng) -> Profile {
    Profile {
        late_receives: true,
        verbs: MESSAGES,
        ..base(rng)
    }
}

/// A network with or without faults, and receives posted in time or late.
fn any_network_profile(rng: &mut Rng) -> Profile {
    let base = base(rng);
    let faults = if rng.percent(60) {
        faulty(rng, base.hosts, base.faults.delay)
    } else {
        base.faults
    };
    Profile {
        faults,
        late_receives: rng.percent(30),
        ..base
    }
}

fn violations(rng: &mut Rng) -> Profile {
    Profile {
        violations: 100,
        bad_posts: 50,
        limits_access: true,
        deregistrations: 20,
        poisoned_receives: rng.weighted(&[(1, 0), (1, 30)]),
        ..any_network_profile(rng)
    }
}

fn windows(rng: &mut Rng) -> Profile {
    let base = any_network_profile(rng);
    Profile {
        verbs: WINDOWS,
        windows: true,
        violations: rng.weighted(&[(1, 0), (1, 80)]),
        requests: base.requests + 20,
        ..base
    }
}

fn disruptions(rng: &mut Rng) -> Profile {
    Profile {
        breaks: 15,
        drains: 40,
        reconnections: 40,
        deregistrations: 40,
        ..any_network_profile(rng)
    }
}

fn host_failure(rng: &mut Rng) -> Profile {
    let base = any_network_profile(rng);
    let span = base.pace * base.requests as u32;
    Profile {
        death: Some((rng.below(base.hosts), rng.up_to(span))),
        ..base
    }
}

fn unreliable(rng: &mut Rng) -> Profile {
    Profile {
        service: Service::Unreliable,
        verbs: UNRELIABLE,
        shares_receives: false,
        violations: rng.weighted(&[(2, 0), (1, 50)]),
        ..any_network_profile(rng)
    }
}

fn extended(rng: &mut Rng) -> Profile {
    Profile {
        service: Service::Extended,
        violations: rng.weighted(&[(2, 0), (1, 50)]),
        ..any_network_profile(rng)
    }
}
