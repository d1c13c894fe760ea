//! Measurements between two devices of this machine, with few messages.

use serde_json::Value;

use crate::run_roci::{Directory, address, roci};

/// Runs a test between two addresses of its own: what the client printed for scripts.
fn measure(host: u8, test: &str, more: &[&str]) -> Value {
    let (here, there) = (address(host), address(host + 1));
    let mut server = roci(["perf", test, "-d", &there, "-p", "0"]).start();
    let line = server.line();
    let port = line
        .rsplit(' ')
        .next()
        .expect("the line ends with the port");
    let client = ["perf", test, &there, "-d", &here, "-p", port, "--json"];
    let outcome = roci([&client, more].concat()).run();
    let report = outcome.json();
    let served = server.end().success();
    assert!(served.contains(&format!("measures {test}")), "{served}");
    report
}

#[track_caller]
fn positive(value: &Value) -> f64 {
    let number = value.as_f64().expect("a number");
    assert!(number > 0.0, "{number}");
    number
}

#[test]
fn write_bandwidth_prints_average_and_peak() {
    let report = measure(10, "write-bw", &["-s", "16K", "-n", "100", "-q", "3"]);
    assert_eq!(report["test"], "write-bw");
    assert_eq!(report["service"], "RC");
    assert_eq!(report["mtu"], 4096, "the one that was agreed");
    let row = &report["results"][0];
    assert_eq!(
        (&row["bytes"], &row["iterations"]),
        (&16384.into(), &100.into())
    );
    let average = positive(&row["average_mib_per_second"]);
    assert!(positive(&row["peak_mib_per_second"]) >= average, "{row}");
}

#[test]
fn send_latency_prints_ordered_percentiles() {
    let report = measure(12, "send-lat", &["-s", "64", "-n", "50"]);
    let row = &report["results"][0];
    assert_eq!(row["iterations"], 50);
    let times = ["min_us", "typical_us", "p99_us", "max_us"].map(|name| positive(&row[name]));
    assert!(times.is_sorted(), "{row}");
}

#[test]
fn every_other_test_prints_a_result() {
    for test in [
        "send-bw",
        "read-bw",
        "atomic-bw",
        "write-lat",
        "read-lat",
        "atomic-lat",
    ] {
        let report = measure(14, test, &["-n", "20", "-t", "4"]);
        assert_eq!(report["results"][0]["iterations"], 20, "{test}: {report}");
    }
}

#[test]
fn unreliable_services_report_losses() {
    for service in ["UC", "UD"] {
        let report = measure(16, "send-bw", &["-c", service, "-s", "512", "-n", "50"]);
        let lost = report["results"][0]["lost_percent"]
            .as_f64()
            .expect("a number");
        assert!((0.0..=100.0).contains(&lost), "{service}: {report}");
    }
}

/// All of them find a receive. The last ones may arrive after the client has said that it is done.
#[test]
fn no_datagram_is_lost_on_the_way_to_another_thread() {
    let words = "perf send-bw -c UD --local --json -n 500 --rx-depth 512";
    for _ in 0..8 {
        let report = roci(words.split(' ')).run().json();
        assert_eq!(report["results"][0]["lost_percent"], 0.0, "{report}");
    }
}

#[test]
fn event_mode_is_measured() {
    let report = measure(18, "send-lat", &["-e", "-n", "20"]);
    positive(&report["results"][0]["typical_us"]);
}

#[test]
fn a_bidirectional_test_runs_for_a_duration() {
    let report = measure(20, "send-bw", &["-b", "-D", "0.1", "-s", "4K"]);
    positive(&report["results"][0]["average_mib_per_second"]);
}

#[test]
fn one_command_compares_with_tcp() {
    let arguments = [
        "perf", "write-bw", "--local", "--vs-tcp", "-n", "50", "--rounds", "3",
    ];
    let text = roci(arguments).run().success();
    assert!(
        text.contains("BW average[MiB/sec]") && text.contains("RDMA/TCP"),
        "{text}"
    );
    let row = text.lines().nth(2).expect("a row");
    assert!(row.split_whitespace().count() == 8, "{row}");
    let report = roci([&arguments[..], &["--json"]].concat()).run().json();
    let tcp = &report["results"][0]["tcp"];
    let ratios = ["ratio_min", "ratio", "ratio_max"].map(|name| positive(&tcp[name]));
    assert!(ratios.is_sorted(), "{tcp}");
}

#[test]
fn all_sizes_of_a_datagram_end_with_the_mtu() {
    let report = measure(22, "send-lat", &["-c", "UD", "-a", "-n", "3", "-m", "1024"]);
    let rows = report["results"].as_array().expect("rows");
    assert_eq!(rows.len(), 10, "{report}");
    assert_eq!(rows[9]["bytes"], 1024);
}

#[test]
fn each_interval_has_a_line() {
    // Far more intervals than are expected: one in which a process waits for a processor is longer.
    let words = ["perf", "write-bw", "--local", "-D", "3", "-i", "0.2"];
    let printed = roci(words).run().success();
    let intervals = printed.lines().filter(|line| line.ends_with("Mpps"));
    assert!(intervals.count() >= 3, "{printed}");
    assert!(printed.contains("BW average"), "{printed}");
}

#[test]
fn results_are_written_as_a_page() {
    let directory = Directory::new("perf-html");
    let path = directory.path().join("page.html");
    let name = path.display().to_string();
    let words = ["perf", "send-lat", "--local", "-n", "50", "--html", &name];
    roci(words).run().success();
    let page = std::fs::read_to_string(&path).expect("a page");
    assert!(page.contains("Latency by size") && page.contains("Latency of 2 bytes"));
    assert!(
        page.contains("<rect") && page.contains("t_typical"),
        "{page}"
    );
    let words = [
        "perf",
        "send-lat",
        "--local",
        "-n",
        "5",
        "--html",
        "/no/such/page",
    ];
    let complaint = roci(words).run().complaint();
    assert!(
        complaint.contains("/no/such/page can't be written"),
        "{complaint}"
    );
}

#[test]
fn a_mistake_in_the_faults_is_reported_once() {
    let local = roci(["perf", "send-lat", "--local", "-n", "10"]);
    let complaint = local
        .env("ROCI_FAULT", "drop:opcode=RC_SEND_ONYL")
        .run()
        .complaint();
    assert!(
        complaint.contains("did you mean RC_SEND_ONLY?"),
        "{complaint}"
    );
}

#[test]
fn a_fault_that_meets_no_packet_is_named() {
    let test = ["perf", "send-lat", "--local", "-n", "20"];
    let unused = "drop:opcode=RC_COMPARE_SWAP,nth=1";
    let faults = format!("{unused};delay:opcode=RC_SEND_ONLY,nth=3,by=1ms");
    let outcome = roci(test).env("ROCI_FAULT", faults).run();
    let remark = format!("no packet had the fault `{unused}`");
    assert_eq!(outcome.stderr.matches(&remark).count(), 1, "{outcome:?}");
    assert_eq!(
        outcome.stderr.matches(unused).count(),
        1,
        "both ends: {outcome:?}"
    );
    assert!(!outcome.stderr.contains("RC_SEND_ONLY"), "{outcome:?}");
    outcome.success();
}

#[test]
fn a_fault_that_only_packets_of_the_local_server_have_is_not_called_unused() {
    // The server of this test reads nothing, so the client sends no response.
    let test = ["perf", "read-lat", "--local", "-n", "20"];
    let fault = "delay:opcode=RC_READ_RESPONSE,nth=1,by=1ms";
    let outcome = roci(test).env("ROCI_FAULT", fault).run();
    assert!(!outcome.stderr.contains("had the fault"), "{outcome:?}");
    outcome.success();
}
