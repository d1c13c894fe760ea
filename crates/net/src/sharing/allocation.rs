//! Chooses the number block of a new member.
//!
//! A member that joins when `k` members are present gets about `1 / (8 * (k + 8))` of all numbers.
//! The i-th oldest present member joined when at least `i - 1` were present, so the shares of 1,024
//! members add up to less than two thirds of all numbers. All blocks are multiples of the smallest,
//! so there is always room for one of these.
//!
//! The block is chosen at random among the free ones, so that its numbers can't be guessed. Blocks
//! that were released recently are avoided, so that late packets for dead members don't reach a new
//! one.

use super::number_block::NumberBlock;
use super::registry_table::Table;

/// How many numbers there are.
const NUMBERS: u32 = 1 << 24;

/// The size of the block for a member that joins when there are this many members.
fn wanted_bits(members: usize) -> u32 {
    let share = NUMBERS / (8 * (members as u32 + 8));
    share
        .max(1)
        .ilog2()
        .clamp(NumberBlock::LEAST_BITS, NumberBlock::MAX_BITS)
}

/// A free block of at most `2^most_bits` numbers; `random` is any number.
pub(super) fn free_block(table: &Table, most_bits: u32, random: u64) -> Option<NumberBlock> {
    let present: Vec<_> = table.members.iter().map(|entry| entry.block).collect();
    let mut avoided = present.clone();
    avoided.extend(&table.retired);
    avoided.sort_unstable();
    let most = wanted_bits(present.len()).min(most_bits);
    let sizes = (NumberBlock::LEAST_BITS..=most).rev();
    let fresh = sizes.clone().find_map(|bits| pick(&avoided, bits, random));
    // If there is no other block, one that was released recently is used.
    fresh.or_else(|| sizes.clone().find_map(|bits| pick(&present, bits, random)))
}

/// One of the free blocks of a size. `taken` is sorted.
fn pick(taken: &[NumberBlock], bits: u32, random: u64) -> Option<NumberBlock> {
    let gaps = || gaps(taken).map(|(from, to)| free_in(from, to, bits));
    let count: u32 = gaps().map(|(_, count)| count).sum();
    let mut chosen = (random % u64::from(count.max(1))) as u32;
    for (first, count) in gaps() {
        if chosen < count {
            return NumberBlock::new(first + (chosen << bits), bits);
        }
        chosen -= count;
    }
    None
}

/// The gaps between the taken blocks, which may overlap.
fn gaps(taken: &[NumberBlock]) -> impl Iterator<Item = (u32, u32)> {
    let end = NumberBlock::SPACE.end;
    let blocks = taken.iter().map(|block| block.qpn_range());
    let blocks = blocks.chain(std::iter::once(end..end));
    blocks.scan(NumberBlock::SPACE.start, |covered, block| {
        let gap = (*covered, block.start);
        *covered = block.end.max(*covered);
        Some(gap)
    })
}

/// The first aligned block between two numbers, and how many there are.
fn free_in(from: u32, to: u32, bits: u32) -> (u32, u32) {
    let first = from.next_multiple_of(1 << bits);
    (first, to.saturating_sub(first) >> bits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sharing::process_identity::Identity;
    use crate::sharing::registry_table::Entry;

    fn entry(block: NumberBlock) -> Entry {
        Entry {
            block,
            process: Identity { pid: 7, start: 9 },
            socket_index: None,
            round: 0,
            withdrawn: false,
        }
    }

    fn join(table: &mut Table) -> NumberBlock {
        let random = getrandom::u64().unwrap();
        let block = free_block(table, 18, random).expect("room for one more");
        let others = table.members.iter();
        assert!(others.clone().all(|it| !it.block.overlaps(block)));
        table.add(entry(block));
        block
    }

    #[test]
    fn blocks_are_smaller_the_more_members_there_are() {
        let mut table = Table::EMPTY;
        assert_eq!(join(&mut table).bits(), 18);
        for _ in 1..64 {
            assert!(join(&mut table).bits() >= 14);
        }
        for _ in 64..1024 {
            assert!(join(&mut table).bits() >= 11);
        }
    }

    #[test]
    fn at_least_1024_members_fit_after_any_departures() {
        let mut table = Table::EMPTY;
        for _ in 0..1024 {
            join(&mut table);
        }
        for turn in 0..5_000_usize {
            // The oldest members have the largest blocks: the youngest leave first, then any.
            let leaver = turn * 7919 % table.members.len();
            table.remove(table.members[leaver].block);
            join(&mut table);
        }
    }

    #[test]
    fn recently_released_blocks_are_reused_last() {
        let mut table = Table::EMPTY;
        for _ in 0..2_000 {
            let block = join(&mut table);
            table.remove(block);
            let next = free_block(&table, 18, getrandom::u64().unwrap()).unwrap();
            assert!(!next.overlaps(block));
        }
        // Without another choice it is used again.
        let mut full = Table::EMPTY;
        let units = (0x800..0xff_f800).step_by(0x800);
        let blocks = units.map(|first| NumberBlock::new(first, 11).unwrap());
        blocks.for_each(|block| full.add(entry(block)));
        assert_eq!(free_block(&full, 18, 5), None);
        let only = NumberBlock::new(0x12_3000, 11).unwrap();
        full.remove(only);
        assert_eq!(free_block(&full, 18, 5), Some(only));
    }

    #[test]
    fn every_free_block_can_be_chosen() {
        let table = Table::EMPTY;
        let blocks: std::collections::HashSet<_> = (0..1000)
            .map(|random| free_block(&table, 18, random).unwrap())
            .collect();
        // The first and the last of the 64 are not available.
        assert_eq!(blocks.len(), 62);
    }

    #[test]
    fn a_block_is_not_larger_than_asked_for() {
        for bits in NumberBlock::LEAST_BITS..=NumberBlock::MAX_BITS {
            let block = free_block(&Table::EMPTY, bits, 12_345).unwrap();
            assert_eq!(block.bits(), bits);
        }
    }
}
