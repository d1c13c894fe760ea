//! A page in another language says what its original says: the same headings in the same order, and the same code.
//!
//! Words can't be compared. But what changes in a page is mostly a command, an output or a section, so a translation that was
//! forgotten differs here.

use std::fs;
use std::io;
use std::path::Path;

/// The translation of the front page.
const FRONT_PAGE: (&str, &str) = ("README.md", "README.zh-CN.md");

/// Where originals are, and where their translations are under the same names.
const DIRECTORIES: [(&str, &str); 2] = [
    ("docs", "docs/zh-CN"),
    ("docs/tutorial", "docs/zh-CN/tutorial"),
];

const FENCE: &str = "```";

/// One line for each translation that differs from its original.
pub(crate) fn findings(root: &Path) -> io::Result<Vec<String>> {
    let mut pairs = vec![(FRONT_PAGE.0.to_owned(), FRONT_PAGE.1.to_owned())];
    for (originals, translations) in DIRECTORIES {
        for entry in fs::read_dir(root.join(translations))? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if name.ends_with(".md") {
                pairs.push((
                    format!("{originals}/{name}"),
                    format!("{translations}/{name}"),
                ));
            }
        }
    }
    let mut findings = Vec::new();
    for (original, translation) in pairs {
        let Ok(text) = fs::read_to_string(root.join(&original)) else {
            findings.push(format!("{translation}: {original} does not exist"));
            continue;
        };
        let translated = fs::read_to_string(root.join(&translation))?;
        if let Some(difference) = difference(&text, &translated) {
            findings.push(format!("{translation} and {original}: {difference}"));
        }
    }
    Ok(findings)
}

/// What must be the same in both.
struct Page<'p> {
    /// How many `#` each heading has.
    headings: Vec<usize>,
    blocks: Vec<Block<'p>>,
}

struct Block<'p> {
    line: usize,
    /// What follows the three back-ticks.
    info: &'p str,
    lines: Vec<&'p str>,
}

impl<'p> Page<'p> {
    fn parse(text: &'p str) -> Self {
        let (mut headings, mut blocks) = (Vec::new(), Vec::new());
        let mut lines = text.lines().enumerate();
        while let Some((index, line)) = lines.next() {
            if let Some(info) = line.trim_start().strip_prefix(FENCE) {
                let inside = lines.by_ref().map(|(_, inside)| inside);
                blocks.push(Block {
                    line: index + 1,
                    info,
                    lines: inside.take_while(|inside| inside.trim() != FENCE).collect(),
                });
            } else if line.starts_with('#') {
                headings.push(line.bytes().take_while(|byte| *byte == b'#').count());
            }
        }
        Self { headings, blocks }
    }
}

impl Block<'_> {
    fn is_translation_of(&self, original: &Block<'_>) -> bool {
        let commands = |block: &Block<'_>| -> Vec<String> {
            let lines = block.lines.iter().map(|line| without_comment(line));
            lines.filter(|line| !line.is_empty()).collect()
        };
        if self.info != original.info {
            return false;
        }
        if self.info.starts_with("sh") {
            return commands(self) == commands(original);
        }
        let mut lines = self.lines.iter().zip(&original.lines);
        self.lines.len() == original.lines.len()
            && lines.all(|(translated, line)| translated == line || has_foreign_words(translated))
    }
}

fn difference(original: &str, translation: &str) -> Option<String> {
    let (original, translation) = (Page::parse(original), Page::parse(translation));
    if original.headings != translation.headings {
        return Some("their headings are not at the same levels in the same order".to_owned());
    }
    let counts = [&translation, &original].map(|page| page.blocks.len());
    if counts[0] != counts[1] {
        return Some(format!("{} and {} blocks of code", counts[0], counts[1]));
    }
    let mut blocks = translation.blocks.iter().zip(&original.blocks);
    let (translated, block) = blocks.find(|(ours, theirs)| !ours.is_translation_of(theirs))?;
    Some(format!(
        "the blocks of code in lines {} and {} differ",
        translated.line, block.line
    ))
}

/// A comment begins with a `#` behind a space, or at the beginning.
fn without_comment(line: &str) -> String {
    let begin = if line.starts_with('#') {
        Some(0)
    } else {
        line.find(" #")
    };
    line[..begin.unwrap_or(line.len())].trim().to_owned()
}

/// A comment or an explanation in a block may be translated.
fn has_foreign_words(line: &str) -> bool {
    line.chars().any(|it| it.is_alphabetic() && !it.is_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "\
# Title

```sh server
echo one   # in English
```

## Section

```text
one      # a number
two
```
";

    fn after(from: &str, to: &str) -> Option<String> {
        assert!(PAGE.contains(from));
        difference(PAGE, &PAGE.replace(from, to))
    }

    #[test]
    fn titles_and_comments_may_be_translated() {
        assert_eq!(after("Title", "标题"), None);
        assert_eq!(after("in English", "中文"), None);
        assert_eq!(after("a number", "数字"), None);
    }

    #[test]
    fn commands_output_and_headings_must_be_the_same() {
        let differ = |lines| Some(format!("the blocks of code in lines {lines} differ"));
        assert_eq!(after("echo one", "echo two"), differ("3 and 3"));
        assert_eq!(after("sh server", "sh client"), differ("3 and 3"));
        assert_eq!(after("\ntwo", "\nthree"), differ("9 and 9"));
        assert_eq!(after("\ntwo", ""), differ("9 and 9"));
        assert!(after("## Section", "Section").is_some());
        assert!(after("## Section", "### Section").is_some());
        assert!(after("```text\none      # a number\ntwo\n```\n", "").is_some());
    }

    #[test]
    fn every_translation_has_an_original() {
        let root = std::env::temp_dir().join(format!("translations-{}", std::process::id()));
        fs::create_dir_all(root.join("docs/zh-CN/tutorial")).expect("a directory");
        for (name, text) in [
            ("README.md", "# A\n"),
            ("README.zh-CN.md", "# 一\n"),
            ("docs/zh-CN/new.md", "# 二\n"),
        ] {
            fs::write(root.join(name), text).expect("written");
        }
        let found = findings(&root).expect("read");
        fs::remove_dir_all(&root).expect("removed");
        assert_eq!(found, ["docs/zh-CN/new.md: docs/new.md does not exist"]);
    }
}
