//! What a device is in a fabric.

/// What a device is in a fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeType {
    /// A channel adapter: InfiniBand or RoCE.
    ChannelAdapter,
    /// An iWARP adapter.
    Rnic,
    /// Any other: switches, routers, and devices with a protocol of their own, such as EFA.
    Other,
}

impl NodeType {
    /// Parses `1: CA`.
    pub(crate) fn parse(text: &str) -> Self {
        match text.split(':').next() {
            Some("1") => Self::ChannelAdapter,
            Some("4") => Self::Rnic,
            _ => Self::Other,
        }
    }
}
