//! What went wrong at a device, gathered under its lock to be told without it.

use engine::incident::FailedSend;
use engine::{Incident, Status, Transmit};
use net::socket::SendError;
use wire::Gid;

use super::Core;
use crate::narrator::{Neighbour, News};

impl Core {
    pub(super) fn note_unsent(&mut self, transmit: &Transmit, error: SendError) {
        const MOST: usize = 64;
        if let Some(unsendable) = &mut self.unsendable
            && unsendable.len() < MOST
        {
            unsendable.push(News::Unsent {
                queue_pair: transmit.queue_pair,
                source: transmit.route.flow.source,
                error,
            });
        }
    }

    /// Whether something went wrong that is to be explained.
    pub(in crate::driver) fn has_news(&self) -> bool {
        self.host.device().has_incidents()
            || self.connections.has_setbacks()
            || self.unsendable.as_ref().is_some_and(|it| !it.is_empty())
    }

    /// What went wrong, with what this device knows of it.
    pub(in crate::driver) fn take_news(&mut self) -> Vec<News> {
        let unsendable = self.unsendable.as_mut().map(std::mem::take);
        let mut news = unsendable.unwrap_or_default();
        while let Some(incident) = self.host.device_mut().poll_incident() {
            let neighbour = self.neighbour(&incident);
            news.push(News::Incident(incident, neighbour));
        }
        news.extend(self.connections.take_setbacks().map(News::Setback));
        news
    }

    /// What is known of a peer that did not answer: it may be one of our own.
    fn neighbour(&self, incident: &Incident) -> Neighbour {
        let Incident::SendFailed(FailedSend {
            path: Some((_, peer)),
            status: Status::RetriesExhausted,
            ..
        }) = incident
        else {
            return Neighbour::Elsewhere;
        };
        if !self.host.device().gids().contains(&Gid::from(peer.address)) {
            return Neighbour::Elsewhere;
        }
        match self.host.device().queue_pair(peer.queue_pair) {
            Some(found) => Neighbour::Here(found.state()),
            None if self.ports.owns(peer.queue_pair) => Neighbour::Missing,
            None => Neighbour::Elsewhere,
        }
    }
}
