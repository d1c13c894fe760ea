//! Checks that the events of the two sides of each connection are consistent.

use std::collections::BTreeMap;

use wire::cm::RejectReason;

use super::event_log::{Ends, EventLog, IdKey, Record, Step};
use super::process_config::Service;
use super::script::{Script, Side};
use crate::CheckError;

/// The conditions of the run.
pub(super) struct Conditions<'a> {
    /// Whether a process was alive and listening during the whole run.
    pub(super) is_uninterrupted: &'a dyn Fn(usize) -> bool,
    /// Whether the network delivers everything once and in order.
    pub(super) is_faultless: bool,
    pub(super) script: Script,
}

/// All records of one connection.
struct Case<'a> {
    client: (&'a IdKey, &'a Record),
    servers: Vec<(&'a IdKey, &'a Record)>,
}

/// Checks every connection of a run.
pub(super) fn check_connections(
    event_log: &EventLog,
    conditions: &Conditions<'_>,
) -> Result<(), CheckError> {
    for case in cases(event_log)? {
        case.check(conditions).map_err(|what| {
            let Case { client, servers } = &case;
            CheckError::new(format!("{what}: client {client:?}, servers {servers:?}"))
        })?;
    }
    Ok(())
}

fn cases(event_log: &EventLog) -> Result<Vec<Case<'_>>, CheckError> {
    let mut cases: BTreeMap<u32, Case<'_>> = BTreeMap::new();
    let sides = |side| {
        event_log
            .records
            .iter()
            .filter(move |(_, r)| r.side == side)
    };
    for client in sides(Side::Client) {
        let servers = Vec::new();
        cases.insert(client.1.number, Case { client, servers });
    }
    for server in sides(Side::Server) {
        let number = server.1.number;
        let unasked = || CheckError::new(format!("nobody requested connection {number}"));
        let case = cases.get_mut(&number).ok_or_else(unasked)?;
        case.servers.push(server);
    }
    Ok(cases.into_values().collect())
}

type CheckResult = Result<(), &'static str>;

fn demand(is_right: bool, otherwise: &'static str) -> CheckResult {
    is_right.then_some(()).ok_or(otherwise)
}

impl Case<'_> {
    fn check(&self, conditions: &Conditions<'_>) -> CheckResult {
        self.request_is_delivered_once()?;
        self.pairs_fit()?;
        let (key, client) = self.client;
        let steady = [key.host, client.server]
            .into_iter()
            .all(conditions.is_uninterrupted);
        if !steady {
            return Ok(());
        }
        self.is_reachable()?;
        self.is_rejected_for_a_reason()?;
        match self.servers.last() {
            Some((_, server)) if !client.gave_up && !server.gave_up => {
                both_ended(client, server)?;
                all_messages_arrived(client, server, conditions)
            }
            _ => Ok(()),
        }
    }

    /// A request is delivered once to each incarnation of a process.
    fn request_is_delivered_once(&self) -> CheckResult {
        let counted = self.servers.iter().filter(|(_, server)| !server.is_stale());
        let incarnations: Vec<u32> = counted.map(|(key, _)| key.incarnation).collect();
        let once = incarnations.is_sorted_by(|one, next| one < next);
        demand(once, "a request was delivered twice")
    }

    /// These hold in every run. A restarted server may have received the request twice.
    fn pairs_fit(&self) -> CheckResult {
        let (_, client) = self.client;
        let mirrored = |server: &Record| server.ends.map(Ends::reversed);
        for (_, server) in &self.servers {
            let established = server.has(Step::Established);
            demand(
                !established || client.ends.is_some() && mirrored(server) == client.ends,
                "a server is established with another peer",
            )?;
        }
        let agreed = self.servers.iter().any(|(_, server)| server.ends.is_some());
        demand(
            agreed || !client.has(Step::Response),
            "no server sent the response that a client got",
        )?;
        let fits = |(_, server): &(&IdKey, &Record)| mirrored(server) == client.ends;
        demand(
            client.ends.is_none() || self.servers.iter().any(fits),
            "a client is connected without a server",
        )
    }

    /// The network never loses everything for minutes.
    fn is_reachable(&self) -> CheckResult {
        let (_, client) = self.client;
        let rejected = self.servers.iter().any(|(_, server)| server.gave_up);
        demand(
            rejected || !client.has(Step::Unreachable),
            "a client reported a running server as unreachable",
        )
    }

    fn is_rejected_for_a_reason(&self) -> CheckResult {
        let (_, client) = self.client;
        let by_server = self.servers.iter().any(|(_, server)| server.gave_up);
        let fits = match client.reject_reason {
            None | Some(RejectReason::StaleConnection) => true,
            Some(RejectReason::Consumer) => by_server,
            Some(_) => false,
        };
        demand(fits, "a client was rejected with an unexplained reason")?;
        for (_, server) in &self.servers {
            let fits = match server.reject_reason {
                None | Some(RejectReason::StaleConnection) => true,
                Some(RejectReason::Consumer | RejectReason::Timeout) => client.gave_up,
                Some(_) => false,
            };
            demand(fits, "a server was rejected with an unexplained reason")?;
        }
        Ok(())
    }
}

/// These hold when both processes are alive and neither application gives up.
fn both_ended(client: &Record, server: &Record) -> CheckResult {
    if client.ends.is_some() {
        demand(
            server.has(Step::Disconnected) && client.has(Step::Disconnected),
            "only one side got the disconnect event",
        )?;
        demand(
            !client.unanswered && !server.unanswered,
            "a DREQ was not answered",
        )?;
        return demand(
            server.has(Step::Established) || !client.stays || !server.stays,
            "a server got no established event",
        );
    }
    demand(
        [Step::Found, Step::Rejected, Step::Unreachable, Step::Failed]
            .iter()
            .any(|&step| client.has(step)),
        "a client got no event",
    )
}

/// Two sides that stay connected receive all messages, whatever the network loses.
fn all_messages_arrived(
    client: &Record,
    server: &Record,
    conditions: &Conditions<'_>,
) -> CheckResult {
    let (number, script) = (client.number, conditions.script);
    let said = |record: &Record| script.count(number, record.side.other());
    let all = client.received == said(client) && server.received == said(server);
    let stays = client.stays && server.stays;
    let unbroken = client.broken.is_none() && server.broken.is_none();
    let reliable = match client.service {
        Service::Reliable => unbroken,
        Service::Unreliable => conditions.is_faultless,
        Service::Datagram => {
            let came = server.received == script.count(number, Side::Client);
            return demand(
                came || !(conditions.is_faultless && client.has(Step::Found)),
                "datagrams to a service are missing",
            );
        }
    };
    let connected = client.ends.is_some() && server.has(Step::Established);
    demand(
        all || !(stays && reliable && connected),
        "messages of an established connection are missing",
    )
}
