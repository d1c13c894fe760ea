//! Links and headings of a Markdown page.

use std::collections::HashMap;
use std::ops::Range;

/// A link or an image in a page.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Link<'a> {
    /// The line, counted from 1.
    pub(super) line: usize,
    /// What is shown.
    pub(super) text: &'a str,
    pub(super) target: &'a str,
    /// Where the whole link stands in the page.
    pub(super) place: Range<usize>,
}

/// The links of a page. Code is left out.
pub(super) fn links(page: &str) -> Vec<Link<'_>> {
    let mut links = Vec::new();
    for (line, start, text) in prose(page) {
        let hidden = code_spans(text);
        for (middle, _) in text.match_indices("](") {
            let Some(end) = text[middle..].find(')') else {
                continue;
            };
            let Some(open) = opening_bracket(&text[..middle]) else {
                continue;
            };
            if hidden.iter().any(|span| span.contains(&middle)) {
                continue;
            }
            links.push(Link {
                line,
                text: &text[open + 1..middle],
                target: &text[middle + 2..middle + end],
                place: start + open..start + middle + end + 1,
            });
        }
    }
    links
}

/// Where the bracket opens that is closed at the end of the text.
fn opening_bracket(text: &str) -> Option<usize> {
    let mut depth = 0;
    for (at, byte) in text.bytes().enumerate().rev() {
        match byte {
            b']' => depth += 1,
            b'[' if depth == 0 => return Some(at),
            b'[' => depth -= 1,
            _ => {}
        }
    }
    // The text of the link began in an earlier line.
    Some(0)
}

/// The anchors of the headings, as GitHub and mdBook form them.
pub(super) fn anchors(page: &str) -> Vec<String> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let headings = prose(page).filter_map(|(_, _, line)| {
        let text = line.trim_start_matches('#');
        (text.len() < line.len()).then(|| text.strip_prefix(' '))?
    });
    headings
        .map(|heading| {
            let anchor = anchor(heading);
            let count = seen.entry(anchor.clone()).or_default();
            *count += 1;
            match *count {
                1 => anchor,
                more => format!("{anchor}-{}", more - 1),
            }
        })
        .collect()
}

/// Letters, digits, `_` and `-` stay, spaces become `-`, and the rest is left out.
fn anchor(heading: &str) -> String {
    let kept = |c: char| match c {
        ' ' => Some('-'),
        c if c.is_alphanumeric() || c == '_' || c == '-' => Some(c),
        _ => None,
    };
    heading
        .trim()
        .to_lowercase()
        .chars()
        .filter_map(kept)
        .collect()
}

/// The lines that are not inside a block of code: number, place and text.
fn prose(page: &str) -> impl Iterator<Item = (usize, usize, &str)> {
    let mut is_code = false;
    let mut start = 0;
    page.split_inclusive('\n')
        .enumerate()
        .filter_map(move |(index, line)| {
            let place = start;
            start += line.len();
            let is_fence = line.trim_start().starts_with("```");
            is_code ^= is_fence;
            (!is_code && !is_fence).then_some((index + 1, place, line.trim_end()))
        })
}

/// The places between pairs of back-ticks.
fn code_spans(line: &str) -> Vec<Range<usize>> {
    let ticks: Vec<_> = line.match_indices('`').map(|(at, _)| at).collect();
    ticks.chunks_exact(2).map(|pair| pair[0]..pair[1]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "\
# The *first* page

See [one](a.md#b), `[not](this)` and ![a [nested] picture](p.png).

```text
[nor](that)
```

## `ibv_post_send`: how?
## Twice
## Twice
";

    #[test]
    fn links_are_found_outside_of_code() {
        let found: Vec<_> = links(PAGE).iter().map(|it| (it.line, it.target)).collect();
        assert_eq!(found, [(3, "a.md#b"), (3, "p.png")]);
        let first = &links(PAGE)[0];
        assert_eq!(first.text, "one");
        assert_eq!(&PAGE[first.place.clone()], "[one](a.md#b)");
    }

    #[test]
    fn headings_have_the_anchors_of_github() {
        let expected = ["the-first-page", "ibv_post_send-how", "twice", "twice-1"];
        assert_eq!(anchors(PAGE), expected);
        assert_eq!(anchors("## 错误代码：原因"), ["错误代码原因"]);
    }
}
