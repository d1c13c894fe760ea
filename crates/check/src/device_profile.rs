//! The limits of other devices, for programs that will run there.

use std::fmt;
use std::str::FromStr;

use engine::observation::{PostedSend, QueuePairSizes};
use engine::{QueuePairType, Work};

/// A kind of device with its documented limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Profile {
    /// ConnectX-5.
    Cx5,
    /// ConnectX-7.
    Cx7,
    /// Intel E810 with RoCEv2.
    E810,
    /// Elastic Fabric Adapter.
    Efa,
    /// The kernel's Soft-RoCE.
    Rxe,
}

/// What a device supports. The numbers are those of `ibv_devinfo -v`; `None` is not documented.
struct Limits {
    requests: Option<u32>,
    segments: Option<u32>,
    completions: Option<u32>,
    inline: Option<u32>,
    reads: Option<u32>,
    has_connections: bool,
    has_unreliable_connections: bool,
    has_shared_receives: bool,
    has_atomics: bool,
}

impl Profile {
    /// All profiles.
    pub const ALL: [Self; 5] = [Self::Cx5, Self::Cx7, Self::E810, Self::Efa, Self::Rxe];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cx5 => "cx5",
            Self::Cx7 => "cx7",
            Self::E810 => "e810",
            Self::Efa => "efa",
            Self::Rxe => "rxe",
        }
    }

    const fn limits(self) -> Limits {
        let everything = Limits {
            requests: None,
            segments: None,
            completions: None,
            inline: None,
            reads: None,
            has_connections: true,
            has_unreliable_connections: true,
            has_shared_receives: true,
            has_atomics: true,
        };
        match self {
            Self::Cx5 | Self::Cx7 => Limits {
                requests: Some(32_768),
                segments: Some(30),
                completions: Some(4_194_303),
                reads: Some(16),
                ..everything
            },
            Self::E810 => Limits {
                requests: Some(8127),
                segments: Some(6),
                completions: Some(1_048_574),
                has_unreliable_connections: false,
                has_shared_receives: false,
                has_atomics: false,
                ..everything
            },
            Self::Efa => Limits {
                inline: Some(32),
                has_connections: false,
                has_unreliable_connections: false,
                has_shared_receives: false,
                has_atomics: false,
                ..everything
            },
            Self::Rxe => Limits {
                requests: Some(16_384),
                segments: Some(32),
                completions: Some(32_767),
                reads: Some(128),
                ..everything
            },
        }
    }

    /// What the device does not support of a queue pair.
    pub(crate) fn reject_queue_pair(self, sizes: &QueuePairSizes) -> Option<String> {
        let limits = self.limits();
        let supported = match sizes.kind {
            QueuePairType::Uc => limits.has_unreliable_connections,
            QueuePairType::Rc | QueuePairType::XrcInitiator | QueuePairType::XrcTarget => {
                limits.has_connections
            }
            _ => true,
        };
        if !supported {
            return Some(format!("a queue pair of type {}", kind_name(sizes.kind)));
        }
        if sizes.shared_receive.is_some() && !limits.has_shared_receives {
            return Some("a shared receive queue".to_owned());
        }
        let segments = sizes.max_send_segments.max(sizes.max_receive_segments);
        let requests = sizes.max_sends.max(sizes.max_receives);
        [
            (requests, limits.requests, "outstanding requests"),
            (segments, limits.segments, "segments in a request"),
            (sizes.max_inline, limits.inline, "inline bytes"),
        ]
        .into_iter()
        .find_map(|(wanted, limit, what)| beyond(wanted, limit, what))
    }

    /// What the device does not support of a completion queue.
    pub(crate) fn reject_completion_queue(self, capacity: u32) -> Option<String> {
        let limit = self.limits().completions;
        beyond(capacity, limit, "completions in a queue")
    }

    /// What the device does not support of the reads and atomics that a queue pair may have outstanding.
    pub(crate) fn reject_read_depth(self, depth: u8) -> Option<String> {
        let limit = self.limits().reads;
        beyond(depth.into(), limit, "outstanding reads and atomics")
    }

    /// What the device does not support of a request.
    pub(crate) fn reject_request(self, posted: &PostedSend) -> Option<String> {
        let is_atomic = matches!(
            posted.work,
            Work::CompareSwap { .. } | Work::FetchAdd { .. } | Work::AtomicWrite(_)
        );
        (is_atomic && !self.limits().has_atomics).then(|| "atomic operations".to_owned())
    }
}

const fn kind_name(kind: QueuePairType) -> &'static str {
    match kind {
        QueuePairType::Rc => "RC",
        QueuePairType::Uc => "UC",
        QueuePairType::XrcInitiator | QueuePairType::XrcTarget => "XRC",
        _ => "UD",
    }
}

fn beyond(wanted: u32, limit: Option<u32>, what: &str) -> Option<String> {
    let limit = limit.filter(|limit| wanted > *limit)?;
    Some(format!("{wanted} {what} (the limit is {limit})"))
}

/// No profile has this name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownProfile(String);

impl fmt::Display for UnknownProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Profile::ALL.map(Profile::name).join(", ");
        write!(f, "there is no profile `{}`; choose one of {names}", self.0)
    }
}

impl std::error::Error for UnknownProfile {}

impl FromStr for Profile {
    type Err = UnknownProfile;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut all = Self::ALL.into_iter();
        let found = all.find(|profile| profile.name() == text);
        found.ok_or_else(|| UnknownProfile(text.to_owned()))
    }
}
