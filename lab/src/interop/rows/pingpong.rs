//! The example programs of libibverbs, which exchange addresses through a socket.

use super::super::network::Family;
use super::{Link, Row};

const PATH_MTUS: [u32; 5] = [256, 512, 1024, 2048, 4096];

/// The largest that an interface of 1500 bytes carries.
const USUAL_MTU: u32 = 1024;

pub(super) fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for mtu in PATH_MTUS {
        for program in ["ibv_rc_pingpong", "ibv_uc_pingpong", "ibv_srq_pingpong"] {
            let name = format!("{program}, path MTU {mtu}");
            let options = format!("-m {mtu} -s 9000 -n 50");
            let row = pair(name, program, &options, Family::Ipv4).link(link(mtu));
            let usual = mtu == USUAL_MTU || (mtu == 4096 && program == "ibv_rc_pingpong");
            rows.push(if usual { row } else { row.long() });
        }
    }
    for family in [Family::Ipv4, Family::Ipv6] {
        let name = format!("ibv_ud_pingpong, {family}");
        rows.push(pair(name, "ibv_ud_pingpong", "-s 1000 -n 50", family));
    }
    let name = "ibv_rc_pingpong, events, IPv6";
    let options = "-e -m 1024 -s 9000 -n 50";
    rows.push(pair(name.into(), "ibv_rc_pingpong", options, Family::Ipv6));
    rows
}

fn link(path_mtu: u32) -> Link {
    if path_mtu <= USUAL_MTU {
        Link::USUAL
    } else {
        Link::JUMBO
    }
}

/// The socket is IPv4 whatever the GIDs are: these programs support no other.
fn pair(name: String, program: &str, options: &str, family: Family) -> Row {
    // The programs' own check of the data: RC and UC only.
    let check = if program.contains("_ud_") { "" } else { "-c" };
    let check = if program.contains("_srq_") { "" } else { check };
    let server = format!("{program} -d {{device}} -g {{gid}} {options} {check}");
    let client = format!("{server} {{server4}}");
    Row::new(name, server, client).over(family)
}
