//! Names of things in diagnostics.

use engine::incident::Peer;
use engine::{Access, Attribute, CompletedWork, RemoteMemory, Work};
use wire::Qpn;

pub(super) fn queue_pair(number: Qpn) -> String {
    format!("QP {number}")
}

pub(super) fn peer(peer: Peer) -> String {
    format!("QP {} at {}", peer.queue_pair, peer.address)
}

const ATTRIBUTES: [(Attribute, &str); 19] = [
    (Attribute::STATE, "IBV_QP_STATE"),
    (Attribute::CURRENT_STATE, "IBV_QP_CUR_STATE"),
    (Attribute::DRAIN_EVENT, "IBV_QP_EN_SQD_ASYNC_NOTIFY"),
    (Attribute::ACCESS, "IBV_QP_ACCESS_FLAGS"),
    (Attribute::PARTITION, "IBV_QP_PKEY_INDEX"),
    (Attribute::PORT, "IBV_QP_PORT"),
    (Attribute::QUEUE_KEY, "IBV_QP_QKEY"),
    (Attribute::PATH, "IBV_QP_AV"),
    (Attribute::PATH_MTU, "IBV_QP_PATH_MTU"),
    (Attribute::ACK_TIMEOUT, "IBV_QP_TIMEOUT"),
    (Attribute::RETRY_COUNT, "IBV_QP_RETRY_CNT"),
    (Attribute::RNR_RETRY, "IBV_QP_RNR_RETRY"),
    (Attribute::RECEIVE_PSN, "IBV_QP_RQ_PSN"),
    (Attribute::INITIATOR_DEPTH, "IBV_QP_MAX_QP_RD_ATOMIC"),
    (Attribute::RNR_TIMER, "IBV_QP_MIN_RNR_TIMER"),
    (Attribute::SEND_PSN, "IBV_QP_SQ_PSN"),
    (Attribute::RESPONDER_RESOURCES, "IBV_QP_MAX_DEST_RD_ATOMIC"),
    (Attribute::MIGRATION, "IBV_QP_PATH_MIG_STATE"),
    (Attribute::DESTINATION, "IBV_QP_DEST_QPN"),
];

pub(super) fn attributes(set: Attribute) -> String {
    let named = ATTRIBUTES.iter().filter(|(one, _)| set.contains(*one));
    listed(named.map(|(_, name)| (*name).to_owned()))
}

const RIGHTS: [(Access, &str); 7] = [
    (Access::LOCAL_WRITE, "IBV_ACCESS_LOCAL_WRITE"),
    (Access::REMOTE_WRITE, "IBV_ACCESS_REMOTE_WRITE"),
    (Access::REMOTE_READ, "IBV_ACCESS_REMOTE_READ"),
    (Access::REMOTE_ATOMIC, "IBV_ACCESS_REMOTE_ATOMIC"),
    (Access::WINDOW_BIND, "IBV_ACCESS_MW_BIND"),
    (Access::FLUSH_GLOBAL, "IBV_ACCESS_FLUSH_GLOBAL"),
    (Access::FLUSH_PERSISTENT, "IBV_ACCESS_FLUSH_PERSISTENT"),
];

pub(super) fn rights(set: Access) -> String {
    let named = RIGHTS.iter().filter(|(one, _)| set.contains(*one));
    match listed(named.map(|(_, name)| (*name).to_owned())) {
        none if none.is_empty() => "no rights".to_owned(),
        names => names,
    }
}

/// `a`, `a and b`, `a, b and c`.
pub(super) fn listed(names: impl Iterator<Item = String>) -> String {
    let names: Vec<String> = names.collect();
    match names.split_last() {
        None => String::new(),
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} and {last}", rest.join(", ")),
    }
}

pub(crate) const fn completed(work: CompletedWork) -> &'static str {
    match work {
        CompletedWork::Send => "SEND",
        CompletedWork::Write => "RDMA WRITE",
        CompletedWork::Read => "RDMA READ",
        CompletedWork::CompareSwap => "compare-and-swap",
        CompletedWork::FetchAdd => "fetch-and-add",
        CompletedWork::BindWindow => "window bind",
        CompletedWork::LocalInvalidate => "local invalidate",
        CompletedWork::AtomicWrite => "atomic write",
        CompletedWork::Flush => "flush",
        CompletedWork::Receive | CompletedWork::ReceiveWriteImmediate => "receive",
    }
}

/// A noun with its article: `a SEND`, `an RDMA WRITE`.
pub(super) fn with_article(noun: &str) -> String {
    let article = if noun.starts_with(['a', 'R']) {
        "an"
    } else {
        "a"
    };
    format!("{article} {noun}")
}

/// The peer's memory that a work request names.
pub(super) const fn remote(work: &Work) -> Option<RemoteMemory> {
    match work {
        Work::Write(remote)
        | Work::WriteImmediate(remote, _)
        | Work::Read(remote)
        | Work::AtomicWrite(remote)
        | Work::CompareSwap { remote, .. }
        | Work::FetchAdd { remote, .. }
        | Work::Flush { remote, .. } => Some(*remote),
        _ => None,
    }
}

/// `1 byte`, `2 bytes`.
pub(super) fn bytes(count: u64) -> String {
    match count {
        1 => "1 byte".to_owned(),
        _ => format!("{count} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn article_follows_the_sound_of_the_noun() {
        let named = |work| with_article(completed(work));
        assert_eq!(named(CompletedWork::Send), "a SEND");
        assert_eq!(named(CompletedWork::Write), "an RDMA WRITE");
        assert_eq!(named(CompletedWork::AtomicWrite), "an atomic write");
        assert_eq!(named(CompletedWork::Receive), "a receive");
    }
}
