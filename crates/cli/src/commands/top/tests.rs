//! What the screen shows after which keys.

use std::time::Instant;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::super::open_devices::tests::{device, lane, queue_pair, report};
use super::super::open_devices::{OpenDevice, OpenQueuePair, Report};
use super::screen;
use super::view::{Next, View};

/// A process with these queue pairs.
fn process(pid: u32, time: f64, queue_pairs: Vec<OpenQueuePair>) -> OpenDevice {
    OpenDevice {
        queue_pair_count: queue_pairs.len() as u64,
        queue_pairs,
        ..device(pid, time, 0)
    }
}

struct Screen {
    view: View,
    terminal: Terminal<TestBackend>,
}

impl Screen {
    fn new(report: Report, width: u16, height: u16) -> Self {
        let terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
        Self {
            view: View::new(report, ""),
            terminal,
        }
    }

    /// Two processes. Queue pair 0x11 sends 1000 bytes per second, 0x12 3000, and 0x21 of the other process 2000.
    fn with_traffic(width: u16, height: u16) -> Self {
        let start = Instant::now();
        let at = |seconds: f64| {
            let sent = |rate: f64| (rate * seconds) as u64;
            let mut waiting = queue_pair(0x12, sent(3000.0));
            waiting.waits_for_receiver = true;
            let first = vec![queue_pair(0x11, sent(1000.0)), waiting];
            let devices = [
                process(100, seconds, first),
                process(200, seconds, vec![queue_pair(0x21, sent(2000.0))]),
            ];
            report(start, seconds, devices)
        };
        let mut screen = Self::new(at(0.0), width, height);
        screen.view.update(at(1.0));
        screen
    }

    fn press(&mut self, keys: &str) -> Next {
        let mut next = Next::Continue;
        for key in keys.chars() {
            let code = match key {
                '\n' => KeyCode::Enter,
                '\x1b' => KeyCode::Esc,
                letter => KeyCode::Char(letter),
            };
            next = self
                .view
                .handle_key(KeyEvent::new(code, KeyModifiers::NONE));
        }
        next
    }

    fn lines(&mut self) -> Vec<String> {
        let view = &mut self.view;
        let drawn = self.terminal.draw(|frame| screen::draw(frame, view));
        drawn.expect("it is drawn");
        let buffer = self.terminal.backend().buffer();
        let width = usize::from(buffer.area.width);
        let symbols = buffer.content.chunks(width);
        symbols
            .map(|line| {
                line.iter()
                    .map(ratatui::buffer::Cell::symbol)
                    .collect::<String>()
            })
            .map(|line| line.trim_end().to_owned())
            .collect()
    }

    /// The numbers of the queue pairs, in the order of the screen.
    fn order(&mut self) -> Vec<u32> {
        let number = |line: &String| {
            let word = line.split(' ').find(|word| word.starts_with("0x"))?;
            u32::from_str_radix(&word[2..], 16).ok()
        };
        self.lines().iter().filter_map(number).collect()
    }
}

#[test]
fn devices_and_queue_pairs_are_listed_with_their_rates() {
    let mut screen = Screen::with_traffic(160, 24);
    let lines = screen.lines();
    assert!(
        lines[0].starts_with("roci top  2 processes, 2 open devices, 3 queue pairs"),
        "{}",
        lines[0]
    );
    assert!(lines[2].starts_with("PID  PROGRAM  DEVICE  ADDRESS"));
    assert!(lines[3].starts_with("100  p        d       127.0.0.1"));
    let busiest = lines.iter().find(|line| line.contains("0x000012"));
    let busiest = busiest.expect("its line");
    assert!(busiest.contains("RTS rnr"), "{busiest}");
    assert!(busiest.contains("3.0 kB"), "{busiest}");
    assert!(busiest.contains("1/16"), "{busiest}");
    assert!(lines[23].starts_with("q quit  ? help"));
}

#[test]
fn lanes_of_one_device_are_one_line_and_queue_pairs_say_theirs() {
    let mut of_second = queue_pair(0x21, 0);
    of_second.lane = 1;
    let device = OpenDevice {
        lanes: vec![lane(0, 1.0, 0), lane(1, 1.0, 0)],
        ..process(100, 1.0, vec![queue_pair(0x11, 0), of_second])
    };
    let mut screen = Screen::new(report(Instant::now(), 0.0, [device]), 160, 24);
    let lines = screen.lines();
    assert!(lines[0].contains("1 process, 1 open device, 2 queue pairs"));
    let words = |line: &str| {
        line.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let cell = |titles: &str, line: &str, title: &str| {
        let at = words(titles).iter().position(|it| it == title);
        words(line)[at.expect("a column")].clone()
    };
    assert_eq!(cell(&lines[2], &lines[3], "LANES"), "2");
    let titles = lines.iter().find(|line| line.contains("STATE"));
    let titles = titles.expect("titles").replace('▾', "");
    for (number, expected) in [("0x000011", "0"), ("0x000021", "1")] {
        let line = lines.iter().find(|line| line.contains(number));
        assert_eq!(cell(&titles, line.expect("its line"), "LANE"), expected);
    }
    screen.press("j\n");
    let text = screen.lines().join("\n");
    assert!(text.contains("1 (2 are open)"), "{text}");
}

#[test]
fn rows_are_sorted_by_the_chosen_column() {
    let mut screen = Screen::with_traffic(160, 24);
    assert_eq!(screen.order(), [0x12, 0x21, 0x11], "the busiest is first");
    screen.press("r");
    assert_eq!(screen.order(), [0x11, 0x21, 0x12]);
    screen.press("r<<<<<<<<");
    assert_eq!(screen.order(), [0x11, 0x12, 0x21], "by process");
    let titles = screen.lines();
    assert!(titles.iter().any(|line| line.contains("PID▾")));
}

#[test]
fn a_filter_leaves_lines_out_and_says_when_none_is_left() {
    let mut screen = Screen::with_traffic(160, 24);
    screen.press("/rnr\n");
    assert_eq!(screen.order(), [0x12]);
    assert!(screen.lines()[0].contains("1 process,"));
    assert!(screen.lines()[23].ends_with("filter: rnr"));
    screen.press("\x1b/!rnr\n");
    assert_eq!(screen.order(), [0x21, 0x11]);
    screen.press("/ nothing\n");
    assert_eq!(screen.order(), [0; 0]);
    let lines = screen.lines().join("\n");
    assert!(lines.contains("Esc clears the filter"), "{lines}");
    screen.press("\x1b");
    assert_eq!(screen.order().len(), 3);
}

#[test]
fn a_queue_pair_is_shown_with_all_its_counters() {
    let mut screen = Screen::with_traffic(100, 30);
    screen.press("j\n");
    let lines = screen.lines();
    let title = "queue pair 0x000021 of p (process 200) at d 127.0.0.1";
    assert_eq!(lines[0], title);
    let text = lines.join("\n");
    for part in ["2.0 kB/s", "1 of 16", "duplicate requests", "at most"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // It ends.
    let start = Instant::now();
    let left = process(100, 2.0, vec![queue_pair(0x11, 0)]);
    screen.view.update(report(start, 2.0, [left]));
    assert!(screen.lines()[0].contains("does not exist any more"));
    screen.press("\x1b");
    assert_eq!(screen.order(), [0x11]);
}

#[test]
fn the_selection_stays_with_its_queue_pair_when_the_order_changes() {
    let mut screen = Screen::with_traffic(160, 24);
    screen.press("jr");
    assert_eq!(screen.order(), [0x11, 0x21, 0x12]);
    screen.press("k\n");
    assert!(screen.lines()[0].starts_with("queue pair 0x000011"));
}

#[test]
fn a_narrow_terminal_shows_the_important_columns() {
    let mut screen = Screen::with_traffic(60, 24);
    let lines = screen.lines();
    let titles = lines.iter().find(|line| line.contains("STATE"));
    let titles = titles.expect("titles");
    assert!(
        titles.contains("QP") && titles.contains("SENT/s"),
        "{titles}"
    );
    assert!(!titles.contains("TIMEOUTS"), "{titles}");
    // Nothing is drawn over its edge, however small it is.
    for (width, height) in [(1, 1), (5, 3), (20, 6)] {
        let mut small = Screen::with_traffic(width, height);
        for keys in ["", "\n", "?", "q"] {
            small.press(keys);
            assert_eq!(small.lines().len(), usize::from(height));
        }
    }
}

#[test]
fn a_paused_view_keeps_what_it_shows() {
    let mut screen = Screen::with_traffic(160, 24);
    screen.press("p");
    screen.view.update(report(Instant::now(), 2.0, []));
    assert_eq!(screen.order().len(), 3);
    assert!(screen.lines()[0].ends_with("paused"));
    screen.press("p");
    screen.view.update(report(Instant::now(), 3.0, []));
    assert!(
        screen
            .lines()
            .join("\n")
            .contains("No process of this user")
    );
}

#[test]
fn many_devices_leave_room_for_queue_pairs() {
    let devices: Vec<_> = (1..50)
        .map(|pid| process(pid, 1.0, vec![queue_pair(pid, 0)]))
        .collect();
    let mut screen = Screen::new(report(Instant::now(), 0.0, devices), 120, 24);
    let lines = screen.lines();
    assert!(lines.iter().any(|line| line == "and 44 more"), "{lines:#?}");
    assert!(screen.order().len() >= 10);
    // The selected line is always visible.
    for _ in 0..48 {
        screen.press("j");
    }
    assert!(screen.order().contains(&49));
}

#[test]
fn q_quits_and_help_returns() {
    let mut screen = Screen::with_traffic(100, 30);
    assert_eq!(screen.press("?"), Next::Continue);
    assert!(screen.lines().join("\n").contains("Any key goes back"));
    assert_eq!(screen.press("q"), Next::Continue, "a key goes back");
    assert_eq!(screen.press("q"), Next::Quit);
    let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(screen.view.handle_key(interrupt), Next::Quit);
    // In the filter, a letter is a letter.
    assert_eq!(screen.press("/q"), Next::Continue);
}
