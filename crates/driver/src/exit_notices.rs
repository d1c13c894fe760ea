//! Exit notices: the messages that a watcher sends to peers when this process dies.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::sync::Arc;

use cm::Manager;
use net::socket::{Sender, reseal};
use net::watcher::{Notice, Source, Watcher};
use wire::{Deth, Opcode, PacketHead, Psn, Qpn, QueueKey, Route};

use crate::fabric::Port;

/// The exit notices of a device's connections.
#[derive(Default)]
pub(crate) struct ExitNotices {
    /// Empty until there is a watcher. There are no connections before that.
    sources: Vec<(IpAddr, Source)>,
    notices: HashMap<cm::Id, Notice>,
}

impl ExitNotices {
    /// Registers the addresses with the watcher. An address that it cannot send from is left out.
    pub(crate) fn start(&mut self, watcher: &Arc<Watcher>, sockets: &Port) {
        let senders = sockets.senders().into_iter();
        self.sources = senders
            .filter_map(|sender| Some((sender.address(), watcher.source(sender).ok()?)))
            .collect();
    }

    /// Updates the watcher's exit notices with those of the manager.
    pub(crate) fn update(&mut self, manager: &mut Manager, sockets: &Port) {
        while let Some(changed) = manager.poll_exit_notice() {
            match changed.transmit {
                Some(message) => self.set(changed.id, &message, sockets),
                None => drop(self.notices.remove(&changed.id)),
            }
        }
    }

    fn set(&mut self, id: cm::Id, message: &cm::Transmit, sockets: &Port) {
        let sender = sockets
            .senders()
            .into_iter()
            .find(|it| it.address() == message.source);
        let Some(sender) = sender else { return };
        let notice = match self.notices.entry(id) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let mut sources = self.sources.iter();
                let source = sources.find(|(address, _)| *address == message.source);
                let Some((_, source)) = source else { return };
                new.insert(source.notice())
            }
        };
        let (route, packet) = datagram(message, sender);
        // If this fails the peer gets no exit notice, as without a watcher.
        let _ = notice.set(sender, &route, &packet);
    }
}

/// The packet that queue pair 1 would send, with its ICRC.
fn datagram(message: &cm::Transmit, sender: &Sender) -> (Route, Vec<u8>) {
    const NO_ICRC: [u8; wire::ICRC_LENGTH] = [0; _];
    let route = Route {
        flow: sender.flow_to(message.destination),
        traffic_class: message.traffic_class,
        hop_limit: message.hop_limit,
    };
    let head = PacketHead::new(Opcode::UdSendOnly, Qpn::GSI, Psn::new(0))
        .push(&Deth::new(QueueKey::GSI, Qpn::GSI));
    let mut packet = [head.bytes(), &message.datagram[..], &NO_ICRC].concat();
    reseal(&route.flow, &mut packet);
    (route, packet)
}
