//! Names of codes. Programs print them and tests compare them, so they are the same as in rdma-core.

use std::ffi::{CStr, c_char, c_int};

use crate::entry::entry;

const STATUS: [&CStr; 24] = [
    c"success",
    c"local length error",
    c"local QP operation error",
    c"local EE context operation error",
    c"local protection error",
    c"Work Request Flushed Error",
    c"memory management operation error",
    c"bad response error",
    c"local access error",
    c"remote invalid request error",
    c"remote access error",
    c"remote operation error",
    c"transport retry counter exceeded",
    c"RNR retry counter exceeded",
    c"local RDD violation error",
    c"remote invalid RD request",
    c"aborted error",
    c"invalid EE context number",
    c"invalid EE context state",
    c"fatal error",
    c"response timeout error",
    c"general error",
    c"TM error",
    c"TM software rendezvous",
];

const EVENTS: [&CStr; 20] = [
    c"CQ error",
    c"local work queue catastrophic error",
    c"invalid request local work queue error",
    c"local access violation work queue error",
    c"communication established",
    c"send queue drained",
    c"path migrated",
    c"path migration request error",
    c"local catastrophic error",
    c"port active",
    c"port error",
    c"LID change",
    c"P_Key change",
    c"SM change",
    c"SRQ catastrophic error",
    c"SRQ limit reached",
    c"last WQE reached",
    c"client reregistration",
    c"GID table change",
    c"WQ fatal",
];

const PORT_STATES: [&CStr; 6] = [
    c"no state change (NOP)",
    c"down",
    c"init",
    c"armed",
    c"active",
    c"active defer",
];

/// Starts with code 1.
const NODES: [&CStr; 7] = [
    c"InfiniBand channel adapter",
    c"InfiniBand switch",
    c"InfiniBand router",
    c"iWARP NIC",
    c"usNIC",
    c"usNIC UDP",
    c"unspecified",
];

/// Numbers 12 and 13 have no name.
const OPCODES: [&CStr; 16] = [
    c"rdma-write",
    c"rdma-write-with-imm",
    c"send",
    c"send-with-imm",
    c"rdma-read",
    c"atomic-cmp-and-swp",
    c"atomic-fetch-and-add",
    c"local-inv",
    c"bind-mw",
    c"send-with-inv",
    c"tso",
    c"driver1",
    c"unknown",
    c"unknown",
    c"flush",
    c"atomic-write",
];

entry! {
    export fn ibv_wc_status_str(status: u32) -> *const c_char {
        Ok(name(&STATUS, status as usize))
    }

    export fn ibv_event_type_str(event: u32) -> *const c_char {
        Ok(name(&EVENTS, event as usize))
    }

    export fn ibv_port_state_str(state: u32) -> *const c_char {
        Ok(name(&PORT_STATES, state as usize))
    }

    export fn ibv_node_type_str(node: c_int) -> *const c_char {
        Ok(name(&NODES, (node as usize).wrapping_sub(1)))
    }

    export fn ibv_wr_opcode_str(opcode: u32) -> *const c_char {
        Ok(name(&OPCODES, opcode as usize))
    }
}

fn name(names: &[&'static CStr], number: usize) -> *const c_char {
    names.get(number).unwrap_or(&c"unknown").as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Headers before version 50 do not declare the function, so no C program here can call it.
    #[test]
    fn names_of_requests_are_those_of_the_opcodes() {
        let name_of = |opcode| {
            // SAFETY: takes no pointers.
            let name = unsafe { ibv_wr_opcode_str(opcode) };
            // SAFETY: a constant string.
            unsafe { CStr::from_ptr(name) }
        };
        assert_eq!(name_of(abi::IBV_WR_RDMA_WRITE), c"rdma-write");
        assert_eq!(name_of(abi::IBV_WR_SEND_WITH_INV), c"send-with-inv");
        assert_eq!(name_of(abi::IBV_WR_ATOMIC_WRITE), c"atomic-write");
        assert_eq!(name_of(13), c"unknown");
        assert_eq!(name_of(16), c"unknown");
    }
}
