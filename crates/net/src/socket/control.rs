//! Control messages that accompany a datagram to or from the kernel.
//!
//! A message is a header (length, level, type) and its data, each aligned to a machine word.

/// The level and type of a message.
pub(super) type MessageType = (libc::c_int, libc::c_int);

const WORD: usize = size_of::<usize>();
const HEADER: usize = size_of::<libc::cmsghdr>();
const _: () = assert!(HEADER == WORD + 8, "length, level and kind without gaps");

/// The messages of one send: at most segment size, traffic class and hop limit.
pub(crate) struct Outgoing {
    bytes: [u8; 3 * (HEADER + 8)],
    length: usize,
}

impl Outgoing {
    pub(super) fn new() -> Self {
        Self {
            bytes: [0; _],
            length: 0,
        }
    }

    pub(super) fn push(&mut self, (level, kind): MessageType, data: &[u8]) {
        let message = &mut self.bytes[self.length..];
        let end = HEADER + data.len();
        message[..WORD].copy_from_slice(&end.to_ne_bytes());
        message[WORD..WORD + 4].copy_from_slice(&level.to_ne_bytes());
        message[WORD + 4..HEADER].copy_from_slice(&kind.to_ne_bytes());
        message[HEADER..end].copy_from_slice(data);
        self.length += end.next_multiple_of(WORD);
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// The messages that came with a datagram.
pub(super) struct Incoming<'m> {
    bytes: &'m [u8],
}

impl<'m> Incoming<'m> {
    pub(super) fn new(bytes: &'m [u8]) -> Self {
        Self { bytes }
    }
}

impl<'m> Iterator for Incoming<'m> {
    type Item = (MessageType, &'m [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (length, rest) = self.bytes.split_first_chunk::<WORD>()?;
        let (level, rest) = rest.split_first_chunk::<4>()?;
        let (kind, _) = rest.split_first_chunk::<4>()?;
        let end = usize::from_ne_bytes(*length);
        let data = self.bytes.get(HEADER..end)?;
        self.bytes = (self.bytes.get(end.next_multiple_of(WORD)..)).unwrap_or_default();
        let kind = (i32::from_ne_bytes(*level), i32::from_ne_bytes(*kind));
        Some((kind, data))
    }
}

/// The integer that is a message's whole data.
pub(super) fn integer(data: &[u8]) -> Option<i32> {
    match *data {
        [byte] => Some(i32::from(byte)),
        _ => data.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_messages_are_read_as_they_were_pushed() {
        let mut out = Outgoing::new();
        out.push((17, 103), &1500_u16.to_ne_bytes());
        out.push((0, 1), &0x20_i32.to_ne_bytes());
        out.push((0, 2), &7_i32.to_ne_bytes());
        let read: Vec<_> = Incoming::new(out.bytes()).collect();
        assert_eq!(read[0], ((17, 103), &1500_u16.to_ne_bytes()[..]));
        assert_eq!(read[1].0, (0, 1));
        assert_eq!(integer(read[2].1), Some(7));
        assert_eq!(read.len(), 3);
    }

    #[test]
    fn a_damaged_message_ends_the_list() {
        let mut out = Outgoing::new();
        out.push((0, 1), &[1, 2, 3, 4]);
        let bytes = out.bytes();
        for end in 0..HEADER + 4 {
            assert_eq!(Incoming::new(&bytes[..end]).count(), 0, "{end} bytes");
        }
        let mut long = bytes.to_vec();
        long[..WORD].copy_from_slice(&usize::MAX.to_ne_bytes());
        assert_eq!(Incoming::new(&long).count(), 0);
        long[..WORD].copy_from_slice(&3_usize.to_ne_bytes());
        assert_eq!(Incoming::new(&long).count(), 0);
    }
}
