//! The path MTU: the largest payload of one packet.

use std::fmt;

/// The largest payload of one packet on a path. Five sizes are defined.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum PathMtu {
    /// 256 bytes, which every device must support.
    Mtu256 = 1,
    /// 512 bytes.
    Mtu512,
    /// 1024 bytes, the largest that fits an Ethernet frame of 1500 bytes.
    Mtu1024,
    /// 2048 bytes.
    Mtu2048,
    /// 4096 bytes, the largest.
    Mtu4096,
}

impl PathMtu {
    const ALL: [PathMtu; 5] = [
        PathMtu::Mtu256,
        PathMtu::Mtu512,
        PathMtu::Mtu1024,
        PathMtu::Mtu2048,
        PathMtu::Mtu4096,
    ];

    /// The size in bytes.
    #[inline]
    pub const fn bytes(self) -> usize {
        128 << self.code()
    }

    /// The code, 1 to 5, that verbs and CM messages use.
    #[inline]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The size of a code, if the code is defined.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|mtu| mtu.code() == code)
    }

    /// The largest path MTU of at most `bytes` bytes.
    pub fn largest_within(bytes: usize) -> Option<Self> {
        Self::ALL.into_iter().rev().find(|mtu| mtu.bytes() <= bytes)
    }
}

impl fmt::Display for PathMtu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bytes().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_map_to_sizes_and_back() {
        assert_eq!(
            PathMtu::ALL.map(PathMtu::bytes),
            [256, 512, 1024, 2048, 4096]
        );
        for mtu in PathMtu::ALL {
            assert_eq!(PathMtu::from_code(mtu.code()), Some(mtu));
        }
        assert_eq!(PathMtu::from_code(0), None);
        assert_eq!(PathMtu::from_code(6), None);
    }

    #[test]
    fn largest_within_returns_the_largest_that_fits() {
        assert_eq!(PathMtu::largest_within(255), None);
        assert_eq!(PathMtu::largest_within(256), Some(PathMtu::Mtu256));
        assert_eq!(PathMtu::largest_within(1432), Some(PathMtu::Mtu1024));
        assert_eq!(PathMtu::largest_within(65_535), Some(PathMtu::Mtu4096));
    }
}
