//! The page in a real browser.
//!
//! These tests need `chromium` and `chromedriver`, so an ordinary `cargo test` leaves them out.
//! `cargo xtask test --only browser` runs them, and installs the browser where it may.

mod captures;
mod driver;
mod example_capture;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use captures::CaptureBuilder;
use driver::Browser;
use explain::{Analysis, AnomalyKind};
use serde_json::{Value, json};
use wire::cm::{ConnectRequest, PrivateData};
use wire::{NakCode, Opcode, Syndrome};

fn golden(name: &str) -> Vec<u8> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../wire/tests/golden");
    fs::read(directory.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn analysis_of(capture: &[u8]) -> Analysis {
    Analysis::read(capture).expect("a capture")
}

/// A browser that has opened the page of an analysis, and how long that took in milliseconds.
fn opened(title: &str, analysis: &Analysis) -> (Browser, u64) {
    let browser = Browser::start();
    let page = write_page(browser.directory(), title, analysis);
    let ready = browser.open(&page);
    assert_eq!(browser.log_entries(), [""; 0], "the page is silent");
    (browser, ready)
}

fn write_page(directory: &Path, title: &str, analysis: &Analysis) -> PathBuf {
    let page = directory.join("page.html");
    let mut file = driver::create(&page);
    analysis.write_page(title, &mut file).expect("a page");
    page
}

/// The number in "12 of 3,456 packets" or "3,456 packets".
fn shown(browser: &Browser) -> usize {
    let text = browser.text("document.getElementById('shown').textContent");
    let number: String = text.split(' ').next().unwrap_or_default().replace(',', "");
    number
        .parse()
        .unwrap_or_else(|_| panic!("{text} begins with a number"))
}

/// The value of a field of the shown packet.
fn field(browser: &Browser, name: &str) -> String {
    browser.text(&format!(
        "[...document.querySelectorAll('#packet th')].find((cell) => cell.textContent === {name:?}).nextSibling.textContent"
    ))
}

/// A position in the window on the arrow of a packet.
fn position_of_packet(browser: &Browser, packet: usize) -> (f64, f64) {
    let position = browser.run(&format!(
        "const box = ladder.canvas.getBoundingClientRect();
         return [box.x + lifelineX(ladder.lifelines[0]) + 60, box.y + topOf(rowOf({packet})) + ladder.rowHeight / 2];"
    ));
    let part = |index: usize| position[index].as_f64().expect("a coordinate");
    (part(0), part(1))
}

#[test]
#[ignore = "needs a browser: cargo xtask test --only browser"]
fn page_with_100000_packets_opens_and_scrolls_fast() {
    let analysis = analysis_of(&captures::many_packets(100_000));
    let (browser, first) = opened("many.pcapng", &analysis);
    assert_eq!(shown(&browser), analysis.packets.len());
    let page = browser.directory().join("page.html");
    // Other load on the machine only adds time, so the shortest time counts.
    let mut ready = vec![first];
    ready.extend((1..5).map(|_| browser.open(&page)));
    let frames = browser.run(
        "return Array.from({ length: 60 }, (_, step) => {
           const begin = performance.now();
           scrollTo(step * contentHeight() / 60);
           draw();
           return performance.now() - begin;
         }).sort((a, b) => a - b);",
    );
    let frame = frames[30].as_f64().expect("a time");
    let packets = analysis.packets.len();
    println!(
        "{packets} packets: ready after {ready:?} ms, half of the frames within {frame:.1} ms"
    );
    assert!(
        ready.iter().any(|&time| time < 2000),
        "it takes too long to open"
    );
    assert!(frame < 33.0, "that is not smooth");
}

#[test]
#[ignore = "needs a browser: cargo xtask test --only browser"]
fn clicked_packet_is_shown() {
    let analysis = analysis_of(&golden("gold-badrkey.pcap"));
    let (browser, _) = opened("gold-badrkey.pcap", &analysis);
    for (index, packet) in analysis.packets.iter().enumerate() {
        let (x, y) = position_of_packet(&browser, index);
        browser.click(x, y);
        assert_eq!(field(&browser, "Frame"), packet.frame.to_string());
        assert_eq!(field(&browser, "PSN"), packet.psn.to_string());
    }
}

#[test]
#[ignore = "needs a browser: cargo xtask test --only browser"]
fn headers_equal_those_of_the_command() {
    let browser = Browser::start();
    for name in [
        "gold-cas.pcap",
        "gold-fadd.pcap",
        "gold-sendinv.pcap",
        "gold-wimm.pcap",
        "gold-readbig.pcap",
        "gold-rnr.pcap",
        "udaddy.pcap",
    ] {
        let analysis = analysis_of(&golden(name));
        browser.open(&write_page(browser.directory(), name, &analysis));
        let seen = browser.ask(
            "Array.from({ length: packets.count }, (_, packet) => decode(packet).map(([name, fields]) =>
                ({ name, fields: fields.map(([name, value]) => ({ name, value: String(value) })) })))",
        );
        let layers: Vec<_> = analysis
            .packet_ids()
            .map(|id| analysis.layers(id))
            .collect();
        assert_eq!(seen, json!(layers), "{name}");
    }
}

#[test]
#[ignore = "needs a browser: cargo xtask test --only browser"]
fn filter_shows_matching_packets() {
    let analysis = analysis_of(&golden("gold-batch.pcap"));
    let (browser, _) = opened("gold-batch.pcap", &analysis);
    let all = analysis.packets.len();
    assert_eq!(shown(&browser), all);

    browser.press("/read");
    let reads = analysis
        .packets
        .iter()
        .filter(|packet| packet.opcode.to_string().contains("READ"));
    assert_eq!(shown(&browser), reads.count());

    browser.click_on("#clear");
    assert_eq!(shown(&browser), all);

    browser.click_on("#connections button:last-child");
    let last = analysis.connections.last().expect("a connection");
    assert_eq!(shown(&browser) as u64, last.packets);
    let width = browser.ask("ladder.lifelines.length");
    assert_eq!(width, json!(2));

    browser.click_on("#clear");
    browser.press("/qp:0x2");
    assert_eq!(
        shown(&browser),
        0,
        "no queue pair has a number as small as this"
    );
    let number = analysis.number_at(analysis.packets[0].connection, explain::Side::Left);
    let number = number.expect("the connection manager named it");
    browser.click_on("#clear");
    browser.press(&format!("/qp:{number}"));
    assert_eq!(shown(&browser), all);

    browser.click_on("#choices .manage");
    let managed = analysis
        .packets
        .iter()
        .filter(|packet| packet.role == explain::Role::Manage);
    assert_eq!(shown(&browser), managed.count());
}

#[test]
#[ignore = "needs a browser: cargo xtask test --only browser"]
fn click_on_an_anomaly_selects_its_packet() {
    let analysis = analysis_of(&golden("gold-badrkey.pcap"));
    let (browser, _) = opened("gold-badrkey.pcap", &analysis);
    let position = analysis
        .anomalies
        .iter()
        .position(|anomaly| anomaly.kind == AnomalyKind::RemoteAccess);
    let position = position.expect("the capture shows a rejected key");
    let packet = analysis.anomalies[position]
        .packet
        .expect("a packet shows it");

    browser.click_on(&format!("[data-anomaly='{position}'] .jump"));
    assert_eq!(browser.ask("ladder.selected"), json!(packet.index()));
    assert_eq!(field(&browser, "PSN"), analysis[packet].psn.to_string());
    assert!(field(&browser, "Syndrome").contains("NAK remote access error"));
    let y = browser.ask(&format!("topOf(rowOf({}))", packet.index()));
    let y = y.as_f64().expect("a coordinate");
    assert!(y > 0.0 && y < f64::from(Browser::HEIGHT), "it is visible");

    let words = browser.text(&format!(
        "document.querySelector(\"[data-anomaly='{position}']\").textContent"
    ));
    let explanation = AnomalyKind::RemoteAccess.explanation();
    assert!(words.contains(&analysis.anomalies[position].sentence));
    assert!(words.contains(explanation.rule) && words.contains(explanation.causes[0]));
}

#[test]
#[ignore = "needs a browser: cargo xtask test --only browser"]
fn keys_work_as_documented_in_the_help() {
    let analysis = analysis_of(&golden("loss5-requests-send.pcap"));
    let (browser, _) = opened("loss5-requests-send.pcap", &analysis);
    let selected = || browser.ask("ladder.selected");
    browser.press("jjj");
    assert_eq!(selected(), json!(2));
    browser.press("k");
    assert_eq!(selected(), json!(1));
    browser.press("n");
    let first = analysis.anomalies[0].packet.expect("a packet shows it");
    assert_eq!(selected(), json!(first.index()));
    browser.press("G");
    browser.wait_for("ladder.scroll === largestScroll()");
    let height = || browser.ask("ladder.rowHeight").as_f64().expect("a height");
    let before = height();
    browser.press("+");
    assert!(height() > before, "it has become larger");
    browser.press("t");
    assert_eq!(browser.ask("ladder.mode"), json!("time"));
    // Escape, by its number in the protocol.
    browser.press("\u{e00c}");
    assert_eq!(selected(), Value::Null);
}

#[test]
#[ignore = "needs a browser: cargo xtask test --only browser"]
fn hostile_capture_runs_no_script() {
    const HOSTILE: &str =
        "</script><script>window.broken = 1</script><img src=x onerror='window.broken = 2'><!--";
    let mut capture = CaptureBuilder::new();
    let request = ConnectRequest {
        private_data: PrivateData::new(HOSTILE.as_bytes()).expect("it fits into a REQ"),
        ..ConnectRequest::default()
    };
    capture.manages(captures::CLIENT, request.into(), Some(HOSTILE));
    let analysis = analysis_of(&capture.bytes());
    let (browser, _) = opened(HOSTILE, &analysis);
    browser.press("j");
    assert_eq!(
        browser.text("document.querySelector('h1').textContent"),
        HOSTILE
    );
    assert_eq!(
        browser.text("document.querySelector('.comment').textContent"),
        HOSTILE
    );
    assert!(field(&browser, "Private data").contains(HOSTILE));
    assert_eq!(browser.ask("window.broken ?? null"), Value::Null);
    assert_eq!(
        browser.ask("document.querySelectorAll('img').length"),
        json!(0)
    );

    // Even inserted markup must not run.
    browser.run("document.body.insertAdjacentHTML('beforeend', \"<img src=x onerror='window.broken = 3'>\");");
    browser.run("const script = document.createElement('script'); script.textContent = 'window.broken = 4'; document.body.append(script);");
    browser.wait_for("document.querySelector('img').complete");
    assert_eq!(browser.ask("window.broken ?? null"), Value::Null);
    let complaints = browser.log_entries().join("\n");
    assert!(
        complaints.contains("Content Security Policy"),
        "{complaints}"
    );
}

#[test]
#[ignore = "needs a browser: cargo xtask test --only browser"]
fn page_needs_no_network_follows_the_colour_scheme_and_prints() {
    let analysis = analysis_of(&golden("gold-rnrok.pcap"));
    let (browser, _) = opened("gold-rnrok.pcap", &analysis);
    assert_eq!(
        browser.ask("performance.getEntriesByType('resource').length"),
        json!(0)
    );
    let background = |scheme| {
        browser.prefer(scheme);
        browser.text("getComputedStyle(document.body).backgroundColor")
    };
    assert_eq!(background("light"), "rgb(255, 255, 255)");
    assert_eq!(background("dark"), "rgb(21, 24, 28)");
    browser.wait_for("palette.paper === '#15181c'");
    assert!(browser.print().starts_with(b"%PDF"));
}

#[test]
#[ignore = "needs a browser: cargo xtask test --only browser"]
fn a_word_after_an_exclamation_mark_leaves_packets_out() {
    let analysis = analysis_of(&golden("gold-batch.pcap"));
    let (browser, _) = opened("gold-batch.pcap", &analysis);
    let all = analysis.packets.len();
    browser.press("/!read");
    let reads = analysis
        .packets
        .iter()
        .filter(|packet| packet.opcode.to_string().contains("READ"));
    assert_eq!(shown(&browser), all - reads.count());
    browser.press(" nonsense");
    assert_eq!(shown(&browser), 0);
    let hint = browser.text("filterHint()");
    assert!(hint.contains("Without \"nonsense\", some would"), "{hint}");
}

#[test]
#[ignore = "needs a browser: cargo xtask test --only browser"]
fn the_address_leads_to_the_same_view() {
    let analysis = analysis_of(&golden("gold-batch.pcap"));
    let (browser, _) = opened("gold-batch.pcap", &analysis);
    browser.press("/send");
    // Enter leaves the field.
    browser.press("\u{e007}jjt");
    browser.click_on("[data-view='messages']");
    let (rows, packet) = (shown(&browser), browser.ask("ladder.selected"));
    let address = browser.text("location.hash");
    for part in ["filter=send", "packet=", "mode=time", "view=messages"] {
        assert!(address.contains(part), "{address}");
    }
    browser.run("location.hash = ''");
    browser.wait_for("plot.view === 'ladder' && ladder.selected === null");
    assert_eq!(shown(&browser), analysis.packets.len());
    browser.run(&format!("location.hash = {address:?}"));
    browser.wait_for("plot.view === 'messages'");
    assert_eq!(shown(&browser), rows);
    assert_eq!(browser.ask("ladder.selected"), packet);
    assert_eq!(browser.ask("ladder.mode"), json!("time"));
    // An address can say anything.
    browser.run("location.hash = '#packet=99999999&connection=-1&opcode=x&view=none&only=all'");
    browser.wait_for("plot.view === 'ladder'");
    assert_eq!(shown(&browser), analysis.packets.len());
    assert_eq!(browser.log_entries(), [""; 0]);
}

#[test]
#[ignore = "needs a browser: cargo xtask test --only browser"]
fn messages_are_bars_and_a_click_selects_their_first_packet() {
    let analysis = analysis_of(&golden("loss5-requests-send.pcap"));
    let (browser, _) = opened("loss5-requests-send.pcap", &analysis);
    browser.press("m");
    let bars = browser.ask("plot.marks.length");
    assert_eq!(bars, json!(analysis.messages.len()));
    let mark = browser.run(
        "const box = plot.canvas.getBoundingClientRect();
         const mark = plot.marks[2];
         return [box.x + mark.x + mark.width / 2, box.y + mark.y + mark.height / 2, mark.packet];",
    );
    let part = |index: usize| mark[index].as_f64().expect("a number");
    browser.click(part(0), part(1));
    assert_eq!(browser.ask("ladder.selected"), mark[2]);
    let message = &analysis.messages[2];
    assert_eq!(mark[2], json!(message.first.index()));
    // Zooming keeps the rest out of sight, and a filter leaves bars out.
    browser.press("/nothing");
    assert_eq!(browser.ask("plot.marks.length"), json!(0));
}

#[test]
#[ignore = "needs a browser: cargo xtask test --only browser"]
fn the_sequence_graph_has_each_request_and_response_once() {
    let analysis = analysis_of(&golden("loss5-requests-send.pcap"));
    let (browser, _) = opened("loss5-requests-send.pcap", &analysis);
    browser.press("q");
    let points = browser.ask("plot.marks.length");
    let plotted = analysis
        .packets
        .iter()
        .filter(|packet| packet.role != explain::Role::Manage);
    assert_eq!(points, json!(plotted.count()));
    // What was sent again is lower than what was sent before it.
    let goes_back = browser.ask(
        "psnPoints(0).some((point, at, all) => at && point.isRequest && point.psn < all[at - 1].psn) ||
         psnPoints(1).some((point, at, all) => at && point.isRequest && point.psn < all[at - 1].psn)",
    );
    assert_eq!(goes_back, json!(true));
}

#[test]
#[ignore = "needs a browser: cargo xtask test --only browser"]
fn payload_is_shown_in_digits_and_as_text() {
    let analysis = analysis_of(&golden("rping.pcap"));
    let (browser, _) = opened("rping.pcap", &analysis);
    let id = analysis
        .packet_ids()
        .find(|&id| analysis.payload(id).starts_with(b"rdma-ping-0"))
        .expect("rping sends its text");
    browser.run(&format!("selectPacket({})", id.index()));
    let text = browser.text("document.querySelector('.payload').textContent");
    assert!(text.contains("72 64 6d 61 2d 70 69 6e  rdma-pin"), "{text}");
}

#[test]
#[ignore = "needs a browser: cargo xtask test --only browser"]
fn anomalies_of_one_kind_are_together() {
    let analysis = analysis_of(&golden("loss5-requests-send.pcap"));
    let (browser, _) = opened("loss5-requests-send.pcap", &analysis);
    let mut kinds: Vec<_> = analysis.anomalies.iter().map(|it| it.kind as u8).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let groups = browser.ask("document.querySelectorAll('#anomalies .kind').length");
    assert_eq!(groups, json!(kinds.len()));
    let items = browser.ask("document.querySelectorAll('#anomalies article').length");
    assert_eq!(items, json!(analysis.anomalies.len()));
    // A folded kind opens when one of its anomalies is chosen.
    browser.run("document.querySelectorAll('.kind').forEach((group) => { group.open = false; })");
    browser.press("n");
    browser.wait_for("document.querySelector('.chosen').closest('.kind').open");
}

#[test]
#[ignore = "needs a browser: cargo xtask test --only browser"]
fn an_exported_selection_is_a_capture_of_the_same_packets() {
    for name in ["gold-batch.pcap", "ipv6/rc-pingpong-gid0.pcap"] {
        let analysis = analysis_of(&golden(name));
        let (browser, _) = opened(name, &analysis);
        browser.press("/send");
        let rows = shown(&browser);
        assert!(rows > 0, "{name}");
        let bytes = browser.ask(
            "[sectionHeader(), interfaceDescription(), ...Array.from(ladder.rows, packetBlock)].flatMap((block) => [...block])",
        );
        let bytes: Vec<u8> = serde_json::from_value(bytes).expect("bytes");
        let exported = Analysis::read(&bytes[..]).expect("a capture");
        assert_eq!(exported.packets.len(), rows, "{name}");
        let psns = |analysis: &Analysis, wanted: &dyn Fn(usize) -> bool| {
            let packets = analysis.packets.iter().enumerate();
            let packets = packets.filter(|(index, _)| wanted(*index));
            packets
                .map(|(_, packet)| (packet.psn, packet.opcode, packet.length))
                .collect::<Vec<_>>()
        };
        let rows: Vec<usize> =
            serde_json::from_value(browser.ask("[...ladder.rows]")).expect("numbers");
        assert_eq!(
            psns(&exported, &|_| true),
            psns(&analysis, &|index| rows.contains(&index)),
            "{name}"
        );
    }
}

#[test]
#[ignore = "needs a browser: cargo xtask test --only browser"]
fn many_hosts_fit_the_window() {
    let analysis = analysis_of(&captures::many_hosts(12));
    let (browser, _) = opened("hosts.pcapng", &analysis);
    browser.resize(1280, 800);
    browser.wait_for("size.width > 500");
    let fits = browser.ask("ladder.scroller.scrollWidth <= ladder.scroller.clientWidth");
    assert_eq!(fits, json!(true));
    browser.wait_for("ladder.lifelines.length >= 12");
}

#[test]
#[ignore = "needs a browser: cargo xtask test --only browser"]
fn names_of_many_hosts_are_whole_or_can_be_told_apart() {
    let analysis = analysis_of(&captures::many_hosts(12));
    let (browser, _) = opened("hosts.pcapng", &analysis);
    browser.resize(1280, 800);
    browser.wait_for("size.width > 500");
    let differ = |names: &str| {
        let all: Vec<_> = names.split(' ').collect();
        all.iter().collect::<BTreeSet<_>>().len() == all.len()
    };
    let names = browser.text("shownNames().join(' ')");
    assert!(names.contains("10.0.1.1 ") && differ(&names), "{names}");
    browser.resize(600, 800);
    browser.wait_for("lifelineGap() < 40");
    let names = browser.text("shownNames().join(' ')");
    assert!(differ(&names), "{names}");
}

#[test]
#[ignore = "needs a browser: cargo xtask test --only browser"]
fn statistics_count_a_nak_apart_from_acknowledgements() {
    let mut capture = CaptureBuilder::new();
    for psn in 0..3 {
        capture.sends(Opcode::RcSendOnly, psn, b"messages");
    }
    capture.responds(Syndrome::Acknowledge { credits: None }, 0);
    capture.responds(Syndrome::Negative(NakCode::SequenceError), 1);
    let analysis = analysis_of(&capture.bytes());
    let (browser, _) = opened("nak.pcapng", &analysis);
    let kinds = browser.text("JSON.stringify(countShown(ladder.rows).kinds)");
    assert_eq!(kinds, r#"[["SEND Only",3],["ACK",1],["NAK",1]]"#);
}

/// The picture in the README. `ROCI_SCREENSHOT=docs/explain.png` writes it; `convert -colors 256`
/// makes it small.
#[test]
#[ignore = "needs a browser: cargo xtask test --only browser"]
fn screenshot_for_the_readme() {
    let analysis = analysis_of(&example_capture::example_capture());
    let (browser, _) = opened("trace.pcapng", &analysis);
    browser.prefer("light");
    browser.resize(1280, 800);
    browser.press("n");
    let picture = browser.screenshot();
    assert!(picture.starts_with(b"\x89PNG"));
    if let Some(name) = std::env::var_os("ROCI_SCREENSHOT") {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        fs::write(root.join(name), picture).expect("the picture can be written");
    }
}
