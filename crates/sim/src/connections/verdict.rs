//! Checks that the events of the two sides of each connection are consistent.

use std::collections::BTreeMap;

use wire::cm::RejectReason;

use super::ledger::{Ends, Ledger, Record, Step, Who};
use super::place::Service;
use super::script::{Script, Side};
use crate::Complaint;

/// The conditions of the run.
pub(super) struct Circumstances<'a> {
    /// Whether a process was alive and listening during the whole run.
    pub(super) is_steady: &'a dyn Fn(usize) -> bool,
    /// Whether the network delivers everything once and in order.
    pub(super) is_faultless: bool,
    pub(super) script: Script,
}

/// All records of one connection.
struct Case<'a> {
    client: (&'a Who, &'a Record),
    guests: Vec<(&'a Who, &'a Record)>,
}

/// Checks every connection of a run.
pub(super) fn judge(ledger: &Ledger, around: &Circumstances<'_>) -> Result<(), Complaint> {
    for case in cases(ledger)? {
        case.judge(around).map_err(|what| {
            let Case { client, guests } = &case;
            Complaint::new(format!("{what}: client {client:?}, guests {guests:?}"))
        })?;
    }
    Ok(())
}

fn cases(ledger: &Ledger) -> Result<Vec<Case<'_>>, Complaint> {
    let mut cases: BTreeMap<u32, Case<'_>> = BTreeMap::new();
    let sides = |side| ledger.records.iter().filter(move |(_, r)| r.side == side);
    for client in sides(Side::Client) {
        let guests = Vec::new();
        cases.insert(client.1.number, Case { client, guests });
    }
    for guest in sides(Side::Guest) {
        let number = guest.1.number;
        let unasked = || Complaint::new(format!("nobody asked for connection {number}"));
        let case = cases.get_mut(&number).ok_or_else(unasked)?;
        case.guests.push(guest);
    }
    Ok(cases.into_values().collect())
}

type Verdict = Result<(), &'static str>;

fn demand(is_right: bool, otherwise: &'static str) -> Verdict {
    is_right.then_some(()).ok_or(otherwise)
}

impl Case<'_> {
    fn judge(&self, around: &Circumstances<'_>) -> Verdict {
        self.came_once()?;
        self.pairs_fit()?;
        let (who, client) = self.client;
        let steady = [who.host, client.server].into_iter().all(around.is_steady);
        if !steady {
            return Ok(());
        }
        self.is_never_out_of_reach()?;
        self.is_refused_for_a_reason()?;
        match self.guests.last() {
            Some((_, guest)) if !client.broke_off && !guest.broke_off => {
                both_ended(client, guest)?;
                everything_was_said(client, guest, around)
            }
            _ => Ok(()),
        }
    }

    /// A request is delivered once to each incarnation of a process.
    fn came_once(&self) -> Verdict {
        let serious = self.guests.iter().filter(|(_, guest)| !guest.is_mistaken());
        let lives: Vec<u32> = serious.map(|(who, _)| who.life).collect();
        let once = lives.is_sorted_by(|one, next| one < next);
        demand(once, "a request came twice")
    }

    /// These hold in every run. A restarted server may have received the request twice.
    fn pairs_fit(&self) -> Verdict {
        let (_, client) = self.client;
        let mirrored = |guest: &Record| guest.ends.map(Ends::seen_from_the_other_side);
        for (_, guest) in &self.guests {
            let established = guest.has(Step::Established);
            demand(
                !established || client.ends.is_some() && mirrored(guest) == client.ends,
                "a guest is established with somebody else",
            )?;
        }
        let agreed = self.guests.iter().any(|(_, guest)| guest.ends.is_some());
        demand(
            agreed || !client.has(Step::Response),
            "nobody gave the response that a client got",
        )?;
        let fits = |(_, guest): &(&Who, &Record)| mirrored(guest) == client.ends;
        demand(
            client.ends.is_none() || self.guests.iter().any(fits),
            "a client is connected to nobody",
        )
    }

    /// The network never loses everything for minutes.
    fn is_never_out_of_reach(&self) -> Verdict {
        let (_, client) = self.client;
        let refused = self.guests.iter().any(|(_, guest)| guest.broke_off);
        demand(
            refused || !client.has(Step::Unreachable),
            "a client found a server out of reach that was there",
        )
    }

    fn is_refused_for_a_reason(&self) -> Verdict {
        let (_, client) = self.client;
        let by_guest = self.guests.iter().any(|(_, guest)| guest.broke_off);
        let fits = match client.refusal {
            None | Some(RejectReason::StaleConnection) => true,
            Some(RejectReason::Consumer) => by_guest,
            Some(_) => false,
        };
        demand(fits, "a client was refused for a reason that nobody had")?;
        for (_, guest) in &self.guests {
            let fits = match guest.refusal {
                None | Some(RejectReason::StaleConnection) => true,
                Some(RejectReason::Consumer | RejectReason::Timeout) => client.broke_off,
                Some(_) => false,
            };
            demand(fits, "a guest was refused for a reason that nobody had")?;
        }
        Ok(())
    }
}

/// These hold when both processes are alive and neither application gives up.
fn both_ended(client: &Record, guest: &Record) -> Verdict {
    if client.ends.is_some() {
        demand(
            guest.has(Step::Disconnected) && client.has(Step::Disconnected),
            "only one side learned of the end",
        )?;
        demand(
            !client.unanswered && !guest.unanswered,
            "a good-bye was not answered",
        )?;
        return demand(
            guest.has(Step::Established) || !client.patient || !guest.patient,
            "a guest never learned that it is connected",
        );
    }
    demand(
        [Step::Found, Step::Rejected, Step::Unreachable, Step::Failed]
            .iter()
            .any(|&step| client.has(step)),
        "a client was never told",
    )
}

/// Two sides that stay connected receive all messages, whatever the network loses.
fn everything_was_said(client: &Record, guest: &Record, around: &Circumstances<'_>) -> Verdict {
    let (number, script) = (client.number, around.script);
    let said = |record: &Record| script.count(number, record.side.other());
    let all = client.received == said(client) && guest.received == said(guest);
    let patient = client.patient && guest.patient;
    let unbroken = client.broken.is_none() && guest.broken.is_none();
    let reliable = match client.service {
        Service::Reliable => unbroken,
        Service::Unreliable => around.is_faultless,
        Service::Datagram => {
            let came = guest.received == script.count(number, Side::Client);
            return demand(
                came || !(around.is_faultless && client.has(Step::Found)),
                "datagrams to a service are missing",
            );
        }
    };
    let connected = client.ends.is_some() && guest.has(Step::Established);
    demand(
        all || !(patient && reliable && connected),
        "messages of an established connection are missing",
    )
}
