//! librdmacm: the connection manager for C programs.
//!
//! An id of C is a [`CmId`](driver::rdma_cm::CmId) with the fields that C
//! reads: addresses, device, queue pair and queues. As in rdma-core, this part uses libibverbs only through
//! the calls that a program makes.

mod addrinfo;
mod connect;
mod create_id;
mod endpoint;
mod errno;
mod event;
mod event_channel;
mod get_event;
mod id;
mod migrate;
mod multicast;
mod option;
mod queue_pair;
mod queue_pair_state;
mod resolve;
mod shared_device;
pub(crate) mod socket_address;

pub(crate) use create_id::disconnect_all;
pub(crate) use errno::of_bind;
