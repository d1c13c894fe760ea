//! Who shares an address: the content of the registry.

use std::fmt::{self, Write};

use super::process::Identity;
use super::slice::Slice;

/// The first word of the file and the version of what follows.
const HEADING: &str = "roci-registry-1";

/// One process, or one of its shares if it joined several times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) slice: Slice,
    pub(super) process: Identity,
    /// Its place in the group of sockets, as it was last known.
    pub(super) place: Option<u32>,
    /// In which round of probes the place was seen.
    pub(super) round: u64,
}

/// A service that a member listens for, or has reserved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Listener {
    pub(super) service: u64,
    pub(super) slice: Slice,
}

/// The members of one address and what they listen for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Table {
    /// The latest round of probes.
    pub(super) round: u64,
    /// The slice that was given away last. The next is given away next, so that late packets for
    /// the dead don't reach the newborn.
    pub(super) last: Slice,
    /// In the order of their slices.
    pub(super) members: Vec<Entry>,
    /// In the order in which they were claimed.
    pub(super) listeners: Vec<Listener>,
}

impl Table {
    pub(super) const EMPTY: Table = Table {
        round: 0,
        last: Slice::LAST,
        members: Vec::new(),
        listeners: Vec::new(),
    };

    pub(super) fn member(&self, slice: Slice) -> Option<&Entry> {
        self.members.iter().find(|entry| entry.slice == slice)
    }

    pub(super) fn add(&mut self, entry: Entry) {
        self.members.push(entry);
        self.members.sort_by_key(|entry| entry.slice);
    }

    pub(super) fn remove(&mut self, slice: Slice) {
        self.members.retain(|entry| entry.slice != slice);
        self.listeners.retain(|listener| listener.slice != slice);
    }

    /// Removes those that don't run any more, and says who they were.
    pub(super) fn bury_dead(&mut self) -> Vec<Slice> {
        let dead = self.members.iter();
        let dead = dead.filter(|entry| !entry.process.is_alive());
        let dead: Vec<Slice> = dead.map(|entry| entry.slice).collect();
        dead.iter().for_each(|slice| self.remove(*slice));
        dead
    }

    /// A slice that nobody has.
    pub(super) fn free_slice(&self) -> Option<Slice> {
        let candidates = std::iter::successors(Some(self.last.next()), |slice| Some(slice.next()));
        (candidates.take(Slice::COUNT)).find(|slice| self.member(*slice).is_none())
    }

    /// The member after this one, and the first after the last: each watches over the next.
    pub(super) fn neighbour(&self, slice: Slice) -> Option<&Entry> {
        let after = self.members.iter().find(|entry| entry.slice > slice);
        let next = after.or(self.members.first());
        next.filter(|entry| entry.slice != slice)
    }

    /// Whether every member has seen its place in the latest round and no place is left over.
    pub(super) fn is_settled(&self) -> bool {
        self.members.iter().all(|entry| entry.round == self.round) && self.fills_all_places()
    }

    /// Whether the members' places are 0, 1, 2… without a gap.
    pub(super) fn fills_all_places(&self) -> bool {
        let mut places: Vec<_> = self.members.iter().map(|entry| entry.place).collect();
        places.sort_unstable();
        places
            .into_iter()
            .eq((0..).map(Some).take(self.members.len()))
    }

    /// One line each, for people as well as for us.
    pub(super) fn print(&self, boot: &str) -> String {
        let mut text = format!("{HEADING} {boot}\n");
        self.print_lines(&mut text)
            .expect("a string takes everything");
        text
    }

    fn print_lines(&self, text: &mut String) -> fmt::Result {
        writeln!(text, "round {:016x} last {}", self.round, self.last)?;
        for entry in &self.members {
            let Identity { pid, start } = entry.process;
            write!(text, "member {} pid {pid} start {start}", entry.slice)?;
            match entry.place {
                Some(place) => writeln!(text, " round {:016x} place {place}", entry.round)?,
                None => writeln!(text, " round {:016x}", entry.round)?,
            }
        }
        for Listener { service, slice } in &self.listeners {
            writeln!(text, "listener {service:016x} member {slice}")?;
        }
        Ok(())
    }

    /// None if it is of another version. What another boot wrote is about processes long gone.
    pub(super) fn parse(text: &str, boot: &str) -> Option<Self> {
        let mut table = Self::EMPTY;
        let mut lines = text.lines();
        let Some(heading) = lines.next() else {
            return Some(table);
        };
        let writer = heading.strip_prefix(HEADING)?;
        if writer.trim() == boot {
            lines.for_each(|line| _ = table.parse_line(line));
        }
        Some(table)
    }

    fn parse_line(&mut self, line: &str) -> Option<()> {
        let mut words = line.split_ascii_whitespace();
        match words.next()? {
            "round" => {
                self.round = u64::from_str_radix(words.next()?, 16).ok()?;
                self.last = slice(words.nth(1)?)?;
            }
            "member" => self.add(Entry {
                slice: slice(words.next()?)?,
                process: Identity {
                    pid: words.nth(1)?.parse().ok()?,
                    start: words.nth(1)?.parse().ok()?,
                },
                round: u64::from_str_radix(words.nth(1)?, 16).ok()?,
                place: words.nth(1).and_then(|place| place.parse().ok()),
            }),
            "listener" => self.listeners.push(Listener {
                service: u64::from_str_radix(words.next()?, 16).ok()?,
                slice: slice(words.nth(1)?)?,
            }),
            _ => {}
        }
        Some(())
    }
}

fn slice(word: &str) -> Option<Slice> {
    Slice::new(word.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(number: u8, place: Option<u32>) -> Entry {
        Entry {
            slice: Slice::new(number).unwrap(),
            process: Identity { pid: 7, start: 99 },
            place,
            round: 5,
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
    fn what_is_printed_can_be_read() {
        let mut table = table(&[entry(62, None), entry(3, Some(1))]);
        table.listeners.push(Listener {
            service: 0x0106_1234,
            slice: Slice::FIRST,
        });
        let text = table.print("this-boot");
        println!("{text}");
        assert_eq!(Table::parse(&text, "this-boot"), Some(table));
        assert_eq!(Table::parse(&text, "other-boot"), Some(Table::EMPTY));
        assert_eq!(Table::parse("", "this-boot"), Some(Table::EMPTY));
        assert_eq!(Table::parse("something else", "this-boot"), None);
    }

    #[test]
    fn any_damage_is_survived() {
        let text = table(&[entry(1, Some(0)), entry(2, Some(1))]).print("b");
        for end in 0..text.len() {
            let _ = Table::parse(&text[..end], "b");
        }
        let members = Table::parse(&text.replace("pid 7", "pid x"), "b")
            .unwrap()
            .members;
        assert_eq!(members, []);
    }

    #[test]
    fn settled_means_that_all_places_are_known_and_taken() {
        assert!(table(&[]).is_settled());
        assert!(table(&[entry(9, Some(1)), entry(4, Some(0))]).is_settled());
        assert!(!table(&[entry(9, Some(2)), entry(4, Some(0))]).is_settled());
        assert!(!table(&[entry(9, None), entry(4, Some(0))]).is_settled());
        let mut late = table(&[entry(9, Some(0))]);
        late.round += 1;
        assert!(!late.is_settled() && late.fills_all_places());
    }

    #[test]
    fn slices_are_given_away_in_turn() {
        let mut table = Table::EMPTY;
        for number in (1..=62).chain(1..=5) {
            let slice = table.free_slice().unwrap();
            assert_eq!(slice.number(), number);
            table.last = slice;
        }
        (1..=62).for_each(|number| table.add(entry(number, None)));
        assert_eq!(table.free_slice(), None);
        table.remove(Slice::FIRST);
        assert_eq!(table.free_slice(), Some(Slice::FIRST));
    }

    #[test]
    fn each_watches_over_the_next() {
        let table = table(&[entry(4, None), entry(9, None), entry(20, None)]);
        let watched = |number| {
            let next = table.neighbour(Slice::new(number).unwrap());
            next.map(|entry| entry.slice.number())
        };
        assert_eq!(
            (watched(4), watched(9), watched(20)),
            (Some(9), Some(20), Some(4))
        );
    }
}
