//! The BPF program by which the kernel chooses a socket for each packet.

use std::ops::Range;

use crate::sys::option::Instruction;

use super::number_block::NumberBlock;
use super::probe;
use super::registry_table::{Entry, Table};

/// An index that no socket has. The kernel then chooses by the packet's addresses and ports.
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

/// The offset of the BTH word that ends with the destination queue pair number.
const DESTINATION: u32 = 4;

const QPN_MASK: u32 = 0xff_ffff;

/// The offset of the body of a connection manager message, after BTH, DETH and MAD header.
const BODY: u32 = 12 + 8 + 24;

/// The offset of the attribute id in the MAD header, which says which message it is.
const ATTRIBUTE: u32 = 12 + 8 + 16;

/// The attribute of a reply to a request for a datagram service. It begins with the requester's id.
/// All other responses have this id as their second word, where requests have a number that all
/// members share.
const SERVICE_REPLY: u32 = 0x18;

/// The offset of the low half of the service id in a request. The port is in it.
const SERVICE: u32 = BODY + 12;

/// A communication id belongs to the block that contains its highest 24 bits.
const COMMUNICATION_SHIFT: u32 = 8;

/// The maximum number of instructions that the kernel accepts.
const MAX_INSTRUCTIONS: usize = 4096;

/// The maximum number of services in the program. Each one costs a request an instruction.
const MAX_SERVICES: usize = 256;

/// The maximum number of members: two instructions each, one jump for each 64 or so, and the
/// beginning fit into a program.
pub(super) const MAX_MEMBERS: usize = 2000;

/// A program that chooses no socket, to test whether the kernel accepts one.
pub(crate) fn accepts_everything() -> [Instruction; 1] {
    [plain(RETURN, ANY)]
}

/// Steers each packet to the member that owns its destination, and responses of the connection
/// manager to the member that chose the id in them, as far as the members' indices are known. A request goes
/// to the member that listens for its service: a stopped process must not receive the requests to others. Other
/// packets go to any member. A number without an owner goes to the member with the next lower
/// block, because one member must get it. A probe goes to the index that it names.
///
/// Each doubling of the number of members costs a packet one more comparison.
pub(super) fn program(table: &Table) -> Vec<Instruction> {
    let fallback = any_member(table);
    let mut program = vec![
        plain(LOAD_WORD, 0),
        jump_equal(probe::MAGIC, 2),
        plain(LOAD_WORD, probe::PLACE_OFFSET),
        plain(RETURN_LOADED, 0),
        plain(LOAD_WORD, DESTINATION),
        plain(AND, QPN_MASK),
        jump_equal(wire::Qpn::GSI.value(), 9),
        plain(LOAD_LENGTH, 0),
        // A load beyond the end of a packet would steer it to the first index.
        jump_unless(JUMP_AT_LEAST, BODY + 8, 4),
        plain(LOAD_HALF, ATTRIBUTE),
        jump_equal(SERVICE_REPLY, 3),
        plain(LOAD_WORD, BODY),
        plain(JUMP, 2),
        plain(RETURN, fallback),
        plain(LOAD_WORD, BODY + 4),
        plain(SHIFT_RIGHT, COMMUNICATION_SHIFT),
        // The numbers that all members share are at both ends.
        jump_unless(JUMP_AT_LEAST, NumberBlock::SPACE.start, 1),
        jump_unless(JUMP_AT_LEAST, NumberBlock::SPACE.end, 1),
    ];
    let leaves = leaves(table, fallback);
    let mut owners = Vec::new();
    if leaves.is_empty() {
        owners.push(plain(RETURN, fallback));
    }
    search(&leaves, &mut owners);
    program.push(plain(JUMP, owners.len() as u32));
    program.append(&mut owners);
    let room = MAX_INSTRUCTIONS.saturating_sub(program.len());
    program.append(&mut listeners(table, fallback, room));
    program
}

/// Whether the kernel accepts the program for one more member, whose block may be a part of another one's.
pub(super) fn has_room(table: &Table, is_part: bool) -> bool {
    let added = 1 + usize::from(is_part);
    leaves(table, ANY).len() + added <= MAX_MEMBERS
}

/// From which number on packets go to which index. Behind a part of a block, this is the index of the whole again.
fn leaves(table: &Table, fallback: u32) -> Vec<(u32, u32)> {
    let mut leaves: Vec<(u32, u32)> = Vec::new();
    let mut whole: Option<&Entry> = None;
    for member in table.members.iter().filter(|member| !member.withdrawn) {
        let index = |member: &Entry| member.socket_index.unwrap_or(fallback);
        let Range { start, end } = member.block.qpn_range();
        if leaves.last().is_some_and(|(from, _)| *from == start) {
            // It is the next part.
            leaves.pop();
        }
        leaves.push((start, index(member)));
        match whole.filter(|it| it.block.encloses(member.block)) {
            Some(whole) if whole.block.contains(wire::Qpn::new(end)) => {
                leaves.push((end, index(whole)));
            }
            Some(_) => {}
            None => whole = Some(member),
        }
    }
    leaves
}

/// Finds the member that listens for the service of a request.
fn listeners(table: &Table, fallback: u32, room: usize) -> Vec<Instruction> {
    let begin = [
        plain(LOAD_LENGTH, 0),
        Instruction {
            jump_true: 1,
            ..plain(JUMP_AT_LEAST, SERVICE + 4)
        },
        plain(RETURN, fallback),
        plain(LOAD_WORD, SERVICE),
    ];
    let most = room.saturating_sub(begin.len() + 1) / 2;
    if most == 0 {
        return vec![plain(RETURN, fallback)];
    }
    let services = table.listeners.iter().filter_map(|listener| {
        let member = table.member(listener.block)?;
        let index = member.socket_index.filter(|_| !member.withdrawn)?;
        Some((listener.service as u32, index))
    });
    let known = services
        .take(most.min(MAX_SERVICES))
        .flat_map(|(service, index)| [jump_equal(service, 1), plain(RETURN, index)]);
    let end = [plain(RETURN, fallback)];
    begin.into_iter().chain(known).chain(end).collect()
}

/// Finds the last block that begins at or below the number, and returns its index.
fn search(leaves: &[(u32, u32)], program: &mut Vec<Instruction>) {
    let (lower, upper) = leaves.split_at(leaves.len() / 2);
    let Some((first_of_upper, index)) = upper.first() else {
        return;
    };
    if lower.is_empty() {
        program.push(plain(RETURN, *index));
        return;
    }
    let mut below = Vec::new();
    search(lower, &mut below);
    let length = below.len();
    match u8::try_from(length) {
        Ok(near) => program.push(Instruction {
            jump_true: near,
            ..plain(JUMP_AT_LEAST, *first_of_upper)
        }),
        // A conditional jump reaches only 255 instructions.
        Err(_) => {
            program.push(jump_unless(JUMP_AT_LEAST, *first_of_upper, 1));
            program.push(plain(JUMP, length as u32));
        }
    }
    program.append(&mut below);
    search(upper, program);
}

/// The index for packets that are not for one member. If the group contains sockets of no member,
/// or of one that is leaving, the kernel must not choose: packets that reach these sockets are
/// lost.
fn any_member(table: &Table) -> u32 {
    let staying = || table.members.iter().filter(|member| !member.withdrawn);
    if table.fills_all_indices() && staying().count() == table.members.len() {
        return ANY;
    }
    let known = staying().find_map(|member| member.socket_index);
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

/// Continues if the loaded value equals the operand, otherwise skips instructions.
fn jump_equal(operand: u32, skip: u8) -> Instruction {
    jump_unless(JUMP_EQUAL, operand, skip)
}

fn jump_unless(code: u16, operand: u32, skip: u8) -> Instruction {
    Instruction {
        jump_false: skip,
        ..plain(code, operand)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sharing::process_identity::Identity;
    use crate::sharing::registry_table::Listener;

    /// Runs a program on a packet. Returns its result and the number of executed instructions.
    fn run(program: &[Instruction], packet: &[u8]) -> (u32, usize) {
        let word = |at: u32| {
            let bytes = packet.get(at as usize..).and_then(<[u8]>::first_chunk);
            bytes.map(|bytes| u32::from_be_bytes(*bytes))
        };
        let (mut loaded, mut at, mut steps) = (0, 0, 0);
        loop {
            let it = program[at];
            at += 1;
            steps += 1;
            match it.code {
                LOAD_WORD => loaded = word(it.operand).expect("inside of the packet"),
                LOAD_HALF => loaded = word(it.operand).expect("inside of the packet") >> 16,
                LOAD_LENGTH => loaded = packet.len() as u32,
                AND => loaded &= it.operand,
                SHIFT_RIGHT => loaded >>= it.operand,
                JUMP => at += it.operand as usize,
                RETURN => return (it.operand, steps),
                RETURN_LOADED => return (loaded, steps),
                JUMP_EQUAL | JUMP_AT_LEAST => {
                    let holds = match it.code {
                        JUMP_EQUAL => loaded == it.operand,
                        _ => loaded >= it.operand,
                    };
                    at += usize::from(if holds { it.jump_true } else { it.jump_false });
                }
                other => panic!("instruction {other:#x}"),
            }
        }
    }

    fn members(count: u32) -> Table {
        let mut table = Table::EMPTY;
        for index in 0..count {
            // With gaps, and with indices in another order than blocks.
            let block = NumberBlock::new(0x1000 + index * 0x1000 * (4000 / count), 11).unwrap();
            table.add(Entry {
                block,
                process: Identity { pid: 1, start: 1 },
                socket_index: Some(count - 1 - index),
                round: 0,
                withdrawn: false,
            });
        }
        table
    }

    fn packet(destination: u32) -> Vec<u8> {
        let mut packet = vec![4; 16];
        packet[4..8].copy_from_slice(&destination.to_be_bytes());
        packet
    }

    /// A message to queue pair 1, with two words of its body.
    fn message(attribute: u16, words: [u32; 2]) -> Vec<u8> {
        let mut packet = packet(1);
        packet.resize(BODY as usize, 0);
        packet[ATTRIBUTE as usize..][..2].copy_from_slice(&attribute.to_be_bytes());
        words
            .iter()
            .for_each(|word| packet.extend(word.to_be_bytes()));
        packet
    }

    #[test]
    fn every_number_and_id_is_steered_to_its_owner_within_a_few_steps() {
        for count in [1, 2, 3, 62, 255, 256, 1024, MAX_MEMBERS as u32] {
            let table = members(count);
            let program = program(&table);
            assert!(program.len() <= MAX_INSTRUCTIONS, "{}", program.len());
            for member in &table.members {
                let index = member.socket_index.unwrap();
                let numbers = member.block.qpn_range();
                for number in [numbers.start, numbers.end - 1] {
                    let (found, steps) = run(&program, &packet(number));
                    assert_eq!(found, index);
                    assert!(steps <= 10 + 2 * count.ilog2() as usize + 2, "{steps}");
                }
                let ids = member.block.communication_ids();
                for id in [ids.start, ids.end - 1] {
                    assert_eq!(run(&program, &message(0x14, [5, id])).0, index);
                    assert_eq!(run(&program, &message(0x18, [id, 5])).0, index);
                }
            }
        }
    }

    #[test]
    fn parts_of_a_block_are_steered_to_their_own_members() {
        let whole = NumberBlock::new(0x8_0000, 18).unwrap();
        let other = NumberBlock::new(0xc_0000, 18).unwrap();
        let parts = [1, 2, 5, 7].map(|at| whole.part(at, 15).unwrap());
        let mut table = Table::EMPTY;
        for (index, block) in [whole, other].into_iter().chain(parts).enumerate() {
            table.add(Entry {
                block,
                process: Identity { pid: 1, start: 1 },
                socket_index: Some(index as u32),
                round: 0,
                withdrawn: false,
            });
        }
        for at in 0..16 {
            let number = whole.first() + (at << 14);
            let found = run(&program(&table), &packet(number)).0;
            let owner = table.owner(wire::Qpn::new(number)).unwrap();
            let expected = parts
                .iter()
                .position(|it| it.contains(wire::Qpn::new(number)));
            let expected = expected.map_or(0, |part| part + 2);
            assert_eq!(found, expected as u32, "{number:x}");
            assert_eq!(owner.socket_index, Some(found), "{number:x}");
        }
        assert_eq!(run(&program(&table), &packet(0xc_0000)).0, 1);
        table.member_mut(parts[0]).unwrap().withdrawn = true;
        let left = parts[0].first();
        assert_eq!(run(&program(&table), &packet(left)).0, 0, "the whole");
        assert_eq!(table.owner(wire::Qpn::new(left)).unwrap().block, whole);
    }

    /// The kernel rejects a program that is too long.
    #[test]
    fn listeners_take_no_more_room_than_there_is() {
        let mut table = members(3);
        for service in 0..100 {
            let block = table.members[service as usize % 3].block;
            table.listeners.push(Listener { service, block });
        }
        for room in 1..40 {
            let program = listeners(&table, ANY, room);
            assert!(program.len() <= room, "{} of {room}", program.len());
            let short = packet(1);
            assert_eq!(run(&program, &short).0, ANY);
        }
    }

    #[test]
    fn shared_numbers_and_requests_go_to_any_member() {
        let program = program(&members(62));
        for number in [0, 0x7ff, 0xff_f800, 0xff_ffff] {
            assert_eq!(run(&program, &packet(number)).0, ANY, "{number:x}");
        }
        assert_eq!(run(&program, &packet(1)).0, ANY, "too short for a message");
        assert_eq!(run(&program, &message(0x10, [0x1234_5678, 0])).0, ANY);
        assert_eq!(
            run(&program, &message(0x17, [0x1234_5678, 0xffff_0000])).0,
            ANY
        );
        let probe = probe::Probe {
            socket_index: 77,
            round: 3,
        };
        assert_eq!(run(&program, &probe.bytes()).0, 77);
    }

    /// A request for a service.
    fn request(attribute: u16, service: u64) -> Vec<u8> {
        let mut packet = message(attribute, [0x1234_5678, 0]);
        packet.extend(service.to_be_bytes());
        packet
    }

    #[test]
    fn a_request_goes_to_the_member_that_listens_for_its_service() {
        let mut table = members(62);
        for (service, member) in [(0x0106_1d2f, 3), (0x0106_1d30, 40), (0x0111_1d2f, 5)] {
            let block = table.members[member].block;
            table.listeners.push(Listener { service, block });
        }
        let steered = |table: &Table, packet: &[u8]| run(&program(table), packet).0;
        for (attribute, service, member) in [
            (0x10, 0x0106_1d2f, 3),
            (0x10, 0x0106_1d30, 40),
            (0x17, 0x0111_1d2f, 5),
        ] {
            let index = steered(&table, &request(attribute, service));
            assert_eq!(Some(index), table.members[member].socket_index);
        }
        assert_eq!(steered(&table, &request(0x10, 0x0106_0001)), ANY);
        let short = message(0x10, [0x1234_5678, 0]);
        assert_eq!(steered(&table, &short), ANY, "too short for a service");
        table.members[3].withdrawn = true;
        let fallback = any_member(&table);
        assert_eq!(steered(&table, &request(0x10, 0x0106_1d2f)), fallback);
    }

    #[test]
    fn many_members_with_many_services_fit_into_a_program() {
        let mut table = members(MAX_MEMBERS as u32);
        let listener = |(service, member): (u64, &Entry)| Listener {
            service,
            block: member.block,
        };
        table.listeners = (0x0106_0400..).zip(&table.members).map(listener).collect();
        let program = program(&table);
        assert!(program.len() <= MAX_INSTRUCTIONS, "{}", program.len());
        let last = table.members.last().unwrap();
        let found = run(&program, &packet(last.block.first())).0;
        assert_eq!(Some(found), last.socket_index);
        let rest = run(&program, &request(0x10, 0x0106_ffff)).0;
        assert_eq!(rest, ANY);
    }

    #[test]
    fn a_leaving_member_gets_no_more_packets() {
        let mut table = members(3);
        let leaving = table.members[1];
        table.members[1].withdrawn = true;
        let left = run(&program(&table), &packet(leaving.block.first())).0;
        assert_ne!(Some(left), leaving.socket_index);
        let request = run(&program(&table), &message(0x10, [7, 0])).0;
        assert_eq!(Some(request), table.members[0].socket_index);
    }

    #[test]
    fn congestion_marks_before_the_destination_are_ignored() {
        let table = members(3);
        let program = program(&table);
        for member in &table.members {
            for marks in [0x8000_0000, 0x4000_0000, 0xff00_0000] {
                let marked = packet(member.block.first() | marks);
                assert_eq!(
                    Some(run(&program, &marked).0),
                    member.socket_index,
                    "{marks:x}"
                );
            }
        }
    }

    #[test]
    fn requests_go_to_a_known_member_while_the_group_has_other_sockets() {
        let mut table = members(3);
        // A socket that belongs to no member has index 1.
        let moved = table
            .members
            .iter_mut()
            .find(|it| it.socket_index == Some(1));
        moved.unwrap().socket_index = Some(3);
        let request = run(&program(&table), &message(0x10, [7, 0])).0;
        assert_eq!(Some(request), table.members[0].socket_index);
    }
}
