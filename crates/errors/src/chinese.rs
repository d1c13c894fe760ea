//! The Chinese texts of the catalogue, which are a file of pairs: an English text and its translation.

use std::collections::HashMap;

const PAIRS: &str = include_str!("chinese.txt");

/// Translations of English texts.
pub(crate) struct Translations(HashMap<&'static str, &'static str>);

impl Translations {
    pub(crate) fn new() -> Self {
        Self(pairs().collect())
    }

    /// The translation of a text of the catalogue.
    ///
    /// # Panics
    /// If there is none: a page in two languages would be of no use.
    pub(crate) fn of(&self, english: &str) -> &'static str {
        let found = self.0.get(english);
        found.unwrap_or_else(|| {
            panic!("`{english}` has no translation: add it to crates/errors/src/chinese.txt")
        })
    }
}

/// All pairs, in the order of the file.
fn pairs() -> impl Iterator<Item = (&'static str, &'static str)> {
    let paragraphs = PAIRS.split("\n\n").map(str::trim);
    paragraphs.filter_map(|paragraph| {
        let (english, chinese) = paragraph.split_once('\n')?;
        (!english.starts_with('#')).then_some((english, chinese))
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::{CATALOGUE, CodeKind, markdown};

    /// Every text that the page translates.
    fn texts() -> HashSet<&'static str> {
        let entries = || CATALOGUE.into_iter().flatten();
        let causes = entries().flat_map(|entry| entry.causes);
        let of_causes = causes.flat_map(|cause| [cause.reason, cause.remedy]);
        let of_topics = CodeKind::ALL
            .into_iter()
            .flat_map(|topic| [topic.title(), markdown::opening(topic)]);
        let meanings = entries().map(|entry| entry.meaning);
        meanings.chain(of_causes).chain(of_topics).collect()
    }

    #[test]
    fn every_text_has_one_translation() {
        let translated: Vec<_> = pairs().map(|(english, _)| english).collect();
        let distinct: HashSet<_> = translated.iter().copied().collect();
        assert_eq!(translated.len(), distinct.len(), "a text is there twice");
        let texts = texts();
        let missing: Vec<_> = texts.difference(&distinct).collect();
        assert!(missing.is_empty(), "without a translation: {missing:#?}");
    }

    #[test]
    fn causes_that_no_entry_lists_are_the_only_spare_translations() {
        let spare = pairs().filter(|(english, _)| !texts().contains(english));
        let source = include_str!("cause.rs").replace("\\\n         ", "");
        let stale: Vec<_> = spare
            .filter(|(english, _)| !source.contains(english))
            .collect();
        assert!(stale.is_empty(), "not in the catalogue: {stale:#?}");
    }

    #[test]
    fn translations_are_chinese_and_keep_the_code() {
        let is_chinese = |text: &str| text.chars().any(|c| ('\u{4e00}'..='\u{9fff}').contains(&c));
        let code = |text: &'static str| -> Vec<&'static str> {
            let mut code: Vec<_> = text.split('`').skip(1).step_by(2).collect();
            code.retain(|word| word.contains('_') && !word.contains(' '));
            code.sort_unstable();
            code
        };
        for (english, chinese) in pairs() {
            assert!(is_chinese(chinese), "{chinese}");
            assert_eq!(code(english), code(chinese), "{english}");
        }
    }
}
