//! Counter files with a live content.
//!
//! In the tree they are ordinary files with a zero. When a program opens one, its descriptor gets a file in memory with
//! the present value instead, whose name says which counter it is. A later `read` from the beginning gets the value of
//! that time. A program that reads an open file only by `fread` gets the value of the time when it opened it, and so does
//! every program where files in memory are forbidden.

use std::ffi::{CStr, c_char, c_int};
use std::sync::atomic::{AtomicU64, Ordering};

use statistics::{CounterFile, GENERAL, HARDWARE, MESSAGES};

use crate::bounded_string::Text;
use crate::device_counters;
use crate::path_redirects::tree;
use crate::system_calls::{self, File};

/// The name of a file in memory begins so; the path of the file in the tree follows. `/proc` shows the text
/// before it, too.
const NAME: &[u8] = b"roci:";
const SHOWN: &[u8] = b"/memfd:roci:";

/// The longest name of a counter file.
const MAX_NAME: usize = 40;

/// Descriptors below this number are read again later.
const MAX_DESCRIPTOR: usize = 4096;

/// A bit for each descriptor that was a counter file when it was opened.
static OPENED: [AtomicU64; MAX_DESCRIPTOR / 64] = [const { AtomicU64::new(0) }; _];

/// Whether a path may lead to a counter file: one without a directory, or one in the tree, whose last component is the
/// name of a counter.
///
/// # Safety
/// The pointer is that of a text with a zero at its end.
pub(crate) unsafe fn may_be_counter(path: *const c_char) -> bool {
    let mut name = [0; MAX_NAME];
    let mut length = 0;
    for index in 0.. {
        // SAFETY: all bytes before this one are not zero, so the text has at least one more byte.
        let byte = unsafe { path.add(index) };
        // SAFETY: as above.
        match unsafe { *byte } as u8 {
            0 => break,
            b'/' => length = 0,
            byte => {
                if let Some(place) = name.get_mut(length) {
                    *place = byte;
                }
                length += 1;
            }
        }
    }
    let is_named = |file: &str| Some(file.as_bytes()) == name.get(..length);
    let is_of = |files: &[CounterFile]| files.iter().any(|file| is_named(file.name));
    is_of(&GENERAL) || is_of(&HARDWARE) || MESSAGES.iter().any(|message| is_named(message))
}

/// Gives a descriptor the present value if its file is a counter file of the tree.
pub(crate) fn make_live(descriptor: c_int) {
    let mut target = [0; libc::PATH_MAX as usize];
    let Some(path) = path_of(descriptor, &mut target) else {
        return;
    };
    let Some(inside) = tree().and_then(|tree| path.strip_prefix(tree.to_bytes())) else {
        return;
    };
    let Some(value) = value(inside) else {
        return;
    };
    let name = Text::new().join(NAME).join(inside);
    let in_memory = name.as_c_str().and_then(File::in_memory);
    let Some(live) = in_memory.or_else(|| File::unnamed_in(tree()?)) else {
        return;
    };
    system_calls::replace_content(live.descriptor(), value.bytes());
    live.move_to(descriptor);
    if let Some((word, bit)) = place(descriptor) {
        word.fetch_or(bit, Ordering::Relaxed);
    }
}

/// Updates the value of a counter file before a read from its beginning. For all other descriptors, this costs a look
/// into a table.
#[inline]
pub(crate) fn before_read(descriptor: c_int, offset: Option<i64>) {
    if let Some((word, bit)) = place(descriptor)
        && word.load(Ordering::Relaxed) & bit != 0
    {
        update(descriptor, offset);
    }
}

#[cold]
fn update(descriptor: c_int, offset: Option<i64>) {
    let mut target = [0; libc::PATH_MAX as usize];
    let path = path_of(descriptor, &mut target);
    let Some(inside) = path.and_then(|path| path.strip_prefix(SHOWN)) else {
        // The program has closed it, and this is another file.
        if let Some((word, bit)) = place(descriptor) {
            word.fetch_and(!bit, Ordering::Relaxed);
        }
        return;
    };
    let inside = inside.strip_suffix(b" (deleted)").unwrap_or(inside);
    let from_beginning = match offset {
        Some(offset) => offset == 0,
        None => system_calls::position(descriptor) == Some(0),
    };
    if from_beginning && let Some(value) = value(inside) {
        system_calls::replace_content(descriptor, value.bytes());
    }
}

/// Whether a descriptor's file is in the tree, at a path of that kind.
pub(crate) fn is_in_tree(descriptor: c_int, is_of_kind: impl Fn(&[u8]) -> bool) -> bool {
    let mut target = [0; libc::PATH_MAX as usize];
    let path = path_of(descriptor, &mut target);
    let tree = tree().map(CStr::to_bytes);
    let inside = path.and_then(|path| path.strip_prefix(tree?));
    inside.is_some_and(is_of_kind)
}

#[inline]
fn place(descriptor: c_int) -> Option<(&'static AtomicU64, u64)> {
    let descriptor = usize::try_from(descriptor).ok()?;
    Some((OPENED.get(descriptor / 64)?, 1 << (descriptor % 64)))
}

fn path_of(descriptor: c_int, target: &mut [u8]) -> Option<&[u8]> {
    let number = u64::try_from(descriptor).ok()?;
    let link = Text::new().join(b"/proc/self/fd/").number(number);
    system_calls::link_target(link.as_c_str()?, target)
}

/// The content of a counter file, whose path in the tree ends with `PORT/DIRECTORY/NAME`.
fn value(inside: &[u8]) -> Option<Text> {
    let (directory, name) = split_last(inside)?;
    let (port, directory) = split_last(directory)?;
    let file = CounterFile::find(directory, name)?;
    let tree = tree()?.to_bytes();
    let (pages, _) = split_last(tree)?;
    let port = Text::new().join(tree).join(port);
    let counters = device_counters::sum(pages, port.bytes());
    Some(Text::new().number(file.value(&counters)).join(b"\n"))
}

fn split_last(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = path.iter().rposition(|byte| *byte == b'/')?;
    Some((&path[..at], &path[at + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn may_be(path: &CStr) -> bool {
        // SAFETY: a text.
        unsafe { may_be_counter(path.as_ptr()) }
    }

    #[test]
    fn only_names_of_counters_are_looked_at() {
        assert!(may_be(c"sent_pkts") && may_be(c"../counters/port_xmit_data"));
        assert!(may_be(c"cm_tx_msgs/req") && !may_be(c"cm_tx_msgs"));
        assert!(!may_be(c"sent_pkts/") && !may_be(c"") && !may_be(c"sent"));
        assert!(!may_be(
            c"sent_pkts/x_with_a_very_long_name_that_has_no_end_in_sight"
        ));
    }
}
