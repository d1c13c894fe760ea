//! Sockets over RDMA: the `r*` calls of librdmacm.
//!
//! A stream is a reliable connection in which both sides write into each other's buffers
//! ([`protocol`], [`pipe`]); a datagram socket is a UDP socket that finds queue pairs for datagrams
//! and then goes over those ([`datagram`]). Both speak what rdma-core's sockets speak.

mod call;
mod datagram;
mod direct;
mod epoll;
mod incoming;
mod kernel;
mod message;
mod opening;
mod option;
mod outgoing;
mod parts;
mod pipe;
mod poll;
mod protocol;
mod sizes;
mod station;
mod stream;
mod table;
