//! How much a device may have of everything.

/// The most entries that a completion queue may have.
pub const MAX_COMPLETIONS: u32 = 1 << 22;

/// The most work requests that a send queue, a receive queue or a shared receive queue may hold.
pub const MAX_REQUESTS: u32 = 1 << 20;

/// The most bytes that a work request may carry inline.
pub const MAX_INLINE: u32 = 1 << 16;

/// How many objects of each kind a device may have at a time. The numbers that it announces are these;
/// that of queue pairs follows from their [numbers](super::NumberSpace).
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
    /// Multicast groups with a member.
    pub multicast_groups: u32,
    /// Queue pairs in one multicast group.
    pub group_members: u32,
    /// Memberships of queue pairs in multicast groups, all together.
    pub group_memberships: u32,
}

impl Default for Limits {
    /// A million of what is simple.
    fn default() -> Self {
        const MANY: u32 = 1 << 20;
        Self {
            domains: MANY,
            xrc_domains: MANY,
            completion_queues: MANY,
            shared_receive_queues: MANY,
            memory_regions: MANY,
            memory_windows: MANY,
            address_handles: MANY,
            multicast_groups: 1 << 13,
            group_members: 1 << 16,
            group_memberships: 1 << 17,
        }
    }
}
