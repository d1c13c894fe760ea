//! The program with which the kernel chooses a socket for each packet.

use crate::sys::option::Instruction;

use super::probe;
use super::table::Table;

/// No group has so many sockets: the kernel then chooses by the packet's addresses and ports.
const ANY: u32 = u32::MAX;

const LOAD_WORD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const JUMP_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const SHIFT_RIGHT: u16 = (libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K) as u16;
const AND: u16 = (libc::BPF_ALU | libc::BPF_AND | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
const RETURN_LOADED: u16 = (libc::BPF_RET | libc::BPF_A) as u16;

/// The word of a BTH that ends with the destination's number.
const DESTINATION: u32 = 4;

/// Steers each packet to the member that owns its destination, as far as the members' places are
/// known; everything else to any member. A probe goes to the place that it names.
pub(super) fn program(table: &Table) -> Vec<Instruction> {
    let mut program = vec![
        plain(LOAD_WORD, 0),
        jump_equal(probe::MAGIC, 2),
        plain(LOAD_WORD, probe::PLACE_OFFSET),
        plain(RETURN_LOADED, 0),
        plain(LOAD_WORD, DESTINATION),
        plain(SHIFT_RIGHT, 18),
        plain(AND, 0x3f),
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
    Instruction {
        jump_false: skip,
        ..plain(JUMP_EQUAL, operand)
    }
}
