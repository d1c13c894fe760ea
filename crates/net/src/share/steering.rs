//! The program with which the kernel chooses a socket for each packet.

use crate::sys::option::Instruction;

use super::probe;
use super::table::Table;

/// No group has so many sockets: the kernel then chooses by the packet's addresses and ports.
const ANY: u32 = u32::MAX;

const LOAD_WORD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const LOAD_HALF: u16 = (libc::BPF_LD | libc::BPF_H | libc::BPF_ABS) as u16;
const LOAD_LENGTH: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_LEN) as u16;
const JUMP_AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
const JUMP: u16 = (libc::BPF_JMP | libc::BPF_JA) as u16;
const JUMP_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const SHIFT_RIGHT: u16 = (libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K) as u16;
const AND: u16 = (libc::BPF_ALU | libc::BPF_AND | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
const RETURN_LOADED: u16 = (libc::BPF_RET | libc::BPF_A) as u16;

/// The word of a BTH that ends with the destination's number.
const DESTINATION: u32 = 4;

const QPN_MASK: u32 = 0xff_ffff;

/// What stands before the body of a message of the connection manager: BTH, DETH, MAD header.
const BODY: u32 = 12 + 8 + 24;

/// Where the MAD header says which message it is.
const ATTRIBUTE: u32 = 12 + 8 + 16;

/// The reply to a request for a datagram service begins with the requester's id. All other answers
/// have it as their second word, where requests have nothing that looks like a slice.
const SERVICE_REPLY: u32 = 0x18;

/// Steers each packet to the member that owns its destination, and answers of the connection manager
/// to the member that chose the id in them, as far as the members' places are known; everything else
/// to any member. A probe goes to the place that it names.
pub(super) fn program(table: &Table) -> Vec<Instruction> {
    let mut program = vec![
        plain(LOAD_WORD, 0),
        jump_equal(probe::MAGIC, 2),
        plain(LOAD_WORD, probe::PLACE_OFFSET),
        plain(RETURN_LOADED, 0),
        plain(LOAD_WORD, DESTINATION),
        plain(AND, QPN_MASK),
        jump_equal(wire::Qpn::GSI.value(), 9),
        plain(LOAD_LENGTH, 0),
        // Loading beyond its end would send a packet to the first place. So short ones go to
        // anybody: shifted, their length is no slice.
        jump_unless(JUMP_AT_LEAST, BODY + 8, 7),
        plain(LOAD_HALF, ATTRIBUTE),
        jump_equal(SERVICE_REPLY, 2),
        plain(LOAD_WORD, BODY),
        plain(JUMP, 1),
        plain(LOAD_WORD, BODY + 4),
        plain(SHIFT_RIGHT, 26),
        plain(JUMP, 1),
        plain(SHIFT_RIGHT, 18),
    ];
    for member in &table.members {
        if let Some(place) = member.place {
            program.push(jump_equal(member.slice.number().into(), 1));
            program.push(plain(RETURN, place));
        }
    }
    program.push(plain(RETURN, anybody(table)));
    program
}

/// Where packets go that are not for one member. When there are sockets in the group that belong to
/// no member, the kernel must not choose: what it gives to them is lost.
fn anybody(table: &Table) -> u32 {
    if table.fills_all_places() {
        return ANY;
    }
    let known = table.members.iter().find_map(|member| member.place);
    known.unwrap_or(ANY)
}

fn plain(code: u16, operand: u32) -> Instruction {
    Instruction {
        code,
        jump_true: 0,
        jump_false: 0,
        operand,
    }
}

/// Goes on when what was loaded equals the operand, otherwise skips instructions.
fn jump_equal(operand: u32, skip: u8) -> Instruction {
    jump_unless(JUMP_EQUAL, operand, skip)
}

fn jump_unless(code: u16, operand: u32, skip: u8) -> Instruction {
    Instruction {
        jump_false: skip,
        ..plain(code, operand)
    }
}
