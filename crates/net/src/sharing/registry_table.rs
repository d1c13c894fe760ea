//! The content of the registry: the members of an address and their services.

use std::collections::{HashMap, HashSet};
use std::fmt::{self, Write};
use std::ops::Range;

use wire::Qpn;

use super::number_block::NumberBlock;
use super::process_identity::Identity;

/// The first word of a registry file: what it is, and the version of its format.
const FILE_SIGNATURE: &str = "roci-registry-3";

/// How the first word begins in all versions.
const ANY_SIGNATURE: &str = "roci-registry-";

/// How many released blocks are kept from reuse, so that late packets do not reach a new member.
const MAX_RETIRED_BLOCKS: usize = 64;

/// One member. A process has one for each lane of each device that it has open at the address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) block: NumberBlock,
    pub(super) process: Identity,
    /// Its last known index in the group of sockets.
    pub(super) socket_index: Option<u32>,
    /// The round of probes in which the index was recorded.
    pub(super) round: u64,
    /// Whether it is leaving: it still has its index, but no packets are steered to it.
    pub(super) withdrawn: bool,
}

/// A service that a member listens for, or has reserved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Listener {
    pub(super) service: u64,
    pub(super) block: NumberBlock,
}

/// The members of one address and their services.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Table {
    /// The latest round of probes.
    pub(super) round: u64,
    /// In the order of their blocks. Those of a process may be parts of another block of the same process; other blocks do
    /// not overlap.
    pub(super) members: Vec<Entry>,
    /// In the order in which they were claimed.
    pub(super) listeners: Vec<Listener>,
    /// Released blocks, the latest last.
    pub(super) retired: Vec<NumberBlock>,
}

/// The index of a member, as it is appended to the registry during a round of probes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) block: NumberBlock,
    pub(super) round: u64,
    pub(super) socket_index: u32,
    /// How many members have recorded their index in this round, including this one.
    pub(super) count: usize,
    /// How many members there are.
    pub(super) members: usize,
}

impl Seen {
    /// The maximum length of a line in bytes.
    pub(super) const LONGEST: usize = 128;

    /// Formats the line.
    pub(super) fn print(&self) -> String {
        let Self {
            block,
            socket_index,
            ..
        } = self;
        let (round, count, members) = (self.round, self.count, self.members);
        format!("seen {block} round {round:016x} index {socket_index} count {count} of {members}\n")
    }

    /// Parses a line; `None` if it is of another kind.
    pub(super) fn parse(line: &str) -> Option<Self> {
        let mut words = line.strip_prefix("seen ")?.split_ascii_whitespace();
        Some(Self {
            block: words.next()?.parse().ok()?,
            round: u64::from_str_radix(words.nth(1)?, 16).ok()?,
            socket_index: words.nth(1)?.parse().ok()?,
            count: words.nth(1)?.parse().ok()?,
            members: words.nth(1)?.parse().ok()?,
        })
    }
}

impl Table {
    pub(super) const EMPTY: Table = Table {
        round: 0,
        members: Vec::new(),
        listeners: Vec::new(),
        retired: Vec::new(),
    };

    /// The member that has exactly this block.
    pub(super) fn member(&self, block: NumberBlock) -> Option<&Entry> {
        self.position(block).ok().map(|at| &self.members[at])
    }

    pub(super) fn member_mut(&mut self, block: NumberBlock) -> Option<&mut Entry> {
        self.position(block).ok().map(|at| &mut self.members[at])
    }

    fn position(&self, block: NumberBlock) -> Result<usize, usize> {
        self.members.binary_search_by_key(&block, |it| it.block)
    }

    /// The member that owns a queue pair number: of those that stay, the one with the smallest block around it.
    pub(super) fn owner(&self, number: Qpn) -> Option<&Entry> {
        let number = number.value();
        let after = (self.members).partition_point(|entry| entry.block.first() <= number);
        let below = self.members[..after].iter().rev();
        let near = below.take_while(|it| number - it.block.first() < 1 << NumberBlock::MAX_BITS);
        let mut around = near.filter(|it| it.block.contains(Qpn::new(number)));
        around.find(|it| !it.withdrawn)
    }

    /// The members whose blocks are parts of a block.
    pub(super) fn parts_of(&self, block: NumberBlock) -> impl Iterator<Item = &Entry> {
        let members = self.members.iter();
        members.filter(move |it| block.encloses(it.block) && !it.withdrawn)
    }

    /// Whether a block or a part of it belongs to a member.
    pub(super) fn is_taken(&self, block: NumberBlock) -> bool {
        self.members.iter().any(|it| it.block.overlaps(block))
    }

    pub(super) fn add(&mut self, entry: Entry) {
        let at = self.position(entry.block).unwrap_or_else(|at| at);
        self.members.insert(at, entry);
    }

    pub(super) fn remove(&mut self, block: NumberBlock) {
        self.remove_all(&HashSet::from([block]));
    }

    fn remove_all(&mut self, blocks: &HashSet<NumberBlock>) {
        let given_back = self.members.iter().map(|entry| entry.block);
        (self.retired).extend(given_back.filter(|block| blocks.contains(block)));
        let too_many = self.retired.len().saturating_sub(MAX_RETIRED_BLOCKS);
        self.retired.drain(..too_many);
        self.members.retain(|entry| !blocks.contains(&entry.block));
        (self.listeners).retain(|listener| !blocks.contains(&listener.block));
    }

    /// Removes a member whose socket is about to be closed. The member with the last index takes its index. Returns
    /// which one that is, or `None` if the index of the leaving one is not known.
    ///
    /// Members of a stopped process do not record their indices. They have those that are left.
    pub(super) fn close_gap(&mut self, leaver: NumberBlock) -> Option<GapClosed> {
        let round = self.round;
        let is_recorded = |entry: &&mut Entry| entry.round == round;
        let is_plausible = self.may_fill_all_indices();
        let gap = self.member_mut(leaver).filter(is_recorded);
        let gap = gap.and_then(|entry| entry.socket_index);
        self.remove(leaver);
        let (true, Some(gap)) = (is_plausible, gap) else {
            return None;
        };
        let last = self.members.len() as u32;
        if gap == last {
            return Some(GapClosed::NobodyMoves);
        }
        let mut recorded = self.members.iter_mut().filter(is_recorded);
        let Some(moved) = recorded.find(|entry| entry.socket_index == Some(last)) else {
            return Some(GapClosed::UnrecordedMoves(gap));
        };
        moved.socket_index = Some(gap);
        Some(GapClosed::Moves(moved.block, gap))
    }

    /// Removes members whose processes have ended. Returns their blocks.
    pub(super) fn remove_dead_members(&mut self) -> HashSet<NumberBlock> {
        let mut alive = HashMap::new();
        let mut is_alive = |it: Identity| *alive.entry(it).or_insert_with(|| it.is_alive());
        let dead = self.members.iter();
        let dead = dead.filter(|entry| !is_alive(entry.process));
        let dead: HashSet<NumberBlock> = dead.map(|entry| entry.block).collect();
        if !dead.is_empty() {
            self.remove_all(&dead);
        }
        dead
    }

    /// How many processes the members belong to.
    pub(super) fn processes(&self) -> usize {
        let processes = self.members.iter().map(|entry| entry.process);
        processes.collect::<HashSet<_>>().len()
    }

    /// Whether every member has recorded its index in the latest round, and the indices have no gap.
    #[cfg(test)]
    pub(super) fn is_settled(&self) -> bool {
        self.members.iter().all(|entry| entry.round == self.round) && self.fills_all_indices()
    }

    /// Whether the members' indices are 0, 1, 2… without a gap.
    pub(super) fn fills_all_indices(&self) -> bool {
        self.fill_indices(|_| true) == Some(self.members.len())
    }

    /// Whether a new socket gets the index after those of all members, as far as is known: no index
    /// of the latest round contradicts it.
    pub(super) fn may_fill_all_indices(&self) -> bool {
        self.fill_indices(|entry| entry.round == self.round)
            .is_some()
    }

    /// How many members `which` selects, if their indices are distinct and below the number of all
    /// members; otherwise `None`.
    fn fill_indices(&self, which: impl Fn(&Entry) -> bool) -> Option<usize> {
        let mut filled = vec![false; self.members.len()];
        let mut count = 0;
        for entry in self.members.iter().filter(|entry| which(entry)) {
            let taken = filled.get_mut(entry.socket_index? as usize)?;
            if std::mem::replace(taken, true) {
                return None;
            }
            count += 1;
        }
        Some(count)
    }

    /// Formats the table, with one line per entry. People can read it, too.
    pub(super) fn print(&self, boot: &str) -> String {
        let mut text = String::with_capacity(128 + 96 * self.members.len());
        self.print_lines(boot, &mut text)
            .expect("a string takes everything");
        text
    }

    fn print_lines(&self, boot: &str, text: &mut String) -> fmt::Result {
        writeln!(text, "{FILE_SIGNATURE} {boot}")?;
        writeln!(text, "round {:016x}", self.round)?;
        for block in &self.retired {
            writeln!(text, "retired {block}")?;
        }
        for Listener { service, block } in &self.listeners {
            writeln!(text, "listener {service:016x} member {block}")?;
        }
        for entry in &self.members {
            let Identity { pid, start } = entry.process;
            let kind = if entry.withdrawn { "leaver" } else { "member" };
            write!(text, "{kind} {} pid {pid} start {start}", entry.block)?;
            match entry.socket_index {
                Some(index) => writeln!(text, " round {:016x} index {index}", entry.round)?,
                None => writeln!(text, " round {:016x}", entry.round)?,
            }
        }
        Ok(())
    }

    /// The round in the first lines of a table that the same version wrote after the same boot.
    pub(super) fn parse_round(text: &str, boot: &str) -> Option<u64> {
        let mut lines = text.lines();
        let writer = writer(lines.next()?)?;
        let round = lines.next()?.strip_prefix("round ")?;
        let round = u64::from_str_radix(round, 16).ok()?;
        (writer == boot).then_some(round)
    }

    /// Parses a table; `None` if it is of another version. The entries of another boot are ignored,
    /// because their processes have ended. A file that is no table of any version is replaced like an empty one: its
    /// members enter again.
    pub(super) fn parse(text: &str, boot: &str) -> Option<Self> {
        let mut table = Self::EMPTY;
        let mut lines = text.lines();
        let Some(heading) = lines.next() else {
            return Some(table);
        };
        if !heading.starts_with(ANY_SIGNATURE) {
            return Some(table);
        }
        if writer(heading)? == boot {
            lines.for_each(|line| _ = table.parse_line(line));
        }
        table.put_in_order();
        Some(table)
    }

    /// Sorts the members by block and drops those that overlap: another program may have written
    /// the file.
    fn put_in_order(&mut self) {
        self.members.sort_by_key(|entry| entry.block);
        let mut whole: Option<Entry> = None;
        let (mut behind_whole, mut behind_part) = (0, 0);
        self.members.retain(|entry| {
            let Range { start, end } = entry.block.qpn_range();
            let is_part = whole.is_some_and(|whole| {
                whole.block.encloses(entry.block) && whole.process == entry.process
            });
            let is_free = start >= if is_part { behind_part } else { behind_whole };
            if is_free && !is_part {
                (whole, behind_whole) = (Some(*entry), end);
            } else if is_free {
                behind_part = end;
            }
            is_free
        });
    }

    fn parse_line(&mut self, line: &str) -> Option<()> {
        let (kind, rest) = line.split_once(' ')?;
        let mut words = rest.split_ascii_whitespace();
        match kind {
            "round" => self.round = u64::from_str_radix(words.next()?, 16).ok()?,
            "member" | "leaver" => self.members.push(Entry {
                block: words.next()?.parse().ok()?,
                process: Identity {
                    pid: words.nth(1)?.parse().ok()?,
                    start: words.nth(1)?.parse().ok()?,
                },
                round: u64::from_str_radix(words.nth(1)?, 16).ok()?,
                socket_index: words.nth(1).and_then(|index| index.parse().ok()),
                withdrawn: kind == "leaver",
            }),
            "listener" => self.listeners.push(Listener {
                service: u64::from_str_radix(words.next()?, 16).ok()?,
                block: words.nth(1)?.parse().ok()?,
            }),
            "retired" if self.retired.len() < MAX_RETIRED_BLOCKS => {
                self.retired.push(words.next()?.parse().ok()?);
            }
            // These lines come after the members, which are sorted.
            "seen" => {
                let seen = Seen::parse(line)?;
                let entry = self.member_mut(seen.block)?;
                (entry.socket_index, entry.round) = (Some(seen.socket_index), seen.round);
            }
            _ => {}
        }
        Some(())
    }
}

/// The boot that the first line of a table names; `None` if another version wrote it.
fn writer(heading: &str) -> Option<&str> {
    let (signature, boot) = heading.split_once(' ').unwrap_or((heading, ""));
    (signature == FILE_SIGNATURE).then_some(boot.trim())
}

/// Which member moves to which index when another one leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GapClosed {
    /// The leaving member had the last index.
    NobodyMoves,
    /// This member.
    Moves(NumberBlock, u32),
    /// One that has not recorded its index.
    UnrecordedMoves(u32),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(number: u32) -> NumberBlock {
        NumberBlock::new(number << 12, 12).unwrap()
    }

    fn entry(number: u32, socket_index: Option<u32>) -> Entry {
        Entry {
            block: block(number),
            process: Identity {
                pid: number,
                start: 99,
            },
            socket_index,
            round: 5,
            withdrawn: false,
        }
    }

    fn table(entries: &[Entry]) -> Table {
        let mut table = Table {
            round: 5,
            ..Table::EMPTY
        };
        entries.iter().for_each(|entry| table.add(*entry));
        table
    }

    #[test]
    fn a_printed_table_parses_to_the_same_table() {
        let mut table = table(&[entry(62, None), entry(3, Some(1)), entry(4, None)]);
        table.members[0].withdrawn = true;
        table.retired.push(block(9));
        table.listeners.push(Listener {
            service: 0x0106_1234,
            block: block(1),
        });
        let mut text = table.print("this-boot");
        assert_eq!(Table::parse_round(&text, "this-boot"), Some(5));
        assert_eq!(Table::parse_round(&text, "other-boot"), None);
        assert_eq!(Table::parse(&text, "other-boot"), Some(Table::EMPTY));
        let seen = Seen {
            block: block(62),
            round: 6,
            socket_index: 17,
            count: 1,
            members: 3,
        };
        assert_eq!(Seen::parse(seen.print().trim_end()), Some(seen));
        assert!(seen.print().len() < Seen::LONGEST);
        text.push_str(&seen.print());
        println!("{text}");
        (table.members[2].socket_index, table.members[2].round) = (Some(17), 6);
        assert_eq!(Table::parse(&text, "this-boot"), Some(table));
        assert_eq!(Table::parse("", "this-boot"), Some(Table::EMPTY));
    }

    #[test]
    fn only_a_table_of_another_version_is_kept() {
        for version in ["roci-registry-2 b", "roci-registry-30 b", "roci-registry-4"] {
            assert_eq!(Table::parse(version, "b"), None, "{version}");
        }
        for foreign in ["something else", "\u{fffd}\0", "\n", "roci-registry-3"] {
            assert_eq!(Table::parse(foreign, "b"), Some(Table::EMPTY), "{foreign}");
        }
    }

    #[test]
    fn a_damaged_table_causes_no_panic() {
        let text = table(&[entry(1, Some(0)), entry(2, Some(1))]).print("b");
        for end in 0..text.len() {
            let _ = Table::parse(&text[..end], "b");
        }
        let members = Table::parse(&text.replace("pid ", "pid x"), "b")
            .unwrap()
            .members;
        assert_eq!(members, []);
        // Of overlapping blocks, the first one counts, unless the other is a part of the same process.
        let blocks = |text: &str| {
            let members = Table::parse(text, "b").unwrap().members;
            members.iter().map(|it| it.block).collect::<Vec<_>>()
        };
        let twice = format!("{text}{}", text.replace("001000-12", "001800-13"));
        let part = NumberBlock::new(0x1800, 11).unwrap();
        assert_eq!(blocks(&twice), [block(1), part, block(2)]);
        let [first, second] = ["001000-12 pid 1", "001800-13 pid 7"];
        let foreign = format!("{text}{}", text.replace(first, second));
        assert_eq!(blocks(&foreign), [block(1), block(2)]);
    }

    #[test]
    fn settled_means_that_all_indices_are_known_and_taken() {
        assert!(table(&[]).is_settled());
        assert!(table(&[entry(9, Some(1)), entry(4, Some(0))]).is_settled());
        assert!(!table(&[entry(9, Some(2)), entry(4, Some(0))]).is_settled());
        assert!(!table(&[entry(9, Some(0)), entry(4, Some(0))]).is_settled());
        assert!(!table(&[entry(9, None), entry(4, Some(0))]).is_settled());
        let mut late = table(&[entry(9, Some(0))]);
        late.round += 1;
        assert!(!late.is_settled() && late.fills_all_indices());
    }

    #[test]
    fn only_an_index_of_the_latest_round_can_be_beyond_the_last() {
        let mut table = table(&[entry(9, Some(5)), entry(4, Some(0))]);
        assert!(!table.may_fill_all_indices());
        table.members[1].round = 4;
        assert!(table.may_fill_all_indices() && !table.fills_all_indices());
    }

    #[test]
    fn the_last_member_takes_the_index_of_a_leaving_one() {
        let entries = [entry(1, Some(2)), entry(2, Some(0)), entry(3, Some(1))];
        let mut settled = table(&entries);
        let closed = settled.close_gap(block(2));
        assert_eq!(closed, Some(GapClosed::Moves(block(1), 0)));
        assert!(settled.is_settled());
        let closed = settled.close_gap(block(3));
        assert_eq!(closed, Some(GapClosed::NobodyMoves));
        assert!(settled.is_settled() && settled.retired == [block(2), block(3)]);
        let mut unsettled = table(&entries);
        unsettled.round += 1;
        assert_eq!(unsettled.close_gap(block(2)), None);
        assert_eq!(unsettled.members.len(), 2);
    }

    /// A stopped process has not taken part in the latest round.
    #[test]
    fn a_gap_is_closed_beside_a_stopped_member() {
        let entries = [
            entry(1, Some(0)),
            entry(2, Some(1)),
            entry(3, Some(2)),
            entry(4, Some(3)),
        ];
        let stopped = |number| {
            let mut table = table(&entries);
            table.round += 1;
            let round = table.round;
            let others = table.members.iter_mut();
            let others = others.filter(|entry| entry.block != block(number));
            others.for_each(|entry| entry.round = round);
            table
        };
        let mut first = stopped(1);
        let closed = first.close_gap(block(2));
        assert_eq!(closed, Some(GapClosed::Moves(block(4), 1)));
        let mut last = stopped(4);
        let closed = last.close_gap(block(2));
        assert_eq!(closed, Some(GapClosed::UnrecordedMoves(1)));
        assert_eq!(last.member(block(3)).unwrap().socket_index, Some(2));
        let mut contradictory = stopped(1);
        contradictory.member_mut(block(3)).unwrap().socket_index = Some(1);
        assert_eq!(contradictory.close_gap(block(2)), None);
    }

    #[test]
    fn a_number_belongs_to_the_block_it_lies_in() {
        let mut table = table(&[entry(1, None), entry(4, None)]);
        let owner = |table: &Table, number| table.owner(Qpn::new(number)).map(|it| it.block);
        for (number, expected) in [
            (0xfff, None),
            (0x1000, Some(block(1))),
            (0x1fff, Some(block(1))),
            (0x2000, None),
            (0x4fff, Some(block(4))),
            (0xff_ffff, None),
        ] {
            assert_eq!(owner(&table, number), expected, "{number:x}");
        }
        table.members[0].withdrawn = true;
        assert_eq!(owner(&table, 0x1000), None);
    }

    #[test]
    fn processes_are_counted_once() {
        let mut table = table(&[entry(4, None), entry(9, None), entry(20, None)]);
        table.members[1].process = table.members[0].process;
        assert_eq!(table.processes(), 2);
    }

    #[test]
    fn only_the_latest_retired_blocks_are_remembered() {
        let mut table = table(&[]);
        for number in 1..=MAX_RETIRED_BLOCKS as u32 + 9 {
            table.add(entry(number, None));
            table.remove(block(number));
        }
        assert_eq!(table.retired.len(), MAX_RETIRED_BLOCKS);
        assert_eq!(
            table.retired.last(),
            Some(&block(MAX_RETIRED_BLOCKS as u32 + 9))
        );
        let text = table.print("b");
        let lines = (100..200).map(|number| format!("retired {}\n", block(number)));
        let longer = text + &lines.collect::<String>();
        assert_eq!(
            Table::parse(&longer, "b").unwrap().retired.len(),
            MAX_RETIRED_BLOCKS
        );
    }

    #[test]
    fn services_go_with_the_member_that_listens() {
        let mut table = table(&[entry(1, None), entry(2, None)]);
        let listener = |number: u32| Listener {
            service: number.into(),
            block: block(number),
        };
        table.listeners = vec![listener(1), listener(2)];
        table.remove(block(1));
        assert_eq!(table.listeners, [listener(2)]);
    }
}
