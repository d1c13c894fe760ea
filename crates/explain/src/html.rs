//! The analysis as a self-contained HTML page with an interactive ladder diagram.
//!
//! The page needs no network: style, script and data are inside. A capture may contain anything, so
//! none of it becomes markup: the data is JSON in an element that browsers don't execute, the script
//! inserts it as text, and a content security policy forbids every other script.

mod columns;
mod content;
mod json;
mod lifeline;

use std::io::{self, Write};

use crate::analysis::Analysis;
use content::Content;

const TEMPLATE: &str = include_str!("html/page.html");
const STYLE: &str = include_str!("html/page.css");

/// In the order in which they use each other.
const SCRIPTS: [&str; 12] = [
    include_str!("html/data.js"),
    include_str!("html/headers.js"),
    include_str!("html/filter.js"),
    include_str!("html/ladder.js"),
    include_str!("html/draw.js"),
    include_str!("html/overview.js"),
    include_str!("html/panels.js"),
    include_str!("html/statistics.js"),
    include_str!("html/plot.js"),
    include_str!("html/export.js"),
    include_str!("html/address.js"),
    include_str!("html/page.js"),
];

impl Analysis {
    /// Writes the analysis as a page for a browser. The title is usually the name of the capture.
    pub fn write_page(&self, title: &str, to: &mut impl Write) -> io::Result<()> {
        let nonce = nonce()?;
        // One pass: inserted text is not searched for placeholders.
        let mut pieces = TEMPLATE.split("{{");
        to.write_all(pieces.next().unwrap_or_default().as_bytes())?;
        for piece in pieces {
            let (place, rest) = piece.split_once("}}").expect("each place has an end");
            match place {
                "nonce" => to.write_all(nonce.as_bytes())?,
                "title" => to.write_all(escaped(title).as_bytes())?,
                "style" => to.write_all(STYLE.as_bytes())?,
                "script" => SCRIPTS
                    .iter()
                    .try_for_each(|part| to.write_all(part.as_bytes()))?,
                "analysis" => json::write(&Content::of(self), to)?,
                other => unreachable!("the page has no place for {other}"),
            }
            to.write_all(rest.as_bytes())?;
        }
        to.flush()
    }
}

/// The nonce of our script and style. The author of a capture can't know it.
fn nonce() -> io::Result<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_is_text_and_not_markup() {
        assert_eq!(
            escaped("<b>\"a & b\"</b>"),
            "&lt;b&gt;&quot;a &amp; b&quot;&lt;/b&gt;"
        );
    }

    #[test]
    fn every_page_has_another_nonce() {
        let [one, other] = [nonce(), nonce()].map(|nonce| nonce.expect("random bytes"));
        assert_eq!(one.len(), 32);
        assert_ne!(one, other);
    }

    #[test]
    fn nothing_in_the_page_leads_to_the_network() {
        let parts = [&[TEMPLATE, STYLE], &SCRIPTS[..]].concat();
        // The one name that looks like an address is that of SVG in the DOM.
        let text = parts.concat().replace("http://www.w3.org/2000/svg", "");
        for way in [
            "http:",
            "https:",
            "//cdn",
            "url(",
            "@import",
            "fetch(",
            "XMLHttpRequest",
            "src=",
        ] {
            assert!(!text.contains(way), "{way} is in the page");
        }
    }
}
