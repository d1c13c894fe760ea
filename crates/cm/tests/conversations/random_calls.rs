//! Random calls in random order: no call panics, and nothing is left in the tables.

use std::net::IpAddr;
use std::time::Duration;

use cm::{
    Addresses, Config, Failure, Id, Manager, Parameters, ResolvedRoute, ServiceType, TableSizes,
    Transmit,
};
use proptest::prelude::*;
use wire::cm::{PortSpace, RejectReason};
use wire::{PathMtu, Qpn};

use crate::conversation::{PEER, PORT, US, at};

/// One call and its arguments. Every value is valid.
#[derive(Clone, Copy, Debug)]
struct Call {
    side: usize,
    what: u8,
    which: usize,
    pause: u64,
}

struct Side {
    address: IpAddr,
    peer: IpAddr,
    manager: Manager,
    ids: Vec<Id>,
}

struct RandomCalls {
    sides: [Side; 2],
    in_flight: Vec<Transmit>,
    now: u64,
}

impl RandomCalls {
    fn new() -> Self {
        let side = |address, peer, guid| {
            let mut config = Config::new(guid, [guid as u8; 32]);
            config.max_ids = 12;
            let mut manager = Manager::new(config);
            manager.add_address(address);
            let mut side = Side {
                address,
                peer,
                manager,
                ids: Vec::new(),
            };
            side.listen(PortSpace::Tcp);
            side.listen(PortSpace::Udp);
            side
        };
        RandomCalls {
            sides: [side(US, PEER, 1), side(PEER, US, 2)],
            in_flight: Vec::new(),
            now: 0,
        }
    }

    fn call(&mut self, call: Call) {
        self.now += call.pause;
        let now = at(self.now);
        for side in &mut self.sides {
            side.manager.handle_timeout(now);
        }
        match call.what {
            0..10 => self.deliver(call.which, call.what == 0),
            10..14 => self.sides[call.side].create(self.now, call.which),
            _ => self.sides[call.side].call(self.now, call),
        }
        for side in &mut self.sides {
            while let Some(event) = side.manager.poll_event() {
                if !side.ids.contains(&event.id) {
                    side.ids.push(event.id);
                }
            }
            while let Some(transmit) = side.manager.poll_transmit() {
                self.in_flight.push(transmit);
            }
        }
    }

    /// Delivers any datagram that is in flight. Some are delivered twice.
    fn deliver(&mut self, which: usize, keep: bool) {
        let Some(index) = which.checked_rem(self.in_flight.len()) else {
            return;
        };
        let transmit = self.in_flight[index].clone();
        if !keep {
            self.in_flight.swap_remove(index);
        }
        let addresses = Addresses {
            source: transmit.source,
            destination: transmit.destination,
        };
        let side = usize::from(transmit.destination == PEER);
        let manager = &mut self.sides[side].manager;
        manager.handle_datagram(at(self.now), addresses, &*transmit.datagram);
    }

    /// Destroys all ids and lets all timers expire: the tables must be empty.
    fn end(mut self) {
        for side in &mut self.sides {
            let manager = &mut side.manager;
            for id in side.ids.drain(..) {
                let _ = manager.destroy(at(self.now), id);
            }
            while manager.poll_instruction().is_some() {}
            while let Some(next) = manager.poll_timeout() {
                manager.handle_timeout(next);
            }
            while manager.poll_transmit().is_some() {}
            assert_eq!(manager.table_sizes(), TableSizes::default());
        }
    }
}

impl Side {
    fn listen(&mut self, space: PortSpace) {
        let manager = &mut self.manager;
        let id = manager
            .create_id(space, ServiceType::of(space))
            .expect("an id");
        let address = (self.address, PORT).into();
        manager.bind(id, address).expect("a free port");
        manager.listen(id, 0).expect("a bound id");
        self.ids.push(id);
    }

    /// Creates an id. Most of them connect at once, because random calls alone rarely connect.
    fn create(&mut self, millis: u64, which: usize) {
        let space = [PortSpace::Tcp, PortSpace::Udp, PortSpace::Infiniband][which % 3];
        let kind = match which % 7 {
            6 => ServiceType::UnreliableConnection,
            _ => ServiceType::of(space),
        };
        let Ok(id) = self.manager.create_id(space, kind) else {
            return;
        };
        self.ids.push(id);
        if which.is_multiple_of(4) {
            return;
        }
        for what in [18, 21, 24] {
            let which = self.ids.len() - 1;
            let call = Call {
                side: 0,
                what,
                which,
                pause: 0,
            };
            self.call(millis, call);
        }
    }

    /// Calls one method. Its result does not matter.
    fn call(&mut self, millis: u64, call: Call) {
        let Some(index) = call.which.checked_rem(self.ids.len()) else {
            return;
        };
        let id = self.ids[index];
        let now = at(millis);
        let manager = &mut self.manager;
        let parameters = Parameters::new(Qpn::new(0x10 + call.which as u32 % 5));
        let second = Duration::from_secs(1);
        let group = [239, 0, 0, 1].into();
        let _ = match call.what {
            14 => manager
                .bind(id, (self.address, PORT).into())
                .map(drop)
                .map_err(Into::into),
            15..18 => manager.listen(id, call.which % 3),
            18..21 => {
                let peer = (self.peer, PORT).into();
                manager.resolve_address(now, id, None, peer, second)
            }
            21..24 => {
                manager.address_resolved(id, Ok(self.address));
                manager.resolve_route(now, id, second)
            }
            24..27 => {
                manager.route_resolved(id, Ok(ResolvedRoute::new(PathMtu::Mtu1024)));
                manager.connect(now, id, &parameters)
            }
            27..31 => manager.accept(now, id, &parameters),
            31 => manager.reject(now, id, RejectReason::Consumer, b"no"),
            32..35 => manager.establish(id),
            35 => manager.connect_failed(id, Failure::TimedOut),
            36..38 => manager.disconnect(now, id),
            38 => manager.destroy(now, id),
            39 => manager.join(id, group, false),
            40 => {
                manager.multicast_joined(id, group, Ok(()));
                manager.leave(id, group)
            }
            41 => manager.request_taken(id),
            42 => manager.init_attributes(id).map(drop),
            43 => manager.send_attributes(id).map(drop),
            44 => manager.set_reuse_address(id, true),
            45 if call.which.is_multiple_of(128) => {
                manager.device_removed();
                Ok(())
            }
            _ => {
                manager.notify_established(parameters.qpn);
                manager.is_in_time_wait(parameters.qpn);
                Ok(())
            }
        };
    }
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let pause = prop_oneof![8 => 0_u64..20, 1 => 0_u64..10_000];
    let call =
        (0_usize..2, 0_u8..47, 0_usize..1000, pause).prop_map(|(side, what, which, pause)| Call {
            side,
            what,
            which,
            pause,
        });
    proptest::collection::vec(call, 1..400)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn random_calls_do_not_panic_and_leave_no_state(calls in calls()) {
        let mut random_calls = RandomCalls::new();
        for call in calls {
            random_calls.call(call);
        }
        random_calls.end();
    }
}
