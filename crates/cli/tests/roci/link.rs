//! Links are kept, used and deleted.

use std::path::Path;

use crate::run_roci::{Directory, Outcome, address, roci};

fn link(config: &Path, arguments: &[&str]) -> Outcome {
    let command = roci([&["link"], arguments].concat());
    command.env("XDG_CONFIG_HOME", config).run()
}

#[test]
fn a_link_is_added_shown_used_and_deleted() {
    let directory = Directory::new("link");
    let config = directory.path();
    let none = link(config, &[]).success();
    assert!(none.contains("no links"), "{none}");
    let added = link(config, &["add", "rxe7", "netdev", &address(5)]).success();
    assert!(added.contains("rxe7 is a device now"), "{added}");

    let rows = link(config, &["--json"]).json();
    assert_eq!(
        rows,
        serde_json::json!([{ "name": "rxe7", "netdev": address(5), "kind": "software" }])
    );
    let devices = roci(["devices", "--json"])
        .env("XDG_CONFIG_HOME", config)
        .without_env("ROCI_DEVICES");
    assert_eq!(devices.run().json()[0]["name"], "rxe7");

    link(config, &["del", "rxe7"]).success();
    assert_eq!(link(config, &["--json"]).json(), serde_json::json!([]));
}

#[test]
fn arguments_of_the_rdma_tool_are_accepted() {
    let directory = Directory::new("link-words");
    let words = ["add", "rxe0", "type", "rxe", "netdev", "lo"];
    link(directory.path(), &words).success();
    assert_eq!(
        link(directory.path(), &["--json"]).json()[0]["netdev"],
        "lo"
    );
}

#[test]
fn an_impossible_link_is_rejected_with_a_sentence() {
    let directory = Directory::new("link-rejected");
    let rejected = |arguments: &[&str]| link(directory.path(), arguments).complaint();
    let complaint = rejected(&["add", "x", "netdev", "nosuch0"]);
    assert!(
        complaint.contains("there is no interface `nosuch0`"),
        "{complaint}"
    );
    let complaint = rejected(&["add", "x", "device", "lo"]);
    assert!(
        complaint.contains("write `roci link add NAME netdev INTERFACE`"),
        "{complaint}"
    );
    let complaint = rejected(&["del", "x"]);
    assert!(complaint.contains("there is no link `x`"), "{complaint}");
}
