//! Port sharing: several processes at one address, without a leader.
//!
//! Each lane of an open device is a [`Member`] of each address of the device. All
//! members bind the same port with `SO_REUSEPORT`. A classic BPF program makes the kernel steer
//! each packet by its destination queue pair to the member that owns the number. Each member owns a
//! [`NumberBlock`]. A small file in the user's runtime directory lists which member has which
//! block. There is room for at least 1,024 members; each has three descriptors. A member can give a part of its block to
//! a new member of the same process, with the queue pairs in it: the smallest block around a number tells its owner.
//!
//! # Socket indices and probes
//! The program names sockets by their index in the kernel's group. A new socket gets the last
//! index; when a socket is closed, the last one takes its index. A member that joins or leaves
//! records the resulting indices, and sends one probe to the member that they concern.
//!
//! After a crash, no member knows in which order the sockets were closed, so all indices are
//! *probed*: the member that notices the crash writes a new round number to the registry and sends
//! one probe to each index. The program delivers a probe to the index that is written in it. The
//! member that receives it learns its index and adds it to the registry. The last member to do so
//! installs the new program. If the last one does not come, a member that notices this installs it.
//! There is no leader, and no member waits for another: a member that is stopped by a debugger
//! delays only itself.
//!
//! If the group contains sockets of no member (a forked child that kept one), a member may get no
//! probe. It then starts a round with far more probes than members. Probes beyond the last socket
//! reach any member, but each member also gets the probe for its own index, so the lowest index
//! counts.
//!
//! # Packets at the wrong member
//! For some milliseconds after a crash, packets reach the wrong member. They are not lost: that
//! member forwards them to the owner's mailbox, a Unix datagram socket, and looks for the reason in
//! the registry. A mailbox holds only eleven datagrams, so messages that do not fit are queued at
//! the sender.
//!
//! The mailboxes also serve connection management. Queue pair 1 belongs to all members: the kernel
//! steers a response by the communication id in it, but a request may reach any member, which
//! forwards it to the member that listens: see [`Member::forward_to`] and [`Listeners`].
//!
//! Members that enable shortcuts receive packets from other processes of this machine past the
//! kernel: see [`Member::allow_shortcuts`].
//!
//! The death of a member is noticed at once by the two processes before it in the table, which wait for its end with process
//! descriptors ([`ExitWatch`]), and by any member that tries to forward to it. Where process descriptors are forbidden, its predecessor
//! notices it within a quarter of a second.
//!
//! # Measured on Linux 6.18, as an ordinary user
//! - Any member may replace the group's program, and the program outlives the process that installed it.
//! - An index that no socket has makes the kernel choose by addresses and ports.
//! - A socket of another user on the same address and port is rejected with `EADDRINUSE`.
//! - A zombie has closed its sockets; a socket that a forked child still holds keeps its index.
//! - A segmented send is steered whole by its first packet: one batch should have one destination.

mod allocation;
mod broadcast_limit;
mod cached_registry;
mod exit_watch;
mod join;
mod join_all;
mod join_error;
mod list_members;
mod listeners;
mod long_socket_path;
mod mailbox;
mod member;
mod number_block;
mod outbox;
mod port_in_use;
mod probe;
mod process_identity;
mod process_order;
mod registry;
mod registry_table;
mod repair;
mod repair_state;
mod runtime_directory;
mod send_receive;
mod shortcut;
mod stale_files;
mod statistics;
mod steering;

pub use exit_watch::ExitWatch;
pub use join_all::{begin_service, join_all, join_all_in, join_part};
pub use join_error::JoinError;
pub use list_members::{ListedMember, list_members};
pub use listeners::{Claimant, Listeners, ServiceError};
pub use member::{Counters, Member};
pub use number_block::{NotABlock, NumberBlock};
pub use registry::RegistryError;
pub use runtime_directory::{DirectoryError, RuntimeDirectory};
pub use send_receive::ReceivedPacket;
pub use statistics::{PageOwner, StatisticsPage, StatisticsSnapshot, counters_of, statistics};
pub(crate) use steering::accepts_everything;
