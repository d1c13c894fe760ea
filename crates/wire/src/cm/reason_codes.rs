//! The numeric codes in connection manager messages, and their meaning.

use std::fmt;

use super::field::Number;

/// Declares a set of codes: each row is a name, its code and its meaning.
macro_rules! codes {
    ($($(#[$attribute:meta])* $name:ident: $number:ty {
        $($variant:ident = $code:literal $meaning:literal,)+
    })+) => { $(
        $(#[$attribute])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum $name {
            $(
                #[doc = concat!("Code ", stringify!($code), ": ", $meaning, ".")]
                $variant,
            )+
            /// A code that the specification does not define.
            Other($number),
        }

        impl $name {
            /// Converts a code on the wire.
            pub const fn from_code(code: $number) -> Self {
                match code {
                    $($code => $name::$variant,)+
                    other => $name::Other(other),
                }
            }

            /// The code on the wire.
            pub const fn code(self) -> $number {
                match self {
                    $($name::$variant => $code,)+
                    $name::Other(code) => code,
                }
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::from_code(0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $($name::$variant => f.write_str($meaning),)+
                    $name::Other(code) => write!(f, "code {code}"),
                }
            }
        }

        impl Number for $name {
            fn from_number(number: u64) -> Self {
                Self::from_code(number as $number)
            }

            fn number(&self) -> u64 {
                self.code().into()
            }
        }
    )+ };
}

codes! {
    /// The transport service of a connection.
    Service: u8 {
        ReliableConnection = 0 "reliable connection",
        UnreliableConnection = 1 "unreliable connection",
        ReliableDatagram = 2 "reliable datagram",
        Extended = 3 "extended transport type",
    }

    /// Whether the alternate path of a REQ is accepted.
    Failover: u8 {
        Accepted = 0 "alternate path accepted",
        NotSupported = 1 "alternate paths not supported",
        Rejected = 2 "alternate path rejected",
    }

    /// The message that an MRA confirms.
    AcknowledgedMessage: u8 {
        Request = 0 "REQ",
        Reply = 1 "REP",
        LoadAlternatePath = 2 "LAP",
    }

    /// The message that a REJ rejects.
    RejectedMessage: u8 {
        Request = 0 "REQ",
        Reply = 1 "REP",
        None = 2 "no message",
    }

    /// Why a connection is rejected.
    RejectReason: u16 {
        NoQueuePair = 1 "no queue pair available",
        NoEndToEndContext = 2 "no end-to-end context available",
        NoResources = 3 "no resources available",
        Timeout = 4 "timeout",
        UnsupportedRequest = 5 "unsupported request",
        InvalidCommunicationId = 6 "invalid communication id",
        InvalidCommunicationInstance = 7 "invalid communication instance",
        InvalidServiceId = 8 "no program listens on this service id",
        InvalidServiceType = 9 "invalid transport service type",
        StaleConnection = 10 "stale connection",
        NoReliableDatagramChannel = 11 "the reliable datagram channel does not exist",
        PrimaryGidRejected = 12 "primary remote GID rejected",
        PrimaryLidRejected = 13 "primary remote LID rejected",
        InvalidPrimaryServiceLevel = 14 "invalid primary service level",
        InvalidPrimaryTrafficClass = 15 "invalid primary traffic class",
        InvalidPrimaryHopLimit = 16 "invalid primary hop limit",
        InvalidPrimaryRate = 17 "invalid primary packet rate",
        AlternateGidRejected = 18 "alternate remote GID rejected",
        AlternateLidRejected = 19 "alternate remote LID rejected",
        InvalidAlternateServiceLevel = 20 "invalid alternate service level",
        InvalidAlternateTrafficClass = 21 "invalid alternate traffic class",
        InvalidAlternateHopLimit = 22 "invalid alternate hop limit",
        InvalidAlternateRate = 23 "invalid alternate packet rate",
        PortAndManagerRedirection = 24 "ask another port and another connection manager",
        PortRedirection = 25 "ask another port",
        InvalidPathMtu = 26 "invalid path MTU",
        InsufficientResponderResources = 27 "insufficient responder resources",
        Consumer = 28 "refused by the application",
        RnrRetryCountRejected = 29 "RNR retry count rejected",
        DuplicateCommunicationId = 30 "duplicate local communication id",
        InvalidClassVersion = 31 "invalid class version",
        InvalidPrimaryFlowLabel = 32 "invalid primary flow label",
        InvalidAlternateFlowLabel = 33 "invalid alternate flow label",
        VendorOptionNotSupported = 35 "vendor option not supported",
    }

    /// The status of a service ID resolution.
    ServiceStatus: u8 {
        Valid = 0 "served",
        NotSupported = 1 "no program listens on this service id",
        Rejected = 2 "refused by the application",
        NoQueuePair = 3 "no queue pair available",
        Redirected = 4 "redirected to another connection manager",
        UnsupportedVersion = 5 "unsupported class version",
    }

    /// The status of an alternate path.
    AlternatePathStatus: u8 {
        Loaded = 0 "alternate path loaded",
        InvalidCommunicationId = 1 "invalid communication id",
        NotSupported = 2 "alternate paths not supported",
        Rejected = 3 "refused by the application",
        Redirected = 4 "redirected to another connection manager",
        IsCurrent = 5 "this is the path in use",
        InvalidQueuePair = 6 "invalid queue pair number",
        InvalidLid = 7 "remote LID rejected",
        InvalidGid = 8 "remote GID rejected",
        InvalidFlowLabel = 9 "invalid flow label",
        InvalidTrafficClass = 10 "invalid traffic class",
        InvalidHopLimit = 11 "invalid hop limit",
        InvalidRate = 12 "invalid packet rate",
        InvalidServiceLevel = 13 "invalid service level",
    }
}
