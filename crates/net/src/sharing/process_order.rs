//! Which processes of a table check which others.
//!
//! The processes have an order: that of their first members in the table. Each one checks those behind it.

use std::collections::HashSet;

use super::number_block::NumberBlock;
use super::process_identity::Identity;
use super::registry_table::Table;

/// How many processes notice the end of another one at once: two, because one of them may be stopped.
const EXIT_WATCHERS: usize = 2;

/// The processes of a table, each with its first member.
#[derive(Debug)]
pub(super) struct ProcessOrder(Vec<(Identity, NumberBlock)>);

impl ProcessOrder {
    pub(super) fn of(table: &Table) -> Self {
        let mut known = HashSet::new();
        let members = table.members.iter();
        let first = members.filter(|entry| known.insert(entry.process));
        Self(first.map(|entry| (entry.process, entry.block)).collect())
    }

    /// The other processes, from the one after this on.
    fn behind(
        &self,
        process: Identity,
    ) -> impl DoubleEndedIterator<Item = &(Identity, NumberBlock)> {
        let at = self.0.iter().position(|(it, _)| *it == process);
        let (before, after) = match at {
            Some(at) => (&self.0[..at], &self.0[at + 1..]),
            None => (&self.0[..0], &self.0[..]),
        };
        after.iter().chain(before)
    }

    /// The processes that a member of a process checks in its `turn`-th check: the next process, and each of the others in
    /// turn. To check only the next one is not enough, because a stopped process checks no other.
    pub(super) fn watched(&self, process: Identity, turn: usize) -> impl Iterator<Item = Identity> {
        let others = self.behind(process).count();
        let one_of_all = turn.checked_rem(others);
        let one_of_all = one_of_all.and_then(|at| self.behind(process).nth(at));
        let watched = self.behind(process).next().into_iter().chain(one_of_all);
        watched.map(|(process, _)| *process)
    }

    /// The processes whose ends a member must notice at once: the next ones after its own. Of a process, the first member
    /// does that.
    pub(super) fn watched_for_exit(&self, block: NumberBlock, process: Identity) -> Vec<Identity> {
        if !self.0.contains(&(process, block)) {
            return Vec::new();
        }
        let next = self.behind(process).take(EXIT_WATCHERS);
        next.map(|(process, _)| *process).collect()
    }

    /// The members that must notice the end of a process at once.
    pub(super) fn watchers(&self, process: Identity) -> Vec<NumberBlock> {
        if !self.0.iter().any(|(it, _)| *it == process) {
            return Vec::new();
        }
        let before = self.behind(process).rev().take(EXIT_WATCHERS);
        before.map(|(_, block)| *block).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sharing::registry_table::Entry;

    fn block(number: u32) -> NumberBlock {
        NumberBlock::new(number << 12, 12).unwrap()
    }

    fn process(pid: u32) -> Identity {
        Identity { pid, start: 99 }
    }

    /// Members by the numbers of their blocks, and their processes.
    fn order(members: &[(u32, u32)]) -> ProcessOrder {
        let mut table = Table::EMPTY;
        for (number, pid) in members {
            table.add(Entry {
                block: block(*number),
                process: process(*pid),
                socket_index: None,
                round: 5,
                withdrawn: false,
            });
        }
        ProcessOrder::of(&table)
    }

    #[test]
    fn each_process_is_watched_by_the_two_before_it() {
        let order = order(&[(1, 1), (2, 2), (3, 3), (4, 1), (5, 5)]);
        for watched in [1, 2, 3, 5] {
            let watchers = order.watchers(process(watched));
            assert_eq!(watchers.len(), 2);
            for other in [1, 2, 3, 5] {
                let for_exit = order.watched_for_exit(block(other), process(other));
                assert_eq!(
                    for_exit.contains(&process(watched)),
                    watchers.contains(&block(other))
                );
            }
        }
        let watched = order.watched_for_exit(block(5), process(5));
        assert_eq!(watched, [process(1), process(2)]);
        assert_eq!(
            order.watched_for_exit(block(4), process(1)),
            [],
            "not its first member"
        );
        assert_eq!(order.watchers(process(77)), []);
    }

    #[test]
    fn each_member_checks_the_next_process_and_all_others_in_turn() {
        let order = order(&[(4, 4), (9, 4), (20, 20), (30, 30)]);
        let watched = |pid, turn| -> Vec<_> { order.watched(process(pid), turn).collect() };
        assert_eq!(watched(4, 0), [process(20), process(20)]);
        assert_eq!(watched(4, 1), [process(20), process(30)]);
        assert_eq!(watched(4, 2), [process(20), process(20)]);
        assert_eq!(watched(20, 1), [process(30), process(4)]);
        assert_eq!(watched(30, usize::MAX)[0], process(4));
        assert_eq!(watched(77, 0)[0], process(4), "also one that is no member");
    }

    #[test]
    fn a_single_process_checks_no_other() {
        assert_eq!(order(&[(4, 4), (5, 4)]).watched(process(4), 7).count(), 0);
    }
}
