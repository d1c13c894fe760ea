//! The rules that programs must obey.

/// A rule. Its name is used in suppressions and in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Rule {
    /// The memory of a SEND or WRITE stays unchanged until the request completes.
    BufferChanged,
    /// A request does not store its result into memory that another outstanding request sends.
    OverlappingRequests,
    /// Two outstanding requests do not store their results or messages into the same memory.
    SharedTarget,
    /// The memory of a receive belongs to the device until its message has arrived.
    ReceiveChanged,
    /// Two accesses to the same remote memory, one of them a write, are ordered.
    RemoteRace,
    /// A request after a READ of the same remote memory that changes it needs a fence.
    MissingFence,
    /// Two peers do not access the same memory at once if one of them writes.
    TargetRace,
    /// Requests of different processes to the same memory, one of them a write, are ordered by messages.
    ProcessRace,
    /// A peer does not access memory that a local request uses.
    RemoteAccessToBuffer,
    /// A send queue has a signaled request before it is full.
    NeverSignaled,
    /// The completions of a send queue are polled before it is full.
    SendQueueNotPolled,
    /// A completion queue has room for the completions of all send requests.
    CompletionQueueTooSmall,
    /// A completion queue has room for the completions of all receives.
    TooManyReceives,
    /// A queue pair is destroyed after its send requests have completed.
    DestroyedWithSends,
    /// Completions with an error are polled.
    FailureNotPolled,
    /// Completions of send requests are polled before the queue pair is destroyed.
    NeverPolled,
    /// Events about errors are fetched.
    EventNotFetched,
    /// A region is deregistered after the requests that use it have completed.
    RegionInUse,
    /// Memory stays mapped while it is registered.
    MemoryUnmapped,
    /// A peer does not use an R_Key after the memory is deregistered.
    KeyAfterDeregistration,
    /// The program uses only what the chosen device supports.
    NotPortable,
    /// The first receive is posted before a message can arrive.
    NoReceiveYet,
    /// `min_rnr_timer` 0 is not the shortest delay.
    LongestRnrTimer,
    /// Objects are destroyed before the program ends.
    Leak,
}

/// How serious a violation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Level {
    /// The program can lose or corrupt data, or stop.
    Error,
    /// For information.
    Note,
}

impl Rule {
    /// All rules.
    pub const ALL: [Self; 24] = [
        Self::BufferChanged,
        Self::OverlappingRequests,
        Self::SharedTarget,
        Self::ReceiveChanged,
        Self::RemoteRace,
        Self::MissingFence,
        Self::TargetRace,
        Self::ProcessRace,
        Self::RemoteAccessToBuffer,
        Self::NeverSignaled,
        Self::SendQueueNotPolled,
        Self::CompletionQueueTooSmall,
        Self::TooManyReceives,
        Self::DestroyedWithSends,
        Self::FailureNotPolled,
        Self::NeverPolled,
        Self::EventNotFetched,
        Self::RegionInUse,
        Self::MemoryUnmapped,
        Self::KeyAfterDeregistration,
        Self::NotPortable,
        Self::NoReceiveYet,
        Self::LongestRnrTimer,
        Self::Leak,
    ];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::BufferChanged => "buffer-changed",
            Self::OverlappingRequests => "overlapping-requests",
            Self::SharedTarget => "shared-target",
            Self::ReceiveChanged => "receive-changed",
            Self::RemoteRace => "remote-race",
            Self::MissingFence => "missing-fence",
            Self::TargetRace => "target-race",
            Self::ProcessRace => "process-race",
            Self::RemoteAccessToBuffer => "remote-access-to-buffer",
            Self::NeverSignaled => "never-signaled",
            Self::SendQueueNotPolled => "send-queue-not-polled",
            Self::CompletionQueueTooSmall => "completion-queue-too-small",
            Self::TooManyReceives => "too-many-receives",
            Self::DestroyedWithSends => "destroyed-with-sends",
            Self::FailureNotPolled => "failure-not-polled",
            Self::NeverPolled => "never-polled",
            Self::EventNotFetched => "event-not-fetched",
            Self::RegionInUse => "region-in-use",
            Self::MemoryUnmapped => "memory-unmapped",
            Self::KeyAfterDeregistration => "key-after-deregistration",
            Self::NotPortable => "not-portable",
            Self::NoReceiveYet => "no-receive-yet",
            Self::LongestRnrTimer => "longest-rnr-timer",
            Self::Leak => "leak",
        }
    }

    /// How serious a violation is.
    #[must_use]
    pub const fn level(self) -> Level {
        match self {
            Self::SharedTarget
            | Self::ReceiveChanged
            | Self::TooManyReceives
            | Self::NeverPolled
            | Self::EventNotFetched
            | Self::MemoryUnmapped
            | Self::NoReceiveYet
            | Self::LongestRnrTimer
            | Self::Leak => Level::Note,
            _ => Level::Error,
        }
    }

    /// Why the rule exists, and what to do.
    #[must_use]
    pub const fn remedy(self) -> &'static str {
        match self {
            Self::BufferChanged => {
                "The device may read the memory until the request completes, and again for a retransmission. Poll the \
                 completion before you change or free the memory."
            }
            Self::OverlappingRequests => {
                "What is sent depends on which request is executed first. Give each request memory of its own, set the fence \
                 flag (IBV_SEND_FENCE) if a READ of the same queue pair comes first, or poll the completion of the first \
                 request before you post the second."
            }
            Self::SharedTarget => {
                "The later one overwrites what the earlier one stored, perhaps before the program has read it. This is \
                 right only for a program that does not read the data, such as a benchmark. Give each request memory of \
                 its own."
            }
            Self::ReceiveChanged => {
                "A message may arrive at any time after the post, and the program's stores and those of the device then \
                 overwrite each other. This is correct only if the peer cannot have sent yet. Prepare the memory before \
                 you post it."
            }
            Self::RemoteRace | Self::MissingFence | Self::TargetRace | Self::ProcessRace => {
                self.remedy_of_race()
            }
            Self::RemoteAccessToBuffer => {
                "The request may read or write the memory until it completes. Poll its completion before you let the \
                 peer access the memory."
            }
            Self::NeverSignaled => {
                "A device releases the entries of unsignaled requests when a later signaled one completes, so on \
                 hardware the queue stays full. Make at least one request of each queue length signaled, and poll it."
            }
            Self::SendQueueNotPolled => {
                "A device releases the entries of a send queue when the program polls a completion that covers them, so on \
                 hardware the queue is full. Poll the completion queue before you post more."
            }
            Self::TooManyReceives => {
                "If the peer fills all of them before you poll, the queue overruns and its queue pairs fail. This is right \
                 only if the peer waits for replies. Create the completion queue with room for all receives."
            }
            Self::CompletionQueueTooSmall => {
                "If all of them complete before you poll, the queue overruns and its queue pairs fail. Create the \
                 completion queue with room for all outstanding requests."
            }
            Self::DestroyedWithSends => {
                "Their data may not have arrived. Poll their completions first, or move the queue pair to the error \
                 state and poll the flushed requests."
            }
            Self::FailureNotPolled => {
                "The program did not learn that the request failed. Poll the completion queue before you destroy the \
                 queue pair or exit."
            }
            Self::NeverPolled => {
                "The program did not wait until the data had arrived. On a slower network it may be lost. Poll the \
                 completion of the last request first."
            }
            Self::EventNotFetched => {
                "The program did not learn that it failed. Call ibv_get_async_event, perhaps in a thread of its own."
            }
            Self::RegionInUse => {
                "A device that reads or writes the memory later fails the request. Poll the completion before you \
                 deregister the memory."
            }
            Self::MemoryUnmapped => {
                "A device with pinned memory still reads and writes the former pages, and a new mapping at the same \
                 address is not what it accesses. This is correct only if nothing uses the region any more, as in a \
                 registration cache. Deregister the memory before you free or unmap it."
            }
            Self::KeyAfterDeregistration => {
                "Another region could have the key now. Make sure that the peer has finished before you deregister \
                 the memory."
            }
            Self::NotPortable => {
                "It works here only. Ask the device with ibv_query_device what it supports, and use no more."
            }
            Self::NoReceiveYet => {
                "The peer retransmits the message as often as its RNR retry count allows, and then fails. Post receives \
                 before the queue pair becomes ready to receive."
            }
            Self::LongestRnrTimer => {
                "The value 0 means 655.36 milliseconds; the shortest delay, 0.01 milliseconds, is 1. Choose another value \
                 when you move the queue pair to Ready to Receive."
            }
            Self::Leak => "Destroy objects when they are no longer used.",
        }
    }

    const fn remedy_of_race(self) -> &'static str {
        match self {
            Self::RemoteRace => {
                "Requests of different queue pairs are executed in any order. Poll the completion of the first one \
                 before you post the second, or use one queue pair."
            }
            Self::MissingFence => {
                "A device may execute the later request before it has read the memory. Set the fence flag \
                 (IBV_SEND_FENCE), or poll the completion of the READ first."
            }
            Self::TargetRace => {
                "Neither of them waited for the other, so the result depends on the network. Let one peer finish before \
                 the other begins, use atomic operations, or give each peer memory of its own."
            }
            _ => {
                "The result depends on the network. Poll the completion of the first one, and then tell the other process \
                 by a message, immediate data, an atomic or a connection. If they agree in another way, such as TCP, do not use \
                 --check-processes."
            }
        }
    }
}
