//! The text for terminals that are narrow, and for long lists.

use explain::Analysis;
use explain::terminal::View;

use crate::kernel_captures::{Frame, analysis, frames};
use crate::retries_and_program_records::{OUTBOUND, OwnCapture, text};

/// The lines of all ladders.
fn ladders(analysis: &Analysis, width: usize) -> Vec<String> {
    let view = View {
        width,
        ladder: usize::MAX,
        ..View::default()
    };
    let text = text(analysis, &view);
    let begin = text.find("Ladder of").expect("a ladder");
    text[begin..].lines().map(str::to_owned).collect()
}

#[test]
fn a_ladder_fits_into_every_width() {
    for name in [
        "gold-batch",
        "loss5-requests-send",
        "loss5-responses-read",
        "ipv6/rc-pingpong-gid0",
    ] {
        let analysis = analysis(name);
        for width in 60..=100 {
            for line in ladders(&analysis, width) {
                let length = line.chars().count();
                let is_arrow = line.ends_with('│');
                assert!(
                    length == width || (length < width && !is_arrow),
                    "{name} in {width}: {line}"
                );
            }
        }
    }
}

#[test]
fn two_long_addresses_have_one_line_each() {
    let analysis = analysis("ipv6/rc-pingpong-gid0");
    let ends = |width| {
        let lines = ladders(&analysis, width);
        lines.iter().filter(|line| line.contains(" QP ")).count()
    };
    assert_eq!([ends(60), ends(100)], [2, 1]);
}

/// A process that sends with so many queue pairs.
fn of_many(queue_pairs: u32) -> String {
    let name = "misc/noack-timeout14-retry2";
    let frames = frames(name);
    let is_request = |frame: &&Frame| frame.ip().len() == 20 + 8 + 12 + 16 + 4;
    let request = frames.iter().find(is_request).expect("a request");
    let mut capture = OwnCapture::of("sender (process 1)");
    for number in 0..queue_pairs {
        let comment = format!("SEND wr_id 7 of QP {:#x}", 0xa00 + number);
        capture.packet(request, Some(OUTBOUND), Some(&comment));
    }
    let analysis = Analysis::read(capture.bytes().as_slice()).expect("a capture");
    let whole = View {
        width: 1000,
        ..View::default()
    };
    let text = text(&analysis, &whole);
    let mut lines = text.lines();
    let line = lines.find_map(|line| line.strip_prefix("  sender (process 1): "));
    line.expect("the process is listed").to_owned()
}

#[test]
fn a_process_with_many_queue_pairs_is_listed_with_the_first_ones() {
    assert_eq!(of_many(8).matches(" QP ").count(), 8);
    let line = of_many(10);
    assert_eq!(line.matches(" QP ").count(), 8, "{line}");
    assert!(line.ends_with(", 2 others"), "{line}");
}
