//! What every application saw, and whether it fits together.

use std::collections::BTreeMap;

use cm::{Counters, EventKind, Id};
use wire::cm::RejectReason;
use wire::{Psn, Qpn};

/// One id in one life of one host.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Who {
    pub(crate) host: usize,
    pub(crate) life: u32,
    pub(crate) id: Id,
}

/// Which side of which connection an id is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Role {
    Listener,
    Client(u32),
    Guest(u32),
}

/// An event, reduced to what matters for its place in the order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    Resolved,
    Failed,
    Request,
    Response,
    Established,
    Found,
    Rejected,
    Unreachable,
    Disconnected,
    TimewaitExit,
}

impl Step {
    fn of(kind: &EventKind) -> Step {
        match kind {
            EventKind::AddressResolved | EventKind::RouteResolved => Step::Resolved,
            EventKind::ConnectRequest { .. } => Step::Request,
            EventKind::ConnectResponse(_) => Step::Response,
            EventKind::ServiceFound(_) => Step::Found,
            EventKind::Unreachable(_) => Step::Unreachable,
            EventKind::Rejected { .. } => Step::Rejected,
            EventKind::Established => Step::Established,
            EventKind::Disconnected { .. } => Step::Disconnected,
            EventKind::TimewaitExit => Step::TimewaitExit,
            EventKind::AddressError(_) | EventKind::RouteError(_) | EventKind::ConnectError(_) => {
                Step::Failed
            }
            other => panic!("nobody asked for {other:?}"),
        }
    }

    /// What may come right before.
    fn may_follow(self, before: Option<Step>, role: Role) -> bool {
        let client = matches!(role, Role::Client(_));
        match self {
            Step::Request => before.is_none() && !client,
            Step::Resolved => client && matches!(before, None | Some(Step::Resolved)),
            Step::Response | Step::Found => client && before == Some(Step::Resolved),
            Step::Failed => client && matches!(before, Some(Step::Resolved | Step::Response)),
            Step::Established => !client && before == Some(Step::Request),
            Step::Unreachable => matches!(before, Some(Step::Resolved | Step::Request)),
            Step::Rejected => matches!(
                before,
                Some(Step::Resolved | Step::Request | Step::Response | Step::Established)
            ),
            Step::Disconnected => matches!(
                before,
                Some(Step::Response | Step::Request | Step::Established)
            ),
            Step::TimewaitExit => before == Some(Step::Disconnected),
        }
    }
}

/// What one side knows about the queue pairs of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ends {
    pub(crate) local_qpn: Qpn,
    pub(crate) remote_qpn: Qpn,
    pub(crate) send_psn: Psn,
    pub(crate) receive_psn: Psn,
}

impl Ends {
    fn seen_from_the_other_side(self) -> Ends {
        Ends {
            local_qpn: self.remote_qpn,
            remote_qpn: self.local_qpn,
            send_psn: self.receive_psn,
            receive_psn: self.send_psn,
        }
    }
}

/// The life of one id.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) role: Role,
    pub(crate) steps: Vec<Step>,
    /// The application has said that it is ready (client) or agreed (guest), and with what.
    pub(crate) ends: Option<Ends>,
    /// The application refused, or left without a word.
    pub(crate) broke_off: bool,
    /// The application of a client lets the connection live for a long time.
    pub(crate) patient: bool,
    /// The peer never answered our good-bye.
    unanswered: bool,
    /// The peer took our queue pair for one of its dead connections. It buries that one and asks
    /// again, so this one does not count.
    mistaken: bool,
}

impl Record {
    fn has(&self, step: Step) -> bool {
        self.steps.contains(&step)
    }
}

/// All ids of a run.
#[derive(Default, Debug)]
pub(crate) struct Ledger {
    pub(crate) records: BTreeMap<Who, Record>,
    pub(crate) timed_out_farewells: u64,
    pub(crate) stale_refusals: u64,
}

impl Ledger {
    pub(crate) fn open(&mut self, who: Who, role: Role) {
        let record = Record {
            role,
            steps: Vec::new(),
            ends: None,
            broke_off: false,
            patient: false,
            unanswered: false,
            mistaken: false,
        };
        let before = self.records.insert(who, record);
        assert!(before.is_none(), "{who:?} was given twice");
    }

    pub(crate) fn record(&mut self, who: Who) -> &mut Record {
        self.records.get_mut(&who).expect("an id that was opened")
    }

    /// Notes an event, which must have its place.
    pub(crate) fn note(&mut self, who: Who, kind: &EventKind) -> Step {
        let step = Step::of(kind);
        let unanswered = *kind == (EventKind::Disconnected { timed_out: true });
        self.timed_out_farewells += u64::from(unanswered);
        let stale = matches!(kind, EventKind::Rejected { reason, .. }
            if *reason == RejectReason::StaleConnection);
        self.stale_refusals += u64::from(stale);
        let record = self.record(who);
        record.mistaken |= stale;
        record.unanswered |= unanswered;
        let before = record.steps.last().copied();
        assert!(
            step.may_follow(before, record.role),
            "{who:?} {:?}: {step:?} after {:?}",
            record.role,
            record.steps
        );
        record.steps.push(step);
        step
    }

    /// Whether what both sides of each connection saw fits together. `undisturbed` tells whether
    /// both hosts of a connection lived through the run.
    pub(crate) fn assert_agreement(&self, undisturbed: impl Fn(&Who, &Who) -> bool) {
        let clients = self.by_number(|role| match role {
            Role::Client(number) => Some(number),
            _ => None,
        });
        let guests = self.by_number(|role| match role {
            Role::Guest(number) => Some(number),
            _ => None,
        });
        for (number, guests) in guests {
            assert_came_once(number, &guests);
            let (guest_name, guest) = *guests.last().expect("somebody came");
            let (client_name, client) = clients[&number][0];
            assert_pairs(number, client, &guests);
            if undisturbed(client_name, guest_name) {
                assert_undisturbed_pair(number, client, guest);
            }
        }
    }

    fn by_number(
        &self,
        number: impl Fn(Role) -> Option<u32>,
    ) -> BTreeMap<u32, Vec<(&Who, &Record)>> {
        let mut found: BTreeMap<u32, Vec<_>> = BTreeMap::new();
        for (who, record) in &self.records {
            if let Some(number) = number(record.role) {
                found.entry(number).or_default().push((who, record));
            }
        }
        found
    }
}

/// The application of each life of a host is asked once.
fn assert_came_once(number: u32, guests: &[(&Who, &Record)]) {
    let serious = guests.iter().filter(|(_, guest)| !guest.mistaken);
    let lives: Vec<u32> = serious.map(|(who, _)| who.life).collect();
    let once = lives.is_sorted_by(|one, next| one < next);
    assert!(once, "request {number} came twice: {guests:?}");
}

/// What holds whatever happens. A server that died and lives again may have got the request twice.
fn assert_pairs(number: u32, client: &Record, guests: &[(&Who, &Record)]) {
    let mirrored = |guest: &Record| guest.ends.map(Ends::seen_from_the_other_side);
    let everything = format!("{number}: {client:?} {guests:?}");
    for (_, guest) in guests {
        if guest.has(Step::Established) {
            assert!(client.ends.is_some(), "{everything}");
            assert_eq!(mirrored(guest), client.ends, "{everything}");
        }
    }
    if client.has(Step::Response) {
        let agreed = guests.iter().any(|(_, guest)| guest.ends.is_some());
        assert!(agreed, "{everything}");
    }
    if client.ends.is_some() {
        let fits = |(_, guest): &(&Who, &Record)| mirrored(guest) == client.ends;
        assert!(guests.iter().any(fits), "{everything}");
    }
}

/// What holds when both hosts live: the network may lose much, but not everything.
fn assert_undisturbed_pair(number: u32, client: &Record, guest: &Record) {
    let both = format!("{number}: {client:?} {guest:?}");
    if client.broke_off || guest.broke_off {
        return;
    }
    if client.ends.is_some() {
        assert!(guest.has(Step::Disconnected), "{both}");
        assert!(client.has(Step::Disconnected), "{both}");
        assert!(!client.unanswered && !guest.unanswered, "{both}");
        assert!(guest.has(Step::Established) || !client.patient, "{both}");
    } else if !client.has(Step::Found) {
        assert!(
            client.has(Step::Rejected) || client.has(Step::Unreachable),
            "{both}"
        );
    }
}

/// What happened in a run, or in many.
#[derive(Default, Debug, PartialEq, Eq, Clone)]
pub(crate) struct Seen {
    steps: BTreeMap<String, u64>,
    repeated: u64,
    duplicates: u64,
    unmatched: u64,
    stale: u64,
    delayed: u64,
    crossed: u64,
    timed_out_farewells: u64,
    stale_refusals: u64,
}

impl Seen {
    pub(crate) fn of(ledger: &Ledger) -> Seen {
        let mut seen = Seen {
            timed_out_farewells: ledger.timed_out_farewells,
            stale_refusals: ledger.stale_refusals,
            ..Seen::default()
        };
        for step in ledger.records.values().flat_map(|record| &record.steps) {
            *seen.steps.entry(format!("{step:?}")).or_default() += 1;
        }
        seen
    }

    pub(crate) fn count(&mut self, counters: &Counters) {
        self.repeated += counters.repeated;
        self.duplicates += counters.duplicates.total();
        self.unmatched += counters.unmatched;
        self.stale += counters.stale;
        self.delayed += counters.received.of(0x11);
        self.crossed += counters.received.of(0x15).min(counters.sent.of(0x15));
    }

    pub(crate) fn add(&mut self, other: &Seen) {
        for (step, count) in &other.steps {
            *self.steps.entry(step.clone()).or_default() += count;
        }
        self.repeated += other.repeated;
        self.duplicates += other.duplicates;
        self.unmatched += other.unmatched;
        self.stale += other.stale;
        self.delayed += other.delayed;
        self.crossed += other.crossed;
        self.timed_out_farewells += other.timed_out_farewells;
        self.stale_refusals += other.stale_refusals;
    }

    /// A simulation that does not get anywhere must not pass.
    pub(crate) fn assert_everything_happened(&self) {
        for step in [
            "Resolved",
            "Failed",
            "Request",
            "Response",
            "Established",
            "Found",
            "Rejected",
            "Unreachable",
            "Disconnected",
            "TimewaitExit",
        ] {
            let count = self.steps.get(step).copied().unwrap_or_default();
            assert!(count >= 20, "{step} happened {count} times: {self:?}");
        }
        for count in [
            self.repeated,
            self.duplicates,
            self.unmatched,
            self.stale,
            self.delayed,
            self.crossed,
            self.timed_out_farewells,
            self.stale_refusals,
        ] {
            assert!(count >= 5, "{self:?}");
        }
    }
}
