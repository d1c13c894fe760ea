//! The programs of librdmacm.

use super::super::network::Family;
use super::{Judge, Link, Row, Way};

const PINGS: usize = 10;
const MANY_PINGS: usize = 3000;

pub(super) fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for family in [Family::Ipv4, Family::Ipv6] {
        for size in [64, 1000, 65535] {
            rows.push(ping("roci ping", Way::Ping, size, family));
        }
        rows.push(ping("rping", Way::Run, 4096, family));
        rows.push(connections(family));
        rows.push(datagrams(family));
    }
    rows.push(ping("roci ping, jumbo", Way::Ping, 65535, Family::Ipv4).link(Link::JUMBO));
    rows.push(Row::new(
        "rdma_server and rdma_client",
        "rdma_server -s {server}",
        "rdma_client -s {server}",
    ));
    rows.push(soak());
    let lossy = ping("roci ping, lossy", Way::Ping, 20000, Family::Ipv4);
    rows.push(lossy.link(Link::LOSSY).long());
    rows
}

fn ping(name: &str, way: Way, size: u32, family: Family) -> Row {
    let server = format!("rping -s -a {{server}} -v -C {PINGS} -S {size}");
    let client = format!("rping -c -a {{server}} -v -V -C {PINGS} -S {size}");
    Row::new(format!("{name}, {size} B, {family}"), server, client)
        .way(way)
        .over(family)
        .judge(Judge::Pings(PINGS))
}

/// Enough pings for faults that occur once in a thousand.
fn soak() -> Row {
    let options = format!("-a {{server}} -v -C {MANY_PINGS} -S 300");
    Row::new(
        format!("roci ping, {MANY_PINGS} times"),
        format!("rping -s {options}"),
        format!("rping -c -V {options}"),
    )
    .way(Way::Ping)
    .judge(Judge::Pings(MANY_PINGS))
    .long()
}

fn connections(family: Family) -> Row {
    let options = "-c 4 -C 20 -S 3000";
    Row::new(
        format!("ucmatose, 4 connections, {family}"),
        format!("ucmatose -b {{server}} {options}"),
        format!("ucmatose -s {{server}} -b {{here}} {options}"),
    )
    .over(family)
}

fn datagrams(family: Family) -> Row {
    let options = "-c 4 -C 20 -S 500";
    Row::new(
        format!("udaddy, 4 connections, {family}"),
        format!("udaddy -b {{server}} {options}"),
        format!("udaddy -s {{server}} -b {{here}} {options}"),
    )
    .over(family)
}
