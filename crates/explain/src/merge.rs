//! Several captures as one, sorted by time.
//!
//! All of them are in memory at the same time, because the same packet must be found in the order in which it left and
//! arrived.

use std::io::Read;

use crate::capture::{self, Direction, Ending, Frame, Item, ReadError};

/// An entry of one of the captures.
struct Stored {
    time: u64,
    /// The index of the capture that contains it.
    source: usize,
    item: StoredItem,
}

enum StoredItem {
    Section(Option<String>),
    Journal(Vec<u8>),
    Frame {
        frame: StoredFrame,
        bytes: Vec<u8>,
        comment: Option<String>,
    },
}

/// A frame without the parts that have a lifetime.
struct StoredFrame {
    original_length: usize,
    link: u32,
    interface: u32,
    direction: Option<Direction>,
}

/// More interfaces than a capture has. The interfaces of two captures are different capture points.
const INTERFACES: u32 = 1 << 16;

/// Calls `take` with the entries of all captures in the order of their times.
pub(crate) fn read<R: Read>(
    sources: Vec<R>,
    mut take: impl FnMut(Item<'_>),
) -> Result<Vec<Ending>, (usize, ReadError)> {
    let mut stored = Vec::new();
    let mut endings = Vec::new();
    for (place, source) in sources.into_iter().enumerate() {
        let mut time = 0;
        let ending = capture::read(source, |item| {
            let item = keep(item, place, &mut time);
            stored.push(Stored {
                time,
                source: place,
                item,
            });
        });
        endings.push(ending.map_err(|error| (place, error))?);
    }
    hand_out(stored, endings.len(), &mut take);
    Ok(endings)
}

fn keep(item: Item<'_>, place: usize, time: &mut u64) -> StoredItem {
    match item {
        Item::Section(application) => StoredItem::Section(application.map(str::to_owned)),
        Item::Journal(entry) => {
            *time = journal_time(entry).unwrap_or(*time);
            StoredItem::Journal(entry.to_vec())
        }
        Item::Frame(frame) => {
            *time = frame.time.unwrap_or(*time);
            StoredItem::Frame {
                frame: StoredFrame {
                    original_length: frame.original_length,
                    link: frame.link,
                    interface: (place as u32) * INTERFACES + frame.interface % INTERFACES,
                    direction: frame.direction,
                },
                bytes: frame.bytes.to_vec(),
                comment: frame.comment.map(str::to_owned),
            }
        }
    }
}

/// The time of an entry of ours.
fn journal_time(entry: &[u8]) -> Option<u64> {
    let event = crate::journal::Event::parse(entry, None)?;
    u64::try_from(event.time).ok()
}

/// A section applies to what follows in its capture, so its name precedes each entry that comes after one of another
/// capture.
fn hand_out(mut stored: Vec<Stored>, sources: usize, take: &mut impl FnMut(Item<'_>)) {
    // An application for each section of each capture, before the sort separates them.
    let mut sections: Vec<Option<String>> = Vec::new();
    let mut current = vec![0; sources];
    let mut section_of = Vec::with_capacity(stored.len());
    for entry in &stored {
        if let StoredItem::Section(application) = &entry.item {
            current[entry.source] = sections.len();
            sections.push(application.clone());
        }
        section_of.push(current[entry.source]);
    }
    let mut entries: Vec<(Stored, usize)> = stored.drain(..).zip(section_of).collect();
    entries.sort_by_key(|(entry, _)| entry.time);
    let mut last = None;
    for (entry, section) in &entries {
        if last != Some(*section) {
            last = Some(*section);
            take(Item::Section(
                sections.get(*section).and_then(Option::as_deref),
            ));
        }
        match &entry.item {
            StoredItem::Section(_) => {}
            StoredItem::Journal(bytes) => take(Item::Journal(bytes)),
            StoredItem::Frame {
                frame,
                bytes,
                comment,
            } => take(Item::Frame(Frame {
                time: Some(entry.time),
                bytes,
                original_length: frame.original_length,
                link: frame.link,
                interface: frame.interface,
                direction: frame.direction,
                comment: comment.as_deref(),
            })),
        }
    }
}
