//! Limits on the objects of a device.

/// The maximum number of entries of a completion queue.
pub const MAX_COMPLETIONS: u32 = 1 << 22;

/// The maximum number of work requests in a send queue, receive queue or shared receive queue.
pub const MAX_REQUESTS: u32 = 1 << 20;

/// The maximum number of inline bytes in a work request.
pub const MAX_INLINE: u32 = 1 << 16;

/// The maximum number of outstanding reads and atomics of a queue pair, in each direction, unless the device is
/// [configured](crate::Config::max_responder_resources) otherwise.
pub const MAX_RESPONDER_RESOURCES: u8 = 128;

/// How many objects of each kind a device may have at a time. The device reports these limits to
/// applications. The limit on queue pairs follows from their [numbers](crate::QpnRange).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Protection domains.
    pub domains: u32,
    /// XRC domains.
    pub xrc_domains: u32,
    /// Completion queues.
    pub completion_queues: u32,
    /// Shared receive queues.
    pub shared_receive_queues: u32,
    /// Memory regions.
    pub memory_regions: u32,
    /// Memory windows.
    pub memory_windows: u32,
    /// Address handles.
    pub address_handles: u32,
    /// Multicast groups with at least one member.
    pub multicast_groups: u32,
    /// Queue pairs in one multicast group.
    pub group_members: u32,
    /// Memberships of queue pairs in multicast groups, in total.
    pub group_memberships: u32,
}

impl Default for Limits {
    /// About a million of each kind of object that needs little memory.
    fn default() -> Self {
        const DEFAULT_LIMIT: u32 = 1 << 20;
        Self {
            domains: DEFAULT_LIMIT,
            xrc_domains: DEFAULT_LIMIT,
            completion_queues: DEFAULT_LIMIT,
            shared_receive_queues: DEFAULT_LIMIT,
            memory_regions: DEFAULT_LIMIT,
            memory_windows: DEFAULT_LIMIT,
            address_handles: DEFAULT_LIMIT,
            multicast_groups: 1 << 13,
            group_members: 1 << 16,
            group_memberships: 1 << 17,
        }
    }
}
