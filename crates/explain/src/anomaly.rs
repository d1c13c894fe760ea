//! Anomalies and their explanations.

use serde::Serialize;

use crate::typed_index::{ConnectionId, MessageId, PacketId};

/// An anomaly.
#[derive(Clone, Debug)]
pub struct Anomaly {
    /// Its kind.
    pub kind: AnomalyKind,
    /// Its time, in nanoseconds since the first packet of the capture.
    pub time: u64,
    /// What happened, in one sentence.
    pub sentence: String,
    /// Its connection, if it has one.
    pub connection: Option<ConnectionId>,
    /// The affected message.
    pub message: Option<MessageId>,
    /// The packet that shows it.
    pub packet: Option<PacketId>,
    /// Whether packets after the end of the capture may show that it went on in another way.
    pub is_open: bool,
}

/// The severity of an anomaly.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// A remark.
    Note,
    /// It costs performance.
    Warning,
    /// Something failed.
    Error,
}

/// The rule of the specification, and likely causes.
#[derive(Clone, Copy, Debug)]
pub struct Explanation {
    /// The name.
    pub name: &'static str,
    /// The severity.
    pub severity: Severity,
    /// The rule that applies.
    pub rule: &'static str,
    /// Likely causes, the most likely first.
    pub causes: &'static [&'static str],
}

/// Declares the kinds of anomalies, each with its explanation in one place.
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident: $name:literal $severity:ident, $rule:literal, [$($cause:literal),+];)+) => {
        /// A kind of anomaly.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum AnomalyKind {
            $($(#[$doc])* $kind,)+
        }

        impl AnomalyKind {
            /// Every kind, in the order of the table.
            pub const ALL: &[AnomalyKind] = &[$(AnomalyKind::$kind),+];

            /// The rule of the specification, and likely causes.
            pub const fn explanation(self) -> &'static Explanation {
                match self {
                    $(AnomalyKind::$kind => const { &Explanation {
                        name: $name,
                        severity: Severity::$severity,
                        rule: $rule,
                        causes: &[$($cause),+],
                    } },)+
                }
            }
        }
    };
}

kinds! {
    /// A key, an address range or an access right was wrong.
    RemoteAccess: "remote-access-error" Error,
        "C9-222.1.1: a request that its key does not allow gets NAK 0x62 and moves the queue pair to the ERROR state.",
        [
            "the rkey is not the one of the region: a stale one, or one of another protection domain",
            "the address or the length reaches outside of the region",
            "the region or the queue pair does not allow this operation (remote write, read, atomic)"
        ];
    /// A SEND, or a request that is not in the capture, was invalid for the responder.
    InvalidRequest: "invalid-request" Error,
        "IBA vol. 1, 9.7: an invalid request gets NAK 0x61 and moves the queue pair to the ERROR state.",
        [
            "a SEND is longer than the receive that was posted for it",
            "the two ends have different path MTUs",
            "the packets of the request are not in order: a First, Middles and a Last"
        ];
    /// A WRITE was invalid for the responder.
    InvalidWrite: "invalid-request" Error,
        "IBA vol. 1, 9.7: an invalid request gets NAK 0x61 and moves the queue pair to the ERROR state.",
        [
            "the responder's queue pair does not allow writes: qp_access_flags without IBV_ACCESS_REMOTE_WRITE",
            "the two ends have different path MTUs",
            "the data is longer or shorter than the length in the first packet"
        ];
    /// A READ was invalid for the responder.
    InvalidRead: "invalid-request" Error,
        "IBA vol. 1, 9.7: an invalid request gets NAK 0x61 and moves the queue pair to the ERROR state.",
        [
            "the responder's queue pair does not allow reads: qp_access_flags without IBV_ACCESS_REMOTE_READ",
            "more reads and atomics are outstanding than the responder agreed to (max_dest_rd_atomic)"
        ];
    /// An atomic operation was invalid for the responder.
    InvalidAtomic: "invalid-request" Error,
        "IBA vol. 1, 9.7: an invalid request gets NAK 0x61 and moves the queue pair to the ERROR state.",
        [
            "the responder's queue pair does not allow atomics: qp_access_flags without IBV_ACCESS_REMOTE_ATOMIC",
            "the address is not a multiple of 8",
            "more reads and atomics are outstanding than the responder agreed to (max_dest_rd_atomic)"
        ];
    /// The responder had a local error.
    RemoteOperational: "remote-operational-error" Error,
        "IBA vol. 1, 9.7: a responder that can't execute a valid request answers with NAK 0x63 and moves to the ERROR state.",
        [
            "a SEND is longer than the receive that was posted for it (Linux rdma_rxe answers like this)",
            "the receive's own buffer is not registered, or its lkey is wrong",
            "the responder's memory is no longer mapped"
        ];
    /// The receiver was never ready.
    NotReadyForEver: "rnr-exhausted" Error,
        "IBA vol. 1, 9.7: after rnr_retry RNR NAKs the request ends with \"RNR retry exceeded\"; 7 means forever.",
        [
            "the receiving program posts no receives on this queue pair, or too few",
            "the receiving program does not post its next receive in time",
            "the sender's rnr_retry is too small for the receiver's pace"
        ];
    /// There was no response to any retransmission.
    RetriesExhausted: "retries-exhausted" Error,
        "IBA vol. 1, 9.9: a request without a response is retransmitted retry_cnt times and then ends with \"retry exceeded\".",
        [
            "no queue pair with this number is ready at the other end, or it is in the ERROR state",
            "the other end expects another PSN: it does not answer a packet that looks like an old duplicate",
            "packets of this size do not get through: path MTU larger than the interface's",
            "the network or a firewall drops UDP port 4791"
        ];
    /// The sender was still trying when the capture ended.
    StillTrying: "still-trying" Warning,
        "IBA vol. 1, 9.9: a requester retransmits retry_cnt times, or rnr_retry times after RNR NAKs; 7 RNR retries mean forever.",
        [
            "the capture ends while the sender still tries",
            "the sender gave up after its last attempt, which no packet shows",
            "its program ended the queue pair, and the request was flushed"
        ];
    /// The connection was rejected.
    Rejected: "connection-rejected" Error,
        "IBA vol. 1, chapter 12: a REJ ends the attempt and gives the reason as a number.",
        [
            "the application rejected it on purpose: its private data may say why",
            "the two sides disagree on parameters",
            "the application has ended, or is too busy to accept in time"
        ];
    /// The service has no listener.
    NoListener: "no-listener" Error,
        "IBA vol. 1, chapter 12: a REQ for a service id without a listener is rejected with reason 8.",
        [
            "the server has not started yet, or has ended",
            "it listens on another port, or in another port space",
            "it listens on another address of the machine"
        ];
    /// The connection manager got no response.
    HandshakeUnanswered: "connection-unanswered" Error,
        "IBA vol. 1, chapter 12: a message that needs a response is retransmitted max_cm_retries times.",
        [
            "no RDMA device is active at this address",
            "the network or a firewall drops UDP port 4791",
            "the other end's program accepts too slowly (it can send MRA to gain time)"
        ];
    /// A message of the connection manager was retransmitted.
    HandshakeRetransmitted: "connection-message-retransmitted" Warning,
        "IBA vol. 1, chapter 12: a message that needs a response is retransmitted until the response arrives.",
        [
            "the message or its response was lost",
            "the other end's program is slow to accept"
        ];
    /// A side sent several DREQs for a connection whose end was confirmed.
    DisconnectedAgain: "disconnected-again" Note,
        "IBA vol. 1, chapter 12: a DREQ is retransmitted until its DREP arrives; a further DREQ finds no connection and is answered with a DREP, too.",
        [
            "the process at that end died, or did not wait for the DREP: its watcher sends the DREQ several times, because it does not wait for the response",
            "the DREQ or its DREP was lost"
        ];
    /// A request was never answered.
    Unanswered: "unanswered-request" Warning,
        "IBA vol. 1, 9.7: every message of a reliable connection is acknowledged.",
        [
            "the capture ends before the response arrives",
            "the capture sees only one direction",
            "the other end has ended, or has no such queue pair"
        ];
    /// The responder reported a missing packet.
    SequenceError: "sequence-error" Warning,
        "IBA vol. 1, 9.7: a packet ahead of its turn gets one NAK 0x60 with the expected PSN; then no response until that packet arrives.",
        [
            "the network lost a packet: a full switch buffer, no flow control (PFC) or no ECN",
            "the receiver's socket or ring buffer overflowed",
            "packets overtook each other on several paths"
        ];
    /// A requester retransmitted after a timeout.
    TimedOut: "timeout-retransmission" Warning,
        "IBA vol. 1, 9.9: without a response for the acknowledge timeout the requester sends again from the oldest request.",
        [
            "the last packet of a message, or its acknowledgement, was lost: no later packet could reveal the gap",
            "the acknowledge timeout is shorter than the other end takes to answer",
            "the other end is overloaded or stopped"
        ];
    /// A requester went back after a NAK, or because responses were missing.
    WentBack: "retransmission" Warning,
        "IBA vol. 1, 9.7: the requester sends again everything from the packet that was missed (go-back-N).",
        [
            "a packet was lost on the way: see the NAK before it",
            "a response was lost, which a later one reveals (implied NAK)"
        ];
    /// The receiver was not ready at first.
    ReceiverNotReady: "receiver-not-ready" Warning,
        "IBA vol. 1, 9.7: without a receive the responder answers with an RNR NAK; the requester waits for the time in it and sends again.",
        [
            "the receiving program posted its receive later than the sender sent",
            "too few receives are posted for the outstanding messages"
        ];
    /// The packet is corrupted.
    BadIcrc: "bad-icrc" Warning,
        "RoCEv2 annex: a packet whose invariant CRC is wrong is dropped without a response.",
        [
            "a device or driver on the way changed what must not change",
            "the sender computes the ICRC over another IP identification than it sends",
            "faults were injected on purpose"
        ];
    /// Packets are missing in the capture.
    NeverSeen: "never-seen" Note,
        "IBA vol. 1, 9.7: PSNs have no holes, so packets between two others must have existed.",
        [
            "the capture lost packets (a larger buffer helps: tcpdump -B)",
            "they were lost before they reached the capture point",
            "the filter of the capture leaves some out"
        ];
    /// A message of an unreliable connection lost a packet.
    UnreliableLoss: "unreliable-loss" Warning,
        "IBA vol. 1, 9.8: an unreliable connection drops the whole message when one of its packets is missing, without a report.",
        [
            "the network lost a packet",
            "the capture lost a packet, and the receiver did not"
        ];
    /// An acknowledgement of a PSN that was not sent.
    UnexpectedAcknowledge: "unexpected-acknowledge" Warning,
        "IBA vol. 1, 9.7: a requester drops responses to PSNs that it has not sent.",
        [
            "a packet of an earlier connection with the same queue pair number is still in flight",
            "the capture lost the request",
            "the other end uses a wrong PSN"
        ];
    /// The PSN of the first request differs from the handshake.
    WrongFirstPsn: "wrong-starting-psn" Error,
        "IBA vol. 1, chapter 12: the starting PSN in REQ and REP is the first that the receiver of the message sends.",
        [
            "the program took its own starting PSN instead of the peer's",
            "the capture begins in the middle of the connection"
        ];
    /// A First or Middle packet is not full.
    WrongPacketSize: "wrong-packet-size" Error,
        "C9-92: First and Middle packets carry exactly one path MTU.",
        [
            "the two ends have different path MTUs",
            "the sender's device has a fault"
        ];
    /// The network delivered a packet more than once.
    DeliveredTwice: "delivered-twice" Note,
        "C9-105: a duplicate of a SEND or WRITE is acknowledged and not executed again.",
        [
            "the network makes copies: a loop in a bridge, a bond, a mirror port",
            "faults were injected on purpose"
        ];
    /// A datagram to the RoCEv2 port that is not a packet.
    Malformed: "malformed-packet" Warning,
        "IBA vol. 1, 9.2: a packet has a BTH, the headers of its opcode and an ICRC.",
        [
            "another program uses UDP port 4791",
            "the packet was damaged"
        ];
    /// A packet was changed on purpose.
    FaultInjected: "fault-injected" Note,
        "ROCI_FAULT or `roci torture` changed this packet on purpose; what follows is the consequence.",
        [
            "a test asked for it: the comment of the packet says what was done"
        ];
    /// Congestion in the network.
    Congestion: "congestion" Note,
        "RoCEv2 annex: the receiver of packets that a switch has marked answers with a CNP, and the sender slows down.",
        [
            "several senders share a link",
            "the switch marks early on purpose"
        ];
}

impl AnomalyKind {
    /// The severity.
    pub const fn severity(self) -> Severity {
        self.explanation().severity
    }
}

impl Serialize for AnomalyKind {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.explanation().name)
    }
}
