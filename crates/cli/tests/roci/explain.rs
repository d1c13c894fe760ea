//! `roci explain` describes a capture.

use std::fs;
use std::io::Write;

use crate::run_roci::{Directory, roci};

/// A capture of the demo, in a directory of its own.
fn captured(name: &str) -> (Directory, String) {
    let directory = Directory::new(name);
    roci(["demo", "--capture", "demo.pcapng"])
        .within(directory.path())
        .run()
        .success();
    let path = directory.path().join("demo.pcapng").display().to_string();
    (directory, path)
}

#[test]
fn a_capture_of_the_demo_is_explained() {
    let (_directory, path) = captured("explain");
    let text = roci(["explain", &path]).run().success();
    for word in [
        "Connections",
        "SEND",
        "RDMA WRITE",
        "RDMA READ",
        "COMPARE & SWAP",
        "Ladder of connection 1",
    ] {
        assert!(text.contains(word), "{word}: {text}");
    }
    let json = roci(["explain", &path, "--json"]).run().json();
    assert_eq!(json["version"], 1);
    let messages = json["messages"].as_array().expect("a list");
    // One SEND, one WRITE, one READ, perhaps in pieces, and two swaps.
    assert!(messages.len() >= 5, "{messages:?}");
    assert!(messages.iter().all(|message| message["outcome"] == "done"));
}

#[test]
fn a_ladder_and_a_queue_pair_can_be_chosen() {
    let (_directory, path) = captured("explain-choice");
    let none = roci(["explain", &path, "--qp", "0x123"]).run().success();
    assert!(
        none.contains("No connection has that queue pair."),
        "{none}"
    );
    let plain = roci(["explain", &path, "--ladder", "0"]).run().success();
    assert!(!plain.contains("Ladder"), "{plain}");
}

#[test]
fn html_page_is_written_and_its_path_printed() {
    let (directory, path) = captured("explain-page");
    let page = directory.path().join("page.html");
    let name = page.display().to_string();
    let text = roci(["explain", &path, "--html", &name]).run().success();
    assert!(text.contains(&name), "{text}");
    let page = fs::read_to_string(page).expect("the page is there");
    assert!(page.contains("<h1>demo.pcapng</h1>"));
}

#[test]
fn several_captures_are_explained_together() {
    let (_directory, path) = captured("explain-two");
    let one = roci(["explain", &path, "--json"]).run().json();
    let two = roci(["explain", &path, &path, "--json"]).run().json();
    let packets = |json: &serde_json::Value| json["packets"].as_array().map(Vec::len);
    assert_eq!(packets(&one), packets(&two), "each packet once");
    let complaint = roci(["explain", &path, "/nonexistent.pcapng"])
        .run()
        .complaint();
    assert!(complaint.contains("/nonexistent.pcapng can't be opened"));
}

#[test]
fn capture_tells_posts_and_completions() {
    let (_directory, path) = captured("explain-posts");
    let json = roci(["explain", &path, "--json"]).run().json();
    let requests = json["work_requests"].as_array().expect("a list");
    assert!(requests.len() >= 5, "{requests:?}");
    for request in requests {
        assert_eq!(request["status"], "IBV_WC_SUCCESS", "{request}");
        let time = |name: &str| request[name].as_i64().expect("a time");
        assert!(time("posted_ns") <= time("completed_ns"), "{request}");
        assert!(time("completed_ns") <= time("polled_ns"), "{request}");
        let message = request["message"].as_u64().expect("a message") as usize;
        let begun = json["messages"][message]["begun_ns"].as_i64();
        assert!(begun.is_some_and(|begun| time("posted_ns") <= begun));
    }
    let text = roci(["explain", &path]).run().success();
    assert!(text.contains("Work requests"), "{text}");
    assert!(text.contains("\"hello from process"), "the data: {text}");
}

#[test]
fn capture_is_read_from_stdin() {
    let (directory, path) = captured("explain-stdin");
    let script = format!("{} explain - < {path}", env!("CARGO_BIN_EXE_roci"));
    let output = std::process::Command::new("sh")
        .args(["-c", &script])
        .current_dir(directory.path())
        .output()
        .expect("a shell");
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(text.contains("Ladder of connection 1"), "{text}");
}

#[test]
fn follow_tells_each_message_once_while_the_capture_grows() {
    let (directory, path) = captured("explain-follow");
    let text = roci(["explain", &path, "--messages", "1000"])
        .run()
        .success();
    // Beside these it tells what a busy machine caused, such as a packet that was sent again.
    let is_message = |line: &&String| line.ends_with("done");
    let lines: Vec<_> = text.lines().map(str::to_owned).collect();
    let messages = lines.iter().filter(is_message).count();
    let whole = fs::read(&path).expect("a capture");
    let growing = directory.path().join("growing.pcapng");
    // In the middle of a packet.
    let (begin, rest) = whole.split_at(whole.len() / 2 + 3);
    fs::write(&growing, begin).expect("a file");
    let arguments = ["explain", "--follow", growing.to_str().expect("text")];
    let mut following = roci(arguments).start();
    let mut first = following.line();
    while !is_message(&&first) {
        first = following.line();
    }
    let mut told = vec![first];
    let mut file = fs::OpenOptions::new().append(true).open(&growing);
    let written = file.as_mut().expect("a file").write_all(rest);
    written.expect("room");
    while told.iter().filter(is_message).count() < messages {
        told.push(following.line());
    }
    following.terminate();
    let more: Vec<_> = following.end().stdout.lines().map(str::to_owned).collect();
    assert_eq!(more.iter().find(is_message), None, "told twice");
}

#[test]
fn times_in_the_wrong_order_are_refused() {
    let (_directory, path) = captured("explain-times");
    let complaint = roci(["explain", &path, "--from", "5", "--to", "1"])
        .run()
        .complaint();
    assert!(complaint.contains("--from is after --to"), "{complaint}");
}

#[test]
fn text_of_a_status_needs_no_kind_and_no_quotes() {
    for words in [
        vec!["transport retry counter exceeded"],
        vec!["transport", "retry", "counter", "exceeded"],
    ] {
        let text = roci(["explain"].into_iter().chain(words)).run().success();
        assert!(text.starts_with("wc 12  IBV_WC_RETRY_EXC_ERR"), "{text}");
    }
    let complaint = roci(["explain", "no", "such", "text"]).run().complaint();
    assert!(complaint.contains("wc, event, nak"), "{complaint}");
}

#[test]
fn kinds_are_listed_and_codes_are_json() {
    let text = roci(["explain"]).run().success();
    assert!(text.contains("roci explain wc "), "{text}");
    let json = roci(["explain", "wc", "12", "--json"]).run().json();
    assert_eq!(json["entries"][0]["name"], "IBV_WC_RETRY_EXC_ERR");
    let json = roci(["explain", "event", "--json"]).run().json();
    assert_eq!(json["entries"].as_array().map(Vec::len), Some(20));
    let complaint = roci(["explain", "IBV_WC_NONSENSE"]).run().complaint();
    assert!(complaint.contains("wc, event, nak"), "{complaint}");
}

#[test]
fn name_of_a_code_needs_no_kind() {
    let text = roci(["explain", "IBV_WC_RNR_RETRY_EXC_ERR"])
        .run()
        .success();
    assert!(
        text.starts_with("wc 13  IBV_WC_RNR_RETRY_EXC_ERR"),
        "{text}"
    );
    let text = roci(["explain", "ENOMEM"]).run().success();
    assert!(text.starts_with("errno 12  ENOMEM"), "{text}");
}

#[test]
fn number_without_its_kind_gets_the_kinds_that_have_it() {
    let complaint = roci(["explain", "12"]).run().complaint();
    for command in [
        "`roci explain wc 12` (IBV_WC_RETRY_EXC_ERR)",
        "`roci explain errno 12` (ENOMEM)",
    ] {
        assert!(complaint.contains(command), "{complaint}");
    }
    let complaint = roci(["explain", "9999"]).run().complaint();
    assert!(complaint.contains("can't be opened"), "{complaint}");
}

#[test]
fn an_option_for_captures_is_rejected_with_a_code() {
    for option in [&["--html", "/nonexistent/page.html"][..], &["--follow"]] {
        let words = [&["explain"], option, &["wc", "12"]].concat();
        let complaint = roci(words).run().complaint();
        assert!(complaint.contains("are for captures"), "{complaint}");
    }
}

#[test]
fn unknown_kind_of_code_gets_a_list_of_the_kinds() {
    let complaint = roci(["explain", "status", "12"]).run().complaint();
    assert!(complaint.contains("wc, event, nak"), "{complaint}");
}

#[test]
fn a_file_that_is_no_capture_is_reported() {
    let complaint = roci(["explain", "/nonexistent.pcapng"]).run().complaint();
    assert!(complaint.contains("can't be opened"), "{complaint}");
    let program = env!("CARGO_BIN_EXE_roci");
    let complaint = roci(["explain", program]).run().complaint();
    assert!(complaint.contains("neither pcapng nor pcap"), "{complaint}");
}
