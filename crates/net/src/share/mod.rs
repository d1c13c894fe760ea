//! Several processes on one address, with nobody in charge.
//!
//! Each context that uses an address is a [`Member`]: a process is as many members as it has devices
//! open. All members bind the same port with `SO_REUSEPORT`, and a classic BPF program lets the kernel
//! steer each packet by its destination queue pair to the member that owns the number: every member
//! has a [`NumberBlock`] of them. A small file in the user's runtime
//! directory lists which member has which block. At least 1,024 members find room; each has three descriptors.
//!
//! # Places, and how they are found
//! The program names sockets by their place in the kernel's group. A new socket gets the last place;
//! when one is closed, the last moves into its place. Whoever comes or leaves writes down what follows
//! from that, and sends one probe to whom it concerns.
//!
//! After a crash nobody can know in which order the sockets were closed, so all places are *probed*:
//! whoever notices writes a new round number to the registry and sends one probe to each place. The
//! program delivers a probe to the place that is written in it, and the member that gets it knows where
//! it is and adds that to the registry. Whoever is the last of all installs the program that follows,
//! or, when the last does not come, whoever notices that. There is no leader and nobody waits for
//! anybody: a member that has been stopped by a debugger only delays itself.
//!
//! When the group contains sockets of no member (a forked child that kept one), a member may find
//! itself without a probe. It then starts a round of far more probes than there are members. Those
//! beyond the last socket reach anybody, but a member always gets the one for its own place too, so the
//! lowest counts.
//!
//! # When steering is wrong
//! For some milliseconds after a crash, packets reach the wrong member. They are not lost: it hands
//! them over through the owner's mailbox, a Unix datagram socket, and takes them as a reason to
//! look around. A mailbox holds only eleven datagrams, so what does not fit waits at the sender.
//! The same mailboxes serve connection management. Queue pair 1 belongs to all members: the kernel
//! steers an answer by the communication id in it, but a request may reach anybody, who hands it to
//! the member that listens: see [`Member::forward_to`] and [`Listeners`].
//!
//! Who asks for it gets his packets past the kernel from other processes of this machine: see
//! [`Member::allow_shortcuts`].
//!
//! Who dies is noticed by its predecessor in the order of blocks, which looks every quarter of a
//! second, and by whoever tries to forward to it.
//!
//! # Measured on Linux 6.18, as an ordinary user
//! - Any member may replace the group's program, and it outlives who installed it.
//! - A place that no socket has makes the kernel choose by addresses and ports.
//! - A socket of another user on the same address and port is refused with `EADDRINUSE`.
//! - A zombie has closed its sockets; a socket that a forked child still holds keeps its place.
//! - A segmented send is steered whole by its first packet: one batch should have one destination.

mod allocation;
mod block;
mod directory;
mod exchange;
mod holder;
mod listeners;
mod mailbox;
mod member;
mod outbox;
mod present;
mod probe;
mod process;
mod registry;
mod repair;
mod several;
mod short_path;
mod shortcut;
mod steering;
mod sweep;
mod table;
mod view;

pub use block::{NotABlock, NumberBlock};
pub use directory::{DirectoryError, RuntimeDirectory};
pub use exchange::Arrived;
pub use listeners::{Listeners, ServiceError};
pub use member::{Counters, JoinError, Member};
pub use present::{Present, present};
pub use registry::RegistryError;
pub use several::{join_all, join_all_in};
pub(crate) use steering::accepts_everything;
