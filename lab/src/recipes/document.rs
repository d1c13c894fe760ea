//! A page with pieces of code under headings.

/// The text of a page.
pub(super) struct Document(String);

impl Document {
    pub(super) fn new(text: String) -> Self {
        Self(text)
    }

    /// The first piece of code in this language below this heading.
    pub(super) fn block(&self, heading: &str, language: &str) -> Result<&str, String> {
        self.find(heading, language)
            .ok_or_else(|| format!("there is no piece of {language} below `{heading}`"))
    }

    fn find(&self, heading: &str, language: &str) -> Option<&str> {
        let (_, below) = self.0.split_once(&format!("\n## {heading}\n"))?;
        let section = below.split("\n## ").next()?;
        let (_, code) = section.split_once(&format!("\n```{language}\n"))?;
        let end = code.find("\n```")?;
        Some(&code[..=end])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_found_below_its_heading() {
        let page = "# P\n\n## A\n\n```sh\none\ntwo\n```\n\n## B\n\n```yaml\nx: 1\n```\n";
        let page = Document::new(page.to_owned());
        assert_eq!(page.block("A", "sh"), Ok("one\ntwo\n"));
        assert_eq!(page.block("B", "yaml"), Ok("x: 1\n"));
        assert!(page.block("A", "yaml").is_err());
        assert!(page.block("C", "sh").is_err());
    }
}
