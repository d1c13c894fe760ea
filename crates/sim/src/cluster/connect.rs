//! Creates and connects pairs of queue pairs.

use std::time::Duration;

use engine::{Access, Address, Attributes, QueuePairInit, QueuePairType, State};
use wire::{AckTimeout, PathMtu, Psn, RnrTimer};

use super::build::{HostObjects, is_down};
use super::connection_end::{End, Limits};
use super::receive_queues::Owner;
use super::{Cluster, Service};
use crate::CheckError;
use crate::simple_connect::ALL_RIGHTS;

/// The parameters that both ends of a connection share.
struct Agreement {
    mtu: PathMtu,
    /// The first PSN of each end.
    psns: [Psn; 2],
    /// The responder resources of each end.
    resources: [u8; 2],
    /// The initiator depth of each end.
    depths: [u8; 2],
}

impl Cluster {
    /// Adds two connected queue pairs at two hosts, or sometimes at one.
    pub(super) fn add_pair(&mut self, objects: &[HostObjects]) -> Result<(), CheckError> {
        let first = self.rng.below(objects.len());
        let second = if self.rng.percent(5) {
            first
        } else {
            (first + self.rng.between(1, objects.len() - 1)) % objects.len()
        };
        let mtu = self.draw_mtu();
        let kinds = match self.profile.service {
            Service::Reliable => [QueuePairType::Rc; 2],
            Service::Unreliable => [QueuePairType::Uc; 2],
            Service::Extended => [QueuePairType::XrcInitiator, QueuePairType::XrcTarget],
        };
        let one = self.add_end(&objects[first], kinds[0], mtu)?;
        let other = self.add_end(&objects[second], kinds[1], mtu)?;
        self.ends[one].peer = other;
        self.ends[other].peer = one;
        self.join([one, other])
    }

    /// Connects two ends that are in RESET.
    pub(super) fn join(&mut self, pair: [usize; 2]) -> Result<(), CheckError> {
        let mtu = self.ends[pair[0]].limits.mtu;
        let agreement = self.draw_agreement(mtu);
        for side in [0, 1] {
            self.connect(pair, side, &agreement)?;
            let (local, peer) = (pair[side], pair[1 - side]);
            let points = [local, peer].map(|end| self.ends[end].endpoint());
            let stream = self.world.tap.follow(points[0], points[1], mtu.bytes());
            self.ends[local].stream = stream;
        }
        Ok(())
    }

    fn draw_mtu(&mut self) -> PathMtu {
        *self.rng.pick(&[
            PathMtu::Mtu256,
            PathMtu::Mtu256,
            PathMtu::Mtu512,
            PathMtu::Mtu1024,
            PathMtu::Mtu2048,
            PathMtu::Mtu4096,
        ])
    }

    fn draw_agreement(&mut self, mtu: PathMtu) -> Agreement {
        let resources = [0; 2].map(|_: u8| self.rng.between(1, 16) as u8);
        let draw = |cluster: &mut Self, most: u8| cluster.rng.between(1, most.into()) as u8;
        let depths = [draw(self, resources[1]), draw(self, resources[0])];
        Agreement {
            mtu,
            psns: [0; 2].map(|_: u8| self.draw_psn()),
            resources,
            depths,
        }
    }

    /// Often close to the wrap-around of the PSN space, where most bugs are.
    fn draw_psn(&mut self) -> Psn {
        if self.rng.percent(60) {
            Psn::ZERO - self.rng.below(120) as u32
        } else {
            Psn::new(self.rng.word() as u32)
        }
    }

    fn add_end(
        &mut self,
        objects: &HostObjects,
        kind: QueuePairType,
        mtu: PathMtu,
    ) -> Result<usize, CheckError> {
        let limits = self.draw_limits(mtu);
        let shares =
            kind == QueuePairType::Rc && !objects.shared.is_empty() && self.rng.percent(70);
        let shared = shares.then(|| *self.rng.pick(&objects.shared));
        let init = self.draw_init(objects, kind, &limits, shared);
        let number = self.some_lane(objects.host)?.create_queue_pair(init)?;
        let index = self.ends.len();
        let pools = match (kind, shared) {
            (QueuePairType::XrcInitiator, _) => Vec::new(),
            (QueuePairType::XrcTarget, _) => objects.shared.clone(),
            (_, Some(pool)) => vec![pool],
            (_, None) => {
                let segments = init.max_receive_segments as usize;
                vec![self.add_pool(objects, Owner::End(index), segments)?]
            }
        };
        let quota = match kind {
            QueuePairType::XrcTarget => 0,
            _ => self.rng.between(1, self.profile.requests),
        };
        let size = 4 * self.profile.memory;
        let end = End {
            local: self.add_memory(objects.host, objects.domain, size, Access::LOCAL_WRITE)?,
            constant: self.add_memory(objects.host, objects.domain, 512, Access::empty())?,
            targets: self.add_targets(objects)?,
            access: self.draw_access(),
            stale: self.draw_stale(objects)?,
            windows: self.draw_windows(objects)?,
            completions: Some([init.send_completions, init.receive_completions]),
            pools,
            quota,
            ..End::new(objects.host, number, kind, limits)
        };
        self.ends.push(end);
        Ok(index)
    }

    fn draw_init(
        &mut self,
        objects: &HostObjects,
        kind: QueuePairType,
        limits: &Limits,
        shared: Option<usize>,
    ) -> QueuePairInit {
        let shared = shared.and_then(|pool| match self.pools[pool].owner {
            Owner::Shared(queue) => Some(queue),
            Owner::End(_) => None,
        });
        QueuePairInit {
            receive_completions: *self.rng.pick(&objects.queues),
            shared_receive: shared,
            xrc_domain: objects
                .xrc_domain
                .filter(|_| kind == QueuePairType::XrcTarget),
            max_sends: limits.max_sends as u32,
            max_receives: 64,
            max_send_segments: limits.max_segments as u32,
            max_receive_segments: self.rng.between(1, 8) as u32,
            max_inline: limits.max_inline as u32,
            signal_all: limits.signal_all,
            ..QueuePairInit::new(kind, objects.domain, *self.rng.pick(&objects.queues))
        }
    }

    fn draw_limits(&mut self, mtu: PathMtu) -> Limits {
        let patient = self.profile.faults.are_none()
            && self.profile.death.is_none()
            && self.profile.breaks == 0
            && self.profile.violations == 0;
        let ack_timeout = if patient && self.rng.percent(30) {
            None
        } else {
            Some(self.draw_timeout())
        };
        Limits {
            mtu,
            ack_timeout: ack_timeout.and_then(AckTimeout::interval),
            retry_count: self
                .rng
                .weighted(&[(6, 7), (1, 6), (1, 4), (1, 2), (1, 1), (1, 0)]),
            rnr_retry: self.rng.weighted(&[(8, 7), (1, 6), (1, 3), (1, 0)]),
            max_sends: self.rng.between(2, 64),
            max_segments: *self.rng.pick(&[1, 2, 4, 16, 32]),
            max_inline: *self.rng.pick(&[0, 16, 64, 256, 1024]),
            signal_all: self.rng.percent(20),
        }
    }

    /// Not shorter than the longest round trip, so a timeout means a loss.
    fn draw_timeout(&mut self) -> AckTimeout {
        let slowest = self.world.slowest_round_trip() + Duration::from_micros(1);
        let shortest = (1..31)
            .filter_map(AckTimeout::new)
            .find(|timeout| {
                timeout
                    .interval()
                    .is_some_and(|interval| interval > slowest)
            })
            .expect("a timeout code exists for every network delay");
        let code = shortest.code() + self.rng.below(3) as u8;
        AckTimeout::new(code).unwrap_or(shortest)
    }

    fn draw_access(&mut self) -> Access {
        if self.profile.limits_access && self.rng.percent(40) {
            Access::from_bits_truncate(self.rng.word() as u32) & ALL_RIGHTS
        } else {
            ALL_RIGHTS
        }
    }

    /// Brings one end from RESET to RTS.
    fn connect(
        &mut self,
        pair: [usize; 2],
        side: usize,
        agreement: &Agreement,
    ) -> Result<(), CheckError> {
        let (local, peer) = (pair[side], pair[1 - side]);
        let steps = [
            self.initialized(local),
            self.ready_to_receive(local, peer, agreement.psns[1 - side], agreement, side),
            self.ready_to_send(local, agreement.psns[side], agreement.depths[side]),
        ];
        let (host, number) = (self.ends[local].host, self.ends[local].number);
        for attributes in steps {
            let device = self.world.device_of(host, number).ok_or_else(is_down)?;
            device.modify(number, &attributes)?;
        }
        Ok(())
    }

    fn initialized(&self, end: usize) -> Attributes {
        Attributes {
            state: Some(State::Initialized),
            port: Some(1),
            partition_index: Some(0),
            access: Some(self.ends[end].access),
            ..Attributes::default()
        }
    }

    fn ready_to_receive(
        &mut self,
        local: usize,
        peer: usize,
        expected: Psn,
        agreement: &Agreement,
        side: usize,
    ) -> Attributes {
        let peer = &self.ends[peer];
        let gid = self.world.hosts[peer.host].address.into();
        let device = self.world.device(self.ends[local].host);
        let last = device.map_or(0, |device| device.gids().len() - 1);
        let mut path = Address::new(gid, last as u8);
        path.flow_label = self.rng.below(1 << 20) as u32;
        let responds = matches!(
            self.ends[local].kind,
            QueuePairType::Rc | QueuePairType::XrcTarget
        );
        let rnr_timer = RnrTimer::new(self.rng.between(1, 14) as u8);
        Attributes {
            state: Some(State::ReadyToReceive),
            path: Some(path),
            path_mtu: Some(agreement.mtu),
            destination: Some(peer.number),
            receive_psn: Some(expected),
            responder_resources: responds.then_some(agreement.resources[side]),
            rnr_timer: rnr_timer.filter(|_| responds),
            ..Attributes::default()
        }
    }

    fn ready_to_send(&self, end: usize, first: Psn, depth: u8) -> Attributes {
        let End { kind, limits, .. } = self.ends[end];
        let asks = matches!(kind, QueuePairType::Rc | QueuePairType::XrcInitiator);
        let interval = limits.ack_timeout.unwrap_or_default();
        let timeout = (0..32)
            .filter_map(AckTimeout::new)
            .find(|timeout| timeout.interval().unwrap_or_default() == interval);
        Attributes {
            state: Some(State::ReadyToSend),
            send_psn: Some(first),
            ack_timeout: timeout.filter(|_| kind != QueuePairType::Uc),
            retry_count: asks.then_some(limits.retry_count),
            rnr_retry: asks.then_some(limits.rnr_retry),
            initiator_depth: asks.then_some(depth),
            ..Attributes::default()
        }
    }
}
