//! The pages `docs/errors.md` and `docs/zh-CN/errors.md`.

use std::fmt::Write;

use crate::chinese::Translations;
use crate::{CodeKind, Entry, entries};

/// The languages of the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    /// English.
    English,
    /// Simplified Chinese.
    Chinese,
}

const OPENING: &str = "\
# Error codes, causes and remedies

<!-- Made from `crates/errors`; do not edit. `ROCI_BLESS=1 cargo test -p rocinante-errors` rewrites it. -->

All codes that an RDMA program may see: their meaning, their usual causes, and what to do.
`roci explain wc 12` prints the same in a terminal; a name works instead of the number.

With `ROCI_EXPLAIN=1` in its environment, or under `roci run --explain`, a program reports each error on
stderr: the request, the cause, and the relevant numbers. The peer often knows more: check both sides.
";

const CHINESE_OPENING: &str = "\
# 错误代码、原因与处理办法

<!-- 由 `crates/errors` 生成，请勿编辑。`ROCI_BLESS=1 cargo test -p rocinante-errors` 会重新生成本页。 -->

RDMA 程序可能遇到的所有代码：含义、常见原因和处理办法。`roci explain wc 12` 在终端中打印同样的内容（英文）；也可以用名字代替数字。

环境中设有 `ROCI_EXPLAIN=1`，或在 `roci run --explain` 之下，程序会在 stderr 上报告每个错误：请求、原因和相关的数字。
对端往往知道得更多：两端都要检查。
";

/// The whole page.
#[must_use]
pub fn page(language: Language) -> String {
    let writer = PageWriter {
        translations: (language == Language::Chinese).then(Translations::new),
    };
    let opening_of_page = match language {
        Language::English => OPENING,
        Language::Chinese => CHINESE_OPENING,
    };
    let mut text = format!("{opening_of_page}\n");
    for topic in CodeKind::ALL {
        let title = writer.text(topic.title());
        let _ = writeln!(text, "- [{title}](#{})", anchor(title));
    }
    for topic in CodeKind::ALL {
        let (title, opening) = (writer.text(topic.title()), writer.text(opening(topic)));
        let _ = write!(text, "\n## {title}\n\n{opening}\n");
        for entry in entries(topic) {
            text.push('\n');
            text.push_str(&writer.section(entry));
        }
    }
    text
}

/// Writes texts of the catalogue in the language of the page.
struct PageWriter {
    translations: Option<Translations>,
}

impl PageWriter {
    fn text(&self, english: &'static str) -> &'static str {
        match &self.translations {
            Some(translations) => translations.of(english),
            None => english,
        }
    }

    fn section(&self, entry: &Entry) -> String {
        let mut text = format!("### {}: `{}`\n\n", entry.reference(), entry.c_name);
        if let Some(name) = entry.rust_name {
            let colon = if self.translations.is_some() {
                "："
            } else {
                ": "
            };
            let _ = write!(text, "`{name}`{colon}");
        }
        text.push_str(self.text(entry.meaning));
        text.push('\n');
        for (index, cause) in entry.causes.iter().enumerate() {
            if index == 0 {
                text.push('\n');
            }
            let (reason, remedy) = (self.text(cause.reason), self.text(cause.remedy));
            let _ = writeln!(text, "- {reason} *{remedy}*");
        }
        text
    }
}

pub(crate) const fn opening(topic: CodeKind) -> &'static str {
    match topic {
        CodeKind::Completion => {
            "The result of a work request: `status` in `struct ibv_wc`, `Completion::status` in Rust. The \
             first failed completion shows the cause; the ones after it are flushed."
        }
        CodeKind::Event => {
            "The events of `ibv_get_async_event` and `Context::poll_event`. They belong to no single work \
             request."
        }
        CodeKind::Nak => {
            "The syndrome in the AETH of a response, as captures show it. The responder of a reliable \
             connection rejects a request with it; the requester gets a completion status."
        }
        CodeKind::Connection => {
            "The events of `rdma_get_cm_event`. The `status` is 0, a negative error number (see below), or \
             the reason of a rejected connection (see below)."
        }
        CodeKind::Reject => {
            "The `status` of `RDMA_CM_EVENT_REJECTED`, and the reason in a REJ message."
        }
        CodeKind::Errno => {
            "The return values of verbs, the values of `errno`, and with a minus sign the `status` of \
             connection manager events."
        }
    }
}

/// The anchor of a title, as GitHub forms it.
fn anchor(title: &str) -> String {
    let kept = title
        .chars()
        .filter(|c| c.is_alphanumeric() || " -".contains(*c));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}
