//! The calls of the application, valid and invalid.

use std::net::Ipv4Addr;
use std::time::Duration;

use cm::{ExchangeState, Failure, Id, Parameters, ServiceType, State};
use wire::Qpn;
use wire::cm::{PortSpace, RejectReason};

use super::OURS;
use super::victim::{PORT, Victim, service};
use crate::fuzz_input::Input;

impl Victim {
    /// A call that may be valid or invalid in the current state. An invalid call returns an error and
    /// has no other effect.
    pub(super) fn call(&mut self, input: &mut Input<'_>) {
        self.calls += 1;
        let choice = input.byte();
        let newest = usize::from(input.byte() % 6);
        let index = self.ids.len().checked_sub(1 + newest);
        match (choice % 24, index.map(|index| self.ids[index])) {
            (0..3, _) => self.listen(choice, input),
            (3..8, _) | (_, None) => self.resolve(input),
            (8..10, Some(id)) => self.accept(id, input),
            (10, Some(id)) => self.reject(id, input),
            (11..20, Some(id)) => self.continue_setup(id, input),
            (20 | 21, Some(id)) => self.rare_call(id, input),
            (_, Some(id)) if input.byte() < 128 => self.destroy(id),
            (_, Some(id)) => drop(self.manager.disconnect(self.now, id)),
        }
        self.pump();
    }

    fn listen(&mut self, choice: u8, input: &mut Input<'_>) {
        let space =
            [PortSpace::Tcp, PortSpace::Udp, PortSpace::Infiniband][usize::from(choice % 3)];
        let kind = match space {
            PortSpace::Udp => ServiceType::Datagram,
            PortSpace::Tcp => ServiceType::ReliableConnection,
            PortSpace::Infiniband => ServiceType::UnreliableConnection,
        };
        let Ok(id) = self.manager.create_id(space, kind) else {
            return;
        };
        self.ids.push(id);
        let backlog = 1 + usize::from(input.byte() % 8);
        if self.manager.bind(id, (OURS, PORT).into()).is_ok() {
            let listening = self.manager.listen(id, backlog);
            listening.expect("a bound id can listen");
            self.services.insert(service(space));
            self.backlogs.insert(id, backlog);
        }
    }

    fn resolve(&mut self, input: &mut Input<'_>) {
        let space = input.pick(&[PortSpace::Tcp, PortSpace::Tcp, PortSpace::Udp]);
        let Ok(id) = self.manager.create_id(space, ServiceType::of(space)) else {
            return;
        };
        self.ids.push(id);
        let peer = Ipv4Addr::new(10, 0, 0, 2 + input.byte() % 4);
        self.allowed.insert(peer.into());
        let timeout = Duration::from_millis(input.byte().into());
        let asked = self
            .manager
            .resolve_address(self.now, id, None, (peer, PORT).into(), timeout);
        asked.expect("a new id can resolve an address");
    }

    /// The next call of the id's connection setup.
    fn continue_setup(&mut self, id: Id, input: &mut Input<'_>) {
        let length = input_length(input);
        let private_data = input.take(length.into());
        let qpn = self.new_qpn();
        let parameters = Parameters {
            private_data,
            ..Parameters::new(qpn)
        };
        match (self.manager.state(id), self.manager.phase(id)) {
            (Some(State::AddressResolved), _) => {
                let timeout = Duration::from_secs(1);
                let asked = self.manager.resolve_route(self.now, id, timeout);
                asked.expect("the address is resolved");
            }
            (Some(State::RouteResolved), _) => {
                if self.manager.connect(self.now, id, &parameters).is_ok() {
                    self.connecting.insert(id);
                }
            }
            (_, Some(ExchangeState::ReplyReceived)) if input.byte() < 200 => {
                self.manager.establish(id).expect("a reply has come");
            }
            (_, Some(ExchangeState::ReplyReceived)) => {
                let failed = self.manager.connect_failed(id, Failure::Os(12));
                failed.expect("a reply has come");
            }
            (_, Some(ExchangeState::RequestReceived)) if input.byte() < 64 => self.take(id),
            (_, Some(ExchangeState::RequestReceived | ExchangeState::ServiceRequestReceived)) => {
                self.accept(id, input);
            }
            (_, Some(ExchangeState::Established)) if input.byte() < 128 => {}
            (_, Some(ExchangeState::ReplySent | ExchangeState::ReplyDelayed))
                if input.byte() < 64 =>
            {
                let qpn = self.known.last().map_or(Qpn::new(1), |known| known.our_qpn);
                self.manager.notify_established(qpn);
            }
            _ => {
                let _ = self.manager.disconnect(self.now, id);
            }
        }
    }

    fn accept(&mut self, id: Id, input: &mut Input<'_>) {
        let length = usize::from(input_length(input));
        let qpn = self.new_qpn();
        let parameters = Parameters {
            private_data: &vec![7; length],
            ..Parameters::new(qpn)
        };
        if self.manager.phase(id) == Some(ExchangeState::RequestReceived) {
            let attributes = (
                self.manager.init_attributes(id).is_ok(),
                self.manager.receive_attributes(id).is_ok(),
                self.manager.send_attributes(id).is_ok(),
            );
            assert_eq!(
                attributes,
                (true, true, true),
                "a request provides all attributes"
            );
        }
        if self.manager.accept(self.now, id, &parameters).is_ok() {
            self.accepted.insert(id);
            self.waiting.remove(&id);
        }
    }

    fn reject(&mut self, id: Id, input: &mut Input<'_>) {
        let data = vec![9; usize::from(input_length(input))];
        let rejected = self
            .manager
            .reject(self.now, id, RejectReason::Consumer, &data);
        if rejected.is_ok() {
            self.waiting.remove(&id);
        }
    }

    fn take(&mut self, id: Id) {
        self.manager.request_taken(id).expect("the id exists");
        self.waiting.remove(&id);
    }

    /// Rare calls.
    fn rare_call(&mut self, id: Id, input: &mut Input<'_>) {
        let group = Ipv4Addr::new(239, 0, 0, input.byte() % 4).into();
        match input.byte() % 8 {
            0 | 1 => drop(self.manager.join(id, group, false)),
            2 => drop(self.manager.leave(id, group)),
            3 => drop(self.manager.set_reuse_address(id, true)),
            4 => self.manager.address_changed(OURS),
            5 => drop(self.manager.set_traffic_class(id, input.byte())),
            6 => drop(self.manager.init_attributes(id)),
            _ if input.byte() == 255 => {
                self.manager.device_removed();
                self.waiting.clear();
            }
            _ => {}
        }
    }

    fn destroy(&mut self, id: Id) {
        self.manager.destroy(self.now, id).expect("the id exists");
        // Destroying a listener destroys its pending child ids.
        self.waiting
            .retain(|&child, listener| child != id && *listener != id);
        let manager = &self.manager;
        self.ids.retain(|&id| manager.state(id).is_some());
    }

    fn new_qpn(&mut self) -> Qpn {
        self.next_qpn += 1;
        Qpn::new(self.next_qpn)
    }
}

/// Any length, also one that is too long.
fn input_length(input: &mut Input<'_>) -> u8 {
    match input.byte() {
        0..200 => 0,
        _ => input.byte(),
    }
}
