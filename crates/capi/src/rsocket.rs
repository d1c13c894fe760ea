//! Sockets over RDMA: the `r*` calls of librdmacm.
//!
//! A stream is a reliable connection in which both sides write into each other's buffers ([`protocol`],
//! [`connection`]). A datagram socket is a UDP socket over which two peers exchange the numbers of their UD
//! queue pairs, and then uses those ([`datagram`]). Both are compatible with rdma-core's rsockets.

mod connect;
mod connection;
mod datagram;
mod datagram_header;
mod datagram_peers;
mod datagram_queue_pair;
mod entry_points;
mod epoll;
mod epoll_syscalls;
mod io_map;
mod option;
mod poll;
mod protocol;
mod readiness;
mod receive_side;
mod send_side;
mod settings;
mod socket_table;
mod stream;
mod verbs_objects;
mod wait;

pub(crate) use socket_table::close_all;
