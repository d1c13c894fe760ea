//! Finds an entry by its number or its name.

use std::fmt;
use std::str::FromStr;

use crate::Entry;
use crate::catalogue::CATALOGUE;
use crate::code_kind::CodeKind;

/// There is no entry with this number or name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unknown {
    /// No such kind of code.
    CodeKind(String),
    /// No such code of this kind.
    Code(CodeKind, String),
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unknown::CodeKind(word) => {
                let known = CodeKind::ALL.map(CodeKind::word).join(", ");
                write!(
                    f,
                    "there is no kind of code `{word}`; the kinds are {known}"
                )
            }
            Unknown::Code(topic, code) => write!(
                f,
                "there is no {topic} `{code}`; `roci explain {topic}` lists all codes"
            ),
        }
    }
}

impl std::error::Error for Unknown {}

impl FromStr for CodeKind {
    type Err = Unknown;

    fn from_str(word: &str) -> Result<Self, Unknown> {
        let wanted = plain(word);
        let named = CodeKind::ALL
            .into_iter()
            .find(|topic| topic.word() == wanted);
        named.ok_or_else(|| Unknown::CodeKind(word.to_owned()))
    }
}

/// All entries of a kind, by their codes.
pub fn entries(topic: CodeKind) -> impl Iterator<Item = &'static Entry> {
    CATALOGUE
        .iter()
        .copied()
        .flatten()
        .filter(move |entry| entry.topic == topic)
}

/// The entry of a code, if there is one.
#[must_use]
pub fn entry(topic: CodeKind, code: u32) -> Option<&'static Entry> {
    entries(topic).find(|entry| entry.code == code)
}

/// The entry with this code, name or text of `ibv_wc_status_str`. Signs, letter case and underscores are ignored. For a NAK, both the
/// syndrome and the NAK code work.
pub fn find(topic: CodeKind, code: &str) -> Result<&'static Entry, Unknown> {
    let by_number = number(code).and_then(|number| {
        let number = normal(topic, number);
        entries(topic).find(|entry| entry.code == number)
    });
    let found = by_number.or_else(|| {
        let wanted = plain(code);
        entries(topic).find(|entry| names(entry).any(|name| name == wanted))
    });
    found.ok_or_else(|| Unknown::Code(topic, code.to_owned()))
}

/// The texts of `ibv_wc_status_str` and `ibv_event_type_str` in rdma-core, by code. Programs print them instead of
/// the names.
const STATUS_TEXTS: [&str; 24] = [
    "success",
    "local length error",
    "local QP operation error",
    "local EE context operation error",
    "local protection error",
    "Work Request Flushed Error",
    "memory management operation error",
    "bad response error",
    "local access error",
    "remote invalid request error",
    "remote access error",
    "remote operation error",
    "transport retry counter exceeded",
    "RNR retry counter exceeded",
    "local RDD violation error",
    "remote invalid RD request",
    "aborted error",
    "invalid EE context number",
    "invalid EE context state",
    "fatal error",
    "response timeout error",
    "general error",
    "TM error",
    "TM software rendezvous",
];
const EVENT_TEXTS: [&str; 20] = [
    "CQ error",
    "local work queue catastrophic error",
    "invalid request local work queue error",
    "local access violation work queue error",
    "communication established",
    "send queue drained",
    "path migrated",
    "path migration request error",
    "local catastrophic error",
    "port active",
    "port error",
    "LID change",
    "P_Key change",
    "SM change",
    "SRQ catastrophic error",
    "SRQ limit reached",
    "last WQE reached",
    "client reregistration",
    "GID table change",
    "WQ fatal",
];

/// The text that rdma-core has for an entry, if programs print one.
fn text(entry: &Entry) -> Option<&'static str> {
    let code = entry.code as usize;
    match entry.topic {
        CodeKind::Completion => STATUS_TEXTS.get(code).copied(),
        CodeKind::Event => EVENT_TEXTS.get(code).copied(),
        CodeKind::Nak | CodeKind::Connection | CodeKind::Reject | CodeKind::Errno => None,
    }
}

/// The names of an entry, also without the prefix that all entries of its kind share.
fn names(entry: &Entry) -> impl Iterator<Item = String> {
    const PREFIXES: [&str; 5] = ["ibvwc", "ibvevent", "rdmacmevent", "ibcmrej", "ibnak"];
    let c_name = plain(entry.c_name);
    let short = PREFIXES
        .iter()
        .find_map(|prefix| c_name.strip_prefix(prefix))
        .map(str::to_owned);
    let last = entry.rust_name.map(|name| match name.rsplit_once("::") {
        Some((_, variant)) => plain(variant),
        None => plain(name),
    });
    let text = text(entry).map(plain);
    [Some(c_name), short, last, text].into_iter().flatten()
}

/// Letters and digits alone, in lower case.
fn plain(text: &str) -> String {
    let kept = text.chars().filter(char::is_ascii_alphanumeric);
    kept.map(|letter| letter.to_ascii_lowercase()).collect()
}

/// A number in decimal or after `0x`; CM statuses are error numbers with a minus sign.
fn number(text: &str) -> Option<u32> {
    let text = text.strip_prefix('-').unwrap_or(text);
    match text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// The catalogue has whole syndromes: 0x60 to 0x64 for NAKs, and 0x20 for "receiver not ready" with
/// any timer.
fn normal(topic: CodeKind, number: u32) -> u32 {
    const NEGATIVE: u32 = 0x60;
    const NOT_READY: u32 = 0x20;
    match (topic, number) {
        (CodeKind::Nak, 0..=4) => NEGATIVE | number,
        (CodeKind::Nak, 0x20..=0x3f) => NOT_READY,
        _ => number,
    }
}
