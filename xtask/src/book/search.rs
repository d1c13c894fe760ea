//! The search of the books, in a real browser.

use std::path::Path;
use std::process::Command;

const BROWSER: &str = "/usr/bin/chromium";

/// A query in a book, and a page that must be among its results.
const QUERIES: [(&str, &str, &str); 3] = [
    ("en", "rnr_retry", "docs/errors.html"),
    ("zh-CN", "rnr_retry", "docs/zh-CN/errors.html"),
    (
        "zh-CN",
        "接收方未就绪",
        "docs/zh-CN/tutorial/2-rc_test.html",
    ),
];

/// Longer than the page needs for its search, in the browser's own time.
const TIME_BUDGET: &str = "--virtual-time-budget=10000";

/// Why the search can't be tried here, if it can't.
pub(super) fn missing() -> Option<&'static str> {
    (!Path::new(BROWSER).exists())
        .then_some("chromium is not installed (`apt-get install chromium`)")
}

/// Fails if a query does not find its page.
pub(super) fn check(output: &Path) -> Result<(), String> {
    for (language, query, page) in QUERIES {
        let address = format!(
            "file://{}/{language}/index.html?search={query}",
            output.display()
        );
        let found = Command::new(BROWSER)
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"])
            .args([TIME_BUDGET, &address])
            .output()
            .map_err(|error| format!("{BROWSER}: {error}"))?;
        let text = String::from_utf8_lossy(&found.stdout);
        if !results(&text).contains(page) {
            let errors = String::from_utf8_lossy(&found.stderr);
            return Err(format!(
                "{errors}\n{address}: {page} is not among the results"
            ));
        }
    }
    Ok(())
}

/// The list of results in a page.
fn results(page: &str) -> &str {
    let (_, list) = page
        .split_once("id=\"mdbook-searchresults\"")
        .unwrap_or_default();
    list.split("</ul>").next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_list_of_results_counts() {
        let page = "<a href=a.html><ul id=\"mdbook-searchresults\"><li>b.html</li></ul>c.html";
        assert!(results(page).contains("b.html"));
        assert!(!results(page).contains("a.html"));
        assert!(!results(page).contains("c.html"));
        assert_eq!(results("no list"), "");
    }
}
