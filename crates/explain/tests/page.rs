//! Tests the text of the page. The tests in `browser` run it.

use std::fs;
use std::path::{Path, PathBuf};

use explain::Analysis;
use serde_json::Value;

fn captures() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../wire/tests/golden");
    let entries = fs::read_dir(directory).expect("a directory of captures");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "pcap")
        })
        .collect()
}

fn page_of(analysis: &Analysis, title: &str) -> String {
    let mut page = Vec::new();
    analysis
        .write_page(title, &mut page)
        .expect("writing to memory succeeds");
    String::from_utf8(page).expect("the page is text")
}

/// The data of the page's script.
fn data_of(page: &str) -> Value {
    let begin = "<script id=\"analysis\" type=\"application/json\">";
    let (_, behind) = page.split_once(begin).expect("the page contains the data");
    let (data, _) = behind.split_once("</script>").expect("the data has an end");
    serde_json::from_str(data).expect("the data is JSON")
}

#[test]
fn page_contains_all_data_of_every_capture() {
    for path in captures() {
        let name = path.display();
        let analysis = Analysis::read(fs::File::open(&path).expect("a file")).expect("a capture");
        let page = page_of(&analysis, "title");
        assert!(!page.contains("{{"), "{name}: every place is filled in");
        assert_eq!(
            page.matches("<script").count(),
            2,
            "{name}: the data and our script"
        );

        let data = data_of(&page);
        assert_eq!(data["packets"]["count"], analysis.packets.len(), "{name}");
        let length = |list: &str| data[list].as_array().map(Vec::len);
        assert_eq!(
            length("connections"),
            Some(analysis.connections.len()),
            "{name}"
        );
        assert_eq!(
            length("anomalies"),
            Some(analysis.anomalies.len()),
            "{name}"
        );
        // Eight bytes per packet in base64: three bytes become four characters.
        let times = data["packets"]["time"].as_str().expect("a column is text");
        assert_eq!(
            times.len(),
            (analysis.packets.len() * 8).div_ceil(3) * 4,
            "{name}"
        );
    }
}

#[test]
fn placeholder_in_the_title_is_not_expanded() {
    let path = captures().pop().expect("there are captures");
    let analysis = Analysis::read(fs::File::open(path).expect("a file")).expect("a capture");
    let page = page_of(&analysis, "{{analysis}}{{nonce}}");
    assert!(page.contains("<h1>{{analysis}}{{nonce}}</h1>"));
}
