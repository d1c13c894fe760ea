//! The states of a message exchange.

/// IBA 12.9: the state of a connection decides how a message is answered. The names
/// in parentheses are those of Linux (`enum ib_cm_state`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ExchangeState {
    /// REQ sent, no response yet (`IB_CM_REQ_SENT`).
    RequestSent,
    /// REQ sent; the peer answered with an MRA (`IB_CM_MRA_REQ_RCVD`).
    RequestDelayed,
    /// REQ received; the application has not answered (`IB_CM_REQ_RCVD`).
    RequestReceived,
    /// REP sent, no response yet (`IB_CM_REP_SENT`).
    ReplySent,
    /// REP sent; the peer answered with an MRA (`IB_CM_MRA_REP_RCVD`).
    ReplyDelayed,
    /// REP received; the application has not answered (`IB_CM_REP_RCVD`).
    ReplyReceived,
    /// Connected (`IB_CM_ESTABLISHED`).
    Established,
    /// DREQ sent, no response yet (`IB_CM_DREQ_SENT`).
    DisconnectSent,
    /// DREQ received; the application has not answered (`IB_CM_DREQ_RCVD`).
    DisconnectReceived,
    /// Disconnected (`IB_CM_TIMEWAIT`). Packets of the connection may still arrive.
    TimeWait,
    /// SIDR_REQ sent, no response yet (`IB_CM_SIDR_REQ_SENT`).
    ServiceRequestSent,
    /// SIDR_REQ received; the application has not answered (`IB_CM_SIDR_REQ_RCVD`).
    ServiceRequestReceived,
}
