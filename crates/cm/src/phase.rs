//! The states of a message exchange.

/// The state of the message exchange with the peer (IBA 12.9).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// REQ sent, no answer yet.
    RequestSent,
    /// REQ sent; the peer answered with an MRA.
    RequestDelayed,
    /// REQ received; the application has not answered.
    RequestReceived,
    /// REP sent, no answer yet.
    ReplySent,
    /// REP sent; the peer answered with an MRA.
    ReplyDelayed,
    /// REP received; the application has not answered.
    ReplyReceived,
    /// Connected.
    Established,
    /// DREQ sent, no answer yet.
    DisconnectSent,
    /// DREQ received; the application has not answered.
    DisconnectReceived,
    /// Disconnected. Packets of the connection may still arrive.
    TimeWait,
    /// SIDR_REQ sent, no answer yet.
    ServiceRequestSent,
    /// SIDR_REQ received; the application has not answered.
    ServiceRequestReceived,
}
