//! Reports recoveries and errors as sentences.

use wire::{NakCode, Operation};

use super::Scene;
use super::stream::{Few, Stream};
use super::trouble::{Cause, Trouble};
use crate::anomaly::{Anomaly, Kind};
use crate::id::{MessageId, PacketId};
use crate::message::{Outcome, describe};
use crate::packet::{Marks, Packet};
use crate::words::{count, duration, psn_range, times};

/// A request was rejected with a fatal NAK.
pub(super) fn refusal(
    stream: &Stream,
    code: NakCode,
    message: Option<MessageId>,
    id: PacketId,
    scene: &mut Scene<'_>,
) {
    let (kind, reason) = match code {
        NakCode::RemoteAccess => (
            Kind::RemoteAccess,
            "its key, its range or its right is wrong",
        ),
        NakCode::RemoteOperational => (Kind::RemoteOperational, "it could not carry it out"),
        NakCode::SequenceError | NakCode::InvalidRequest | NakCode::InvalidRdRequest => {
            (Kind::InvalidRequest, "it makes no sense there")
        }
    };
    let asker = scene.name(stream.connection, stream.side);
    let refuser = scene.name(stream.connection, stream.side.other());
    let what = what(message, scene);
    let packet = scene.packets[id.index()];
    let target = target(message, scene);
    scene.report(Anomaly {
        kind,
        time: packet.time,
        sentence: format!(
            "{refuser} refused {what} of {asker} at PSN {}{target} with NAK {:#04x} ({code}): {reason}. Both queue pairs are broken now.",
            packet.psn,
            0x60 | code as u8
        ),
        connection: Some(stream.connection),
        message,
        packet: Some(id),
    });
}

/// A recovery succeeded.
pub(super) fn overcome(stream: &Stream, trouble: &Trouble, time: u64, scene: &mut Scene<'_>) {
    let took = duration(time.saturating_sub(trouble.time));
    let again = sent_again(trouble);
    let (kind, sentence) = match trouble.cause {
        Cause::Sequence { .. } => {
            let beginning = missed(stream, trouble, scene);
            let end = format!("{again}, and all was well {took} after the NAK");
            (Kind::SequenceError, format!("{beginning}; {end}."))
        }
        Cause::NotReady { delay } => {
            let beginning = not_ready(stream, trouble, delay, scene);
            let end = format!("it went through {took} after the first refusal");
            (Kind::ReceiverNotReady, format!("{beginning}; {end}."))
        }
        Cause::DataLost { missing } => {
            let beginning = data_lost(stream, trouble, missing, scene);
            let end = format!("{again}, and the data came {took} later");
            (Kind::WentBack, format!("{beginning}; {end}."))
        }
        Cause::AnswerLost { answer, waited } => {
            let beginning = answer_lost(stream, trouble, answer, waited, scene);
            let end = format!("the next answer came {took} later");
            let kind = answer_kind(trouble, scene);
            (kind, format!("{beginning}; {end}."))
        }
        Cause::Timeout { waited } => {
            let beginning = timed_out(stream, trouble, waited, scene);
            let end = format!("the answer came {took} after the first repetition");
            (Kind::TimedOut, format!("{beginning}; {end}."))
        }
    };
    report(kind, sentence, stream, trouble, scene);
}

/// How long an answer takes at most without faults, in nanoseconds.
const ANSWER_TIME: u64 = 100_000_000;

impl Stream {
    /// Reports what is unfinished at the end of the capture.
    pub(super) fn finish(mut self, scene: &mut Scene<'_>) {
        self.report_overcome(scene);
        self.report_lasting(scene);
        if !self.broken {
            self.report_unanswered(scene);
        }
        self.report_holes(scene);
        self.report_few(
            self.ghosts,
            Kind::GhostAcknowledge,
            scene,
            |number, asker, peer| {
                let answers = count(number, "answer", "answers");
                format!("{answers} to {asker} by {peer} for sequence numbers that were not sent")
            },
        );
        self.report_few(
            self.orphans,
            Kind::NeverSeen,
            scene,
            |number, asker, peer| {
                let answers = count(number, "answer", "answers");
                format!("{answers} to {asker} by {peer}, but the requests are not in the capture")
            },
        );
        self.report_few(
            self.wrong_sizes,
            Kind::WrongPacketSize,
            scene,
            |number, asker, _| {
                let packets = count(number, "packet", "packets");
                let full = self.path_mtu;
                format!("{packets} of {asker} with another size than the path MTU of {full}")
            },
        );
    }

    /// Reports recoveries that do not end in the capture.
    fn report_lasting(&mut self, scene: &mut Scene<'_>) {
        for trouble in std::mem::take(&mut self.troubles) {
            if trouble.is_data_lost() && trouble.repeated == 0 {
                not_captured(self, &trouble, scene);
            } else {
                lasting(self, &trouble, scene);
                self.broken = true;
            }
        }
    }

    /// Reports the last messages if they have no answer.
    fn report_unanswered(&self, scene: &mut Scene<'_>) {
        let left = self.messages.range(self.settled..).map(|(_, &id)| id);
        let mut left = left.filter(|id| {
            let outcome = scene.messages[id.index()].outcome;
            matches!(outcome, Outcome::Unanswered | Outcome::Incomplete)
        });
        let Some(first) = left.next() else {
            return;
        };
        let number = 1 + left.count() as u64;
        let message = scene.messages[first.index()];
        // The answer may be in the part of the file that is missing.
        if scene.cut_off && scene.end.saturating_sub(message.begun) < ANSWER_TIME {
            return;
        }
        let asker = scene.name(self.connection, self.side);
        let messages = count(number, "message", "messages");
        let psn = message.first_psn;
        let heard = match self.last_heard {
            Some(_) => "the capture has no answer to it",
            None => "the capture has not a single answer",
        };
        scene.report(Anomaly {
            kind: Kind::Unanswered,
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

    fn report_holes(&self, scene: &mut Scene<'_>) {
        let Some((_, first)) = self.holes.first_key_value() else {
            return;
        };
        let missing: u64 = self.holes.values().map(|hole| hole.end - hole.begin).sum();
        let asker = scene.name(self.connection, self.side);
        let where_first = psn_range(self.psn_at(first.begin), first.end - first.begin);
        let packets = count(missing, "packet", "packets");
        let arrived = if self.acknowledged >= first.end {
            "The other end acknowledged more than that, so it arrived and only the capture missed it."
        } else {
            "It was lost before it came to the place of the capture, or the capture missed it."
        };
        let time = scene.packets[first.before.index()].time;
        scene.report(Anomaly {
            kind: Kind::NeverSeen,
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

    fn report_few(
        &self,
        few: Few,
        kind: Kind,
        scene: &mut Scene<'_>,
        sentence: impl Fn(u64, &str, &str) -> String,
    ) {
        let Some(id) = few.first else {
            return;
        };
        let asker = scene.name(self.connection, self.side);
        let peer = scene.name(self.connection, self.side.other());
        let packet = scene.packets[id.index()];
        let sentence = sentence(few.number, &asker, &peer);
        scene.report(Anomaly {
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
pub(super) fn not_captured(stream: &Stream, trouble: &Trouble, scene: &mut Scene<'_>) {
    let Cause::DataLost { missing } = trouble.cause else {
        return;
    };
    let asker = scene.name(stream.connection, stream.side);
    let range = psn_range(stream.psn_at(trouble.at), missing);
    let sentence = format!(
        "{range} of the answer to a READ of {asker} is not in the capture, but nobody asked for it again: only the capture missed it."
    );
    report(Kind::NeverSeen, sentence, stream, trouble, scene);
    if let Some(message) = trouble.message {
        scene.messages[message.index()].outcome = Outcome::Incomplete;
    }
}

/// A recovery that does not end in the capture.
fn lasting(stream: &Stream, trouble: &Trouble, scene: &mut Scene<'_>) {
    let silence = duration(scene.end.saturating_sub(trouble.last));
    let again = sent_again(trouble);
    let (kind, outcome, sentence) = match trouble.cause {
        Cause::Sequence { .. } => {
            let beginning = missed(stream, trouble, scene);
            let end = format!("{again}, and the capture has no answer after that");
            (
                Kind::SequenceError,
                Outcome::Unanswered,
                format!("{beginning}; {end}."),
            )
        }
        Cause::NotReady { delay } => {
            let beginning = not_ready(stream, trouble, delay, scene);
            let end =
                format!("after that, the capture goes on for {silence} without another attempt");
            (
                Kind::NotReadyForEver,
                Outcome::NotReady,
                format!("{beginning}; {end}."),
            )
        }
        Cause::DataLost { missing } => {
            let beginning = data_lost(stream, trouble, missing, scene);
            let end = format!("{again}, and the data is not in the capture");
            (
                Kind::WentBack,
                Outcome::Unanswered,
                format!("{beginning}; {end}."),
            )
        }
        Cause::AnswerLost { answer, waited } => {
            let beginning = answer_lost(stream, trouble, answer, waited, scene);
            let end = "the capture has no answer after that";
            let kind = answer_kind(trouble, scene);
            (kind, Outcome::Done, format!("{beginning}; {end}."))
        }
        Cause::Timeout { waited } => {
            let beginning = timed_out(stream, trouble, waited, scene);
            let end = format!("nobody answered, and {silence} later the capture ends");
            (
                Kind::RetriesExhausted,
                Outcome::GivenUp,
                format!("{beginning}; {end}."),
            )
        }
    };
    if let Some(message) = trouble.message {
        scene.messages[message.index()].outcome = outcome;
    }
    report(kind, sentence, stream, trouble, scene);
}

fn report(kind: Kind, sentence: String, stream: &Stream, trouble: &Trouble, scene: &mut Scene<'_>) {
    scene.report(Anomaly {
        kind,
        time: trouble.time,
        sentence,
        connection: Some(stream.connection),
        message: trouble.message,
        packet: Some(trouble.packet),
    });
}

fn missed(stream: &Stream, trouble: &Trouble, scene: &Scene<'_>) -> String {
    let peer = scene.name(stream.connection, stream.side.other());
    let psn = stream.psn_at(trouble.at);
    let seen = match trouble.cause {
        Cause::Sequence { lost: Some(lost) } => {
            let packet = &scene.packets[lost.index()];
            format!(
                "{} in frame {}, {}",
                describe(packet.opcode),
                packet.frame,
                fate(packet)
            )
        }
        _ => "never seen: lost before the place of the capture, or not captured".to_owned(),
    };
    let asked = match trouble.complaints {
        1 => "said so with a NAK".to_owned(),
        more => format!("said so {}", times(more)),
    };
    format!("{peer} missed PSN {psn} ({seen}) and {asked}")
}

/// What happened to a missing packet.
fn fate(packet: &Packet) -> &'static str {
    if !packet.marks.contains(Marks::LOST) {
        "overtaken by later ones"
    } else if packet.marks.contains(Marks::LEFT_HERE) {
        "lost on the way"
    } else {
        "lost behind the place of the capture"
    }
}

fn not_ready(stream: &Stream, trouble: &Trouble, delay: u64, scene: &Scene<'_>) -> String {
    let peer = scene.name(stream.connection, stream.side.other());
    let what = what(trouble.message, scene);
    let psn = stream.psn_at(trouble.at);
    format!(
        "{peer} had no receive posted for {what} at PSN {psn}: it said so {} and asked to wait {}{}",
        times(trouble.complaints),
        duration(delay),
        if trouble.complaints > 1 {
            " each time"
        } else {
            ""
        }
    )
}

fn data_lost(stream: &Stream, trouble: &Trouble, missing: u64, scene: &Scene<'_>) -> String {
    let asker = scene.name(stream.connection, stream.side);
    let range = psn_range(stream.psn_at(trouble.at), missing);
    let packets = count(missing, "packet", "packets");
    format!("{packets} of the answer to a READ of {asker} never came ({range})")
}

fn answer_lost(
    stream: &Stream,
    trouble: &Trouble,
    answer: Option<PacketId>,
    waited: u64,
    scene: &Scene<'_>,
) -> String {
    let asker = scene.name(stream.connection, stream.side);
    let what = what(trouble.message, scene);
    let psn = stream.psn_at(trouble.at);
    let frame = match answer {
        Some(answer) => format!(" in frame {}", scene.packets[answer.index()].frame),
        None => String::new(),
    };
    format!(
        "{asker} sent {what} at PSN {psn} again after {}, although its answer is in the capture{frame}: that was lost behind the place of the capture, or came too late",
        duration(waited)
    )
}

fn timed_out(stream: &Stream, trouble: &Trouble, waited: u64, scene: &Scene<'_>) -> String {
    let asker = scene.name(stream.connection, stream.side);
    let what = what(trouble.message, scene);
    let psn = stream.psn_at(trouble.at);
    let mut text = format!(
        "{asker} had no answer to {what} at PSN {psn} and sent it again {}, first after {}",
        times(trouble.rounds),
        duration(waited)
    );
    let more = trouble.repeated - trouble.rounds.min(trouble.repeated);
    if more > 0 {
        let more = count(more, "packet", "packets");
        text.push_str(&format!(", with {more} behind it"));
    }
    text
}

/// Data that is requested again at once is not a timeout.
fn answer_kind(trouble: &Trouble, scene: &Scene<'_>) -> Kind {
    match trouble
        .message
        .map(|id| scene.messages[id.index()].operation)
    {
        Some(Operation::ReadRequest) => Kind::WentBack,
        _ => Kind::TimedOut,
    }
}

fn sent_again(trouble: &Trouble) -> String {
    match (trouble.repeated, trouble.first_repeat) {
        (0, _) | (_, None) => "nothing was sent again".to_owned(),
        (number, Some(time)) => {
            let packets = count(number, "packet was", "packets were");
            let after = duration(time.saturating_sub(trouble.time));
            format!("{packets} sent again, beginning {after} later")
        }
    }
}

fn what(message: Option<MessageId>, scene: &Scene<'_>) -> String {
    match message {
        Some(id) => {
            let message = &scene.messages[id.index()];
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
fn target(message: Option<MessageId>, scene: &Scene<'_>) -> String {
    let Some(id) = message else {
        return String::new();
    };
    let packet = &scene.packets[scene.messages[id.index()].first.index()];
    scene
        .heads
        .read(packet, |packet| match (packet.reth(), packet.atomic()) {
            (Some(reth), _) => format!(" ({reth})"),
            (None, Some(atomic)) => format!(" ({atomic})"),
            (None, None) => String::new(),
        })
}
