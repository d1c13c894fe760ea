//! librdmacm: connections as C programs make them.
//!
//! An id of C is an [`Identifier`](rocinante::rdma_cm::Identifier) of the safe API with its fields on
//! show: addresses, device, queue pair and queues. What the two libraries of rdma-core divide among
//! themselves, stays divided here: everything that has to do with queues goes through the same calls
//! that a program makes.

pub(crate) mod address;
mod addrinfo;
mod channel;
mod connect;
mod device;
mod endpoint;
mod event;
mod failure;
mod id;
mod multicast;
mod option;
mod queue_pair;
mod ready;
mod resolve;
