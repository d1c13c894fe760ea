//! Reports recoveries and errors as sentences.

use wire::{NakCode, Operation};

use super::Context;
use super::recovery::{Cause, Recovery};
use super::stream::{PacketCount, Stream};
use crate::anomaly::{Anomaly, AnomalyKind};
use crate::message::{Outcome, describe};
use crate::packet::{Marks, Packet, Role};
use crate::text_format::{count, duration, psn_range, times};
use crate::typed_index::{MessageId, PacketId};

/// A request was rejected with a fatal NAK.
pub(super) fn rejection(
    stream: &Stream,
    code: NakCode,
    message: Option<MessageId>,
    id: PacketId,
    context: &mut Context<'_>,
) {
    let (kind, reason) = match code {
        NakCode::RemoteAccess => (
            AnomalyKind::RemoteAccess,
            "its key, its range or its right is wrong",
        ),
        NakCode::RemoteOperational => (
            AnomalyKind::RemoteOperational,
            "it could not execute the request",
        ),
        NakCode::SequenceError | NakCode::InvalidRequest | NakCode::InvalidRdRequest => {
            (invalid(message, context), "the request is not valid there")
        }
    };
    let asker = context.name(stream.connection, stream.side);
    let rejecter = context.name(stream.connection, stream.side.other());
    let what = what(message, context);
    let packet = context.packets[id.index()];
    let target = target(message, context);
    context.report(Anomaly {
        is_open: false,
        kind,
        time: packet.time,
        sentence: format!(
            "{rejecter} rejected {what} of {asker} at PSN {}{target} with NAK {:#04x} ({code}): {reason}. Both queue pairs are in the ERROR state now.",
            packet.psn,
            0x60 | code as u8
        ),
        connection: Some(stream.connection),
        message,
        packet: Some(id),
    });
}

/// The causes of NAK 0x61 depend on the operation.
fn invalid(message: Option<MessageId>, context: &Context<'_>) -> AnomalyKind {
    let operation = message.map(|id| context.messages[id.index()].operation);
    match operation {
        Some(Operation::Write) => AnomalyKind::InvalidWrite,
        Some(Operation::ReadRequest) => AnomalyKind::InvalidRead,
        Some(Operation::CompareSwap | Operation::FetchAdd | Operation::AtomicWrite) => {
            AnomalyKind::InvalidAtomic
        }
        _ => AnomalyKind::InvalidRequest,
    }
}

/// A recovery succeeded.
pub(super) fn overcome(stream: &Stream, recovery: &Recovery, time: u64, context: &mut Context<'_>) {
    let took = duration(time.saturating_sub(recovery.time));
    let again = sent_again(recovery);
    let (kind, sentence) = match recovery.cause {
        Cause::Sequence { .. } => {
            let beginning = missed(stream, recovery, context);
            let end = format!("{again}, and the gap was closed {took} after the NAK");
            (AnomalyKind::SequenceError, format!("{beginning}; {end}."))
        }
        Cause::NotReady { delay } => {
            let beginning = not_ready(stream, recovery, delay, context);
            let end = format!("it went through {took} after the first rejection");
            (
                AnomalyKind::ReceiverNotReady,
                format!("{beginning}; {end}."),
            )
        }
        Cause::DataLost { missing } => {
            let beginning = data_lost(stream, recovery, missing, context);
            let end = format!("{again}, and the data came {took} later");
            (AnomalyKind::WentBack, format!("{beginning}; {end}."))
        }
        Cause::ResponseLost { response, waited } => {
            let beginning = response_lost(stream, recovery, response, waited, context);
            let end = format!("the next response came {took} later");
            let kind = response_kind(recovery, context);
            (kind, format!("{beginning}; {end}."))
        }
        Cause::Timeout { waited } => {
            let beginning = timed_out(stream, recovery, waited, context);
            let end = format!("the response came {took} after the first retransmission");
            (AnomalyKind::TimedOut, format!("{beginning}; {end}."))
        }
    };
    report(kind, sentence, stream, recovery, context);
}

/// How long a response takes at most without faults, in nanoseconds.
const RESPONSE_TIME: u64 = 100_000_000;

impl Stream {
    /// Reports what is unfinished at the end of the capture. Recoveries that have ended are reported.
    pub(super) fn finish(mut self, context: &mut Context<'_>) {
        self.report_lasting(context);
        if !self.rejected {
            self.report_unanswered(context);
        }
        self.report_holes(context);
        self.report_count(
            self.unknown_responses,
            AnomalyKind::UnexpectedAcknowledge,
            context,
            |number, asker, peer| {
                let responses = count(number, "response", "responses");
                format!("{responses} to {asker} by {peer} for sequence numbers that were not sent")
            },
        );
        self.report_count(
            self.orphans,
            AnomalyKind::NeverSeen,
            context,
            |number, asker, peer| {
                let responses = count(number, "response", "responses");
                format!("{responses} to {asker} by {peer}, but the requests are not in the capture")
            },
        );
        self.report_count(
            self.wrong_sizes,
            AnomalyKind::WrongPacketSize,
            context,
            |number, asker, _| {
                let packets = count(number, "packet", "packets");
                let full = self.path_mtu;
                format!("{packets} of {asker} with another size than the path MTU of {full}")
            },
        );
    }

    /// Reports recoveries that do not end in the capture.
    fn report_lasting(&mut self, context: &mut Context<'_>) {
        for recovery in std::mem::take(&mut self.recoveries) {
            if recovery.is_data_lost() && recovery.retransmitted == 0 {
                not_captured(self, &recovery, context);
            } else {
                lasting(self, &recovery, context);
                self.rejected = true;
            }
        }
    }

    /// Reports the last messages if they have no response.
    fn report_unanswered(&self, context: &mut Context<'_>) {
        let left = self.messages.range(self.settled..).map(|(_, &id)| id);
        let mut left = left.filter(|id| {
            let outcome = context.messages[id.index()].outcome;
            matches!(outcome, Outcome::Unanswered | Outcome::Incomplete)
        });
        let Some(first) = left.next() else {
            return;
        };
        let number = 1 + left.count() as u64;
        let message = context.messages[first.index()];
        // The response may be in the part of the file that is missing.
        if context.cut_off && context.end.saturating_sub(message.begun) < RESPONSE_TIME {
            return;
        }
        let asker = context.name(self.connection, self.side);
        let messages = count(number, "message", "messages");
        let psn = message.first_psn;
        let heard = match self.last_heard {
            Some(_) => "the capture contains no response to it",
            None => "the capture contains no response",
        };
        context.report(Anomaly {
            is_open: false,
            kind: AnomalyKind::Unanswered,
            time: message.begun,
            sentence: format!(
                "{messages} of {asker} from PSN {psn} on ({}): {heard}.",
                message.name()
            ),
            connection: Some(self.connection),
            message: Some(first),
            packet: Some(message.first),
        });
    }

    fn report_holes(&self, context: &mut Context<'_>) {
        let Some((_, first)) = self.holes.first_key_value() else {
            return;
        };
        let missing: u64 = self.holes.values().map(|hole| hole.end - hole.begin).sum();
        let asker = context.name(self.connection, self.side);
        let where_first = psn_range(self.psn_at(first.begin), first.end - first.begin);
        let packets = count(missing, "packet", "packets");
        let arrived = if self.acknowledged >= first.end {
            "The other end acknowledged more than that, so it arrived and only the capture missed it."
        } else {
            "It was lost before it reached the capture point, or the capture missed it."
        };
        let time = context.packets[first.before.index()].time;
        context.report(Anomaly {
            is_open: false,
            kind: AnomalyKind::NeverSeen,
            time,
            sentence: format!(
                "{packets} of {asker} must have existed but {} not in the capture, first {where_first}. {arrived}",
                if missing == 1 { "is" } else { "are" }
            ),
            connection: Some(self.connection),
            message: None,
            packet: Some(first.before),
        });
    }

    fn report_count(
        &self,
        few: PacketCount,
        kind: AnomalyKind,
        context: &mut Context<'_>,
        sentence: impl Fn(u64, &str, &str) -> String,
    ) {
        let Some(id) = few.first else {
            return;
        };
        let asker = context.name(self.connection, self.side);
        let peer = context.name(self.connection, self.side.other());
        let packet = context.packets[id.index()];
        let sentence = sentence(few.number, &asker, &peer);
        context.report(Anomaly {
            is_open: false,
            kind,
            time: packet.time,
            sentence: format!(
                "{sentence}; the first is PSN {} in frame {}.",
                packet.psn, packet.frame
            ),
            connection: Some(self.connection),
            message: packet.message,
            packet: Some(id),
        });
    }
}

/// Missing data that was not requested again: it arrived, but the capture does not contain it.
pub(super) fn not_captured(stream: &Stream, recovery: &Recovery, context: &mut Context<'_>) {
    let Cause::DataLost { missing } = recovery.cause else {
        return;
    };
    let asker = context.name(stream.connection, stream.side);
    let range = psn_range(stream.psn_at(recovery.at), missing);
    let sentence = format!(
        "{range} of the response to a READ of {asker} is not in the capture, but was not requested again: only the capture missed it."
    );
    report(AnomalyKind::NeverSeen, sentence, stream, recovery, context);
    if let Some(message) = recovery.message {
        context.messages[message.index()].outcome = Outcome::Incomplete;
    }
}

/// The largest rnr_retry that is a number. 7 means forever.
const FINITE_RNR_RETRIES: u64 = 6;

/// A recovery that does not end in the capture.
fn lasting(stream: &Stream, recovery: &Recovery, context: &mut Context<'_>) {
    let ending = ending(recovery, context);
    let again = sent_again(recovery);
    let has_given_up = has_given_up(stream, recovery, context);
    let (kind, outcome, sentence) = match recovery.cause {
        Cause::Timeout { waited } if !has_given_up => {
            let beginning = timed_out(stream, recovery, waited, context);
            (
                AnomalyKind::StillTrying,
                Outcome::Unanswered,
                format!("{beginning}; {ending}."),
            )
        }
        Cause::NotReady { delay } if !has_given_up => {
            let beginning = not_ready(stream, recovery, delay, context);
            (
                AnomalyKind::StillTrying,
                Outcome::NotReady,
                format!("{beginning}; {ending}."),
            )
        }
        Cause::Sequence { .. } => {
            let beginning = missed(stream, recovery, context);
            let end = format!("{again}, and the capture has no response after that");
            (
                AnomalyKind::SequenceError,
                Outcome::Unanswered,
                format!("{beginning}; {end}."),
            )
        }
        Cause::NotReady { delay } if recovery.rounds > FINITE_RNR_RETRIES => {
            let beginning = not_ready(stream, recovery, delay, context);
            let end = "so many attempts mean that rnr_retry is 7 and the sender never gives up";
            (
                AnomalyKind::StillTrying,
                Outcome::NotReady,
                format!("{beginning}; {end}."),
            )
        }
        Cause::NotReady { delay } => {
            let beginning = not_ready(stream, recovery, delay, context);
            let end = match silence(recovery, context) {
                0 => "that was the last attempt".to_owned(),
                silence => format!(
                    "after that, the capture goes on for {} without another attempt",
                    duration(silence)
                ),
            };
            (
                AnomalyKind::NotReadyForEver,
                Outcome::NotReady,
                format!("{beginning}; {end}."),
            )
        }
        Cause::DataLost { missing } => {
            let beginning = data_lost(stream, recovery, missing, context);
            let end = format!("{again}, and the data is not in the capture");
            (
                AnomalyKind::WentBack,
                Outcome::Unanswered,
                format!("{beginning}; {end}."),
            )
        }
        Cause::ResponseLost { response, waited } => {
            let beginning = response_lost(stream, recovery, response, waited, context);
            let end = "the capture has no response after that";
            let kind = response_kind(recovery, context);
            (kind, Outcome::Done, format!("{beginning}; {end}."))
        }
        Cause::Timeout { waited } => {
            let beginning = timed_out(stream, recovery, waited, context);
            let end = format!("there was no response, and {ending}");
            (
                AnomalyKind::RetriesExhausted,
                Outcome::GivenUp,
                format!("{beginning}; {end}."),
            )
        }
    };
    if let Some(message) = recovery.message {
        context.messages[message.index()].outcome = outcome;
    }
    report(kind, sentence, stream, recovery, context);
}

/// The time from the last attempt to the end of the capture.
fn silence(recovery: &Recovery, context: &Context<'_>) -> u64 {
    context.end.saturating_sub(recovery.last)
}

fn ending(recovery: &Recovery, context: &Context<'_>) -> String {
    match silence(recovery, context) {
        0 => "the capture ends with that".to_owned(),
        silence => format!("the capture ends {} later", duration(silence)),
    }
}

/// Whether the sender has stopped trying: its completion says so, the connection was closed, or it has been silent for
/// longer than it waits between two attempts.
fn has_given_up(stream: &Stream, recovery: &Recovery, context: &Context<'_>) -> bool {
    let connection = &context.connections[stream.connection.index()];
    let queue_pair = connection.ends[stream.side.index()].queue_pair;
    let failed = queue_pair.is_some_and(|id| {
        let failure = context.failures.get(&id);
        failure.is_some_and(|&time| time >= i128::from(recovery.time))
    });
    let last = &context.packets[connection.last.index()];
    let closed = last.role == Role::Manage && last.time > recovery.last;
    failed || closed || recovery.is_silent_at(context.end)
}

fn report(
    kind: AnomalyKind,
    sentence: String,
    stream: &Stream,
    recovery: &Recovery,
    context: &mut Context<'_>,
) {
    context.report(Anomaly {
        is_open: false,
        kind,
        time: recovery.time,
        sentence,
        connection: Some(stream.connection),
        message: recovery.message,
        packet: Some(recovery.packet),
    });
}

fn missed(stream: &Stream, recovery: &Recovery, context: &Context<'_>) -> String {
    let peer = context.name(stream.connection, stream.side.other());
    let psn = stream.psn_at(recovery.at);
    let seen = match recovery.cause {
        Cause::Sequence { lost: Some(lost) } => {
            let packet = &context.packets[lost.index()];
            format!(
                "{} in frame {}, {}",
                describe(packet.opcode),
                packet.frame,
                where_lost(packet)
            )
        }
        _ => "never seen: lost before the capture point, or not captured".to_owned(),
    };
    let asked = match recovery.naks {
        1 => "reported it with a NAK".to_owned(),
        more => format!("reported it {}", times(more)),
    };
    format!("{peer} missed PSN {psn} ({seen}) and {asked}")
}

/// What happened to a missing packet.
fn where_lost(packet: &Packet) -> &'static str {
    if !packet.marks.contains(Marks::LOST) {
        "overtaken by later ones"
    } else if packet.marks.contains(Marks::LEFT_HERE) {
        "lost on the way"
    } else {
        "lost after the capture point"
    }
}

fn not_ready(stream: &Stream, recovery: &Recovery, delay: u64, context: &Context<'_>) -> String {
    let peer = context.name(stream.connection, stream.side.other());
    let what = what(recovery.message, context);
    let psn = stream.psn_at(recovery.at);
    format!(
        "{peer} had no receive posted for {what} at PSN {psn}: it sent an RNR NAK {}, with a delay of {}{}",
        times(recovery.naks),
        duration(delay),
        if recovery.naks > 1 { " each time" } else { "" }
    )
}

fn data_lost(stream: &Stream, recovery: &Recovery, missing: u64, context: &Context<'_>) -> String {
    let asker = context.name(stream.connection, stream.side);
    let range = psn_range(stream.psn_at(recovery.at), missing);
    let packets = count(missing, "packet", "packets");
    format!("{packets} of the response to a READ of {asker} did not arrive ({range})")
}

fn response_lost(
    stream: &Stream,
    recovery: &Recovery,
    response: Option<PacketId>,
    waited: u64,
    context: &Context<'_>,
) -> String {
    let asker = context.name(stream.connection, stream.side);
    let what = what(recovery.message, context);
    let psn = stream.psn_at(recovery.at);
    let frame = match response {
        Some(response) => format!(" in frame {}", context.packets[response.index()].frame),
        None => String::new(),
    };
    format!(
        "{asker} sent {what} at PSN {psn} again after {}, although its response is in the capture{frame}: that was lost after the capture point, or came too late",
        duration(waited)
    )
}

fn timed_out(stream: &Stream, recovery: &Recovery, waited: u64, context: &Context<'_>) -> String {
    let asker = context.name(stream.connection, stream.side);
    let what = what(recovery.message, context);
    let psn = stream.psn_at(recovery.at);
    let mut text = format!(
        "{asker} had no response to {what} at PSN {psn} and sent it again {}, first after {}",
        times(recovery.rounds),
        duration(waited)
    );
    let more = recovery.retransmitted - recovery.rounds.min(recovery.retransmitted);
    if more > 0 {
        let more = count(more, "packet", "packets");
        text.push_str(&format!(", followed by {more}"));
    }
    text
}

/// Data that is requested again at once is not a timeout.
fn response_kind(recovery: &Recovery, context: &Context<'_>) -> AnomalyKind {
    match recovery
        .message
        .map(|id| context.messages[id.index()].operation)
    {
        Some(Operation::ReadRequest) => AnomalyKind::WentBack,
        _ => AnomalyKind::TimedOut,
    }
}

fn sent_again(recovery: &Recovery) -> String {
    match (recovery.retransmitted, recovery.first_retransmission) {
        (0, _) | (_, None) => "nothing was sent again".to_owned(),
        (number, Some(time)) => {
            let packets = count(number, "packet was", "packets were");
            let after = duration(time.saturating_sub(recovery.time));
            format!("{packets} sent again, beginning {after} later")
        }
    }
}

fn what(message: Option<MessageId>, context: &Context<'_>) -> String {
    match message {
        Some(id) => {
            let message = &context.messages[id.index()];
            let article = match message.name() {
                name if name.starts_with(['A', 'R']) => "an",
                _ => "a",
            };
            format!("{article} {}", message.name())
        }
        None => "a request".to_owned(),
    }
}

/// The address in the responder's memory.
fn target(message: Option<MessageId>, context: &Context<'_>) -> String {
    let Some(id) = message else {
        return String::new();
    };
    let packet = &context.packets[context.messages[id.index()].first.index()];
    context
        .heads
        .read(packet, |packet| match (packet.reth(), packet.atomic()) {
            (Some(reth), _) => format!(" ({reth})"),
            (None, Some(atomic)) => format!(" ({atomic})"),
            (None, None) => String::new(),
        })
}
