//! Draws the list of devices and queue pairs, and the help.

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize as _};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Cell, Clear, Paragraph, Row as TableRow, Table, Wrap};

use super::super::open_devices::{OpenDevice, bytes};
use super::column::{COLUMNS, Column, Row};
use super::details;
use super::view::{Mode, View};
use crate::output::count;

/// How much of the screen the devices may take: the devices get one of this number of parts.
const DEVICES_PART: u16 = 3;

/// The columns between two columns.
const GAP: usize = 2;

const TITLE: Style = Style::new().add_modifier(Modifier::BOLD);
const TROUBLE: Style = Style::new().fg(Color::Red);
const CAUTION: Style = Style::new().fg(Color::Yellow);

/// Draws everything.
pub(super) fn draw(frame: &mut Frame<'_>, view: &mut View) {
    match view.mode {
        Mode::Details => details::draw(frame, view),
        Mode::Help => help(frame),
        Mode::List | Mode::Filter => list(frame, view),
    }
}

fn list(frame: &mut Frame<'_>, view: &mut View) {
    let mut table = std::mem::take(&mut view.table);
    let rows = view.rows();
    let devices = view.devices(&rows);
    let most = (frame.area().height / DEVICES_PART).max(3);
    // The titles, and an empty line below.
    let height = (devices.len() as u16).saturating_add(2).min(most);
    let [top, upper, lower, bottom] = Layout::vertical([
        Constraint::Length(2),
        Constraint::Length(height),
        Constraint::Fill(1),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(summary(view, &devices, &rows), top);
    if view.report.is_empty() {
        frame.render_widget(nothing_open(), upper.union(lower));
    } else if devices.is_empty() {
        let hint = "No line has these words. Esc clears the filter.";
        frame.render_widget(Paragraph::new(hint), upper.union(lower));
    } else {
        draw_devices(frame, upper, &devices);
        table.select(view.selection(&rows));
        let drawn = queue_pairs(view, &rows, usize::from(lower.width));
        frame.render_stateful_widget(drawn, lower, &mut table);
    }
    frame.render_widget(footer(view), bottom);
    view.table = table;
}

fn summary(view: &View, devices: &[&OpenDevice], rows: &[Row<'_>]) -> Paragraph<'static> {
    let mut processes: Vec<_> = devices.iter().map(|device| device.pid).collect();
    processes.sort_unstable();
    processes.dedup();
    let rates = devices.iter().filter_map(|device| device.rates);
    let (sent, received) = rates.fold((0.0, 0.0), |(sent, received), rates| {
        (sent + rates.bytes_sent, received + rates.bytes_received)
    });
    let mut line = vec![
        Span::styled("roci top", TITLE),
        Span::raw(format!(
            "  {}, {}, {}  sent {}/s, received {}/s",
            count(processes.len(), "process", "processes"),
            count(devices.len(), "open device", "open devices"),
            count(rows.len(), "queue pair", "queue pairs"),
            bytes(sent),
            bytes(received)
        )),
    ];
    let published = |device: &&OpenDevice| device.queue_pairs.len() as u64;
    let left_out: u64 = (devices.iter())
        .map(|device| device.queue_pair_count.saturating_sub(published(device)))
        .sum();
    if left_out > 0 {
        let text = format!("  {left_out} more not shown: a lane publishes a limited number");
        line.push(Span::styled(text, CAUTION));
    }
    if view.paused {
        line.push(Span::styled("  paused", CAUTION));
    }
    Paragraph::new(Line::from(line))
}

fn nothing_open() -> Paragraph<'static> {
    let text = "No process of this user has a device open in this network namespace.\n\
                Start one: for example, run `roci perf write-bw --local -D 60` in another terminal.";
    Paragraph::new(text).wrap(Wrap { trim: true })
}

fn draw_devices(frame: &mut Frame<'_>, area: Rect, devices: &[&OpenDevice]) {
    let titles = [
        "PID",
        "PROGRAM",
        "DEVICE",
        "ADDRESS",
        "LANES",
        "QPS",
        "SENT/s",
        "RECEIVED/s",
        "RETRANS",
        "RNR",
        "DROPPED",
    ];
    let mut lines: Vec<Vec<String>> = vec![titles.map(str::to_owned).into()];
    lines.extend(devices.iter().map(|device| device_line(device)));
    // The last line stays empty.
    let room = usize::from(area.height).saturating_sub(1);
    let hidden = lines.len().saturating_sub(room);
    if hidden > 0 {
        lines.truncate(room.saturating_sub(1));
    }
    let widths: Vec<usize> = (0..titles.len())
        .map(|at| lines.iter().map(|line| line[at].len()).max().unwrap_or(0))
        .collect();
    let mut text = Text::default();
    for (place, line) in lines.iter().enumerate() {
        let cells = line.iter().zip(&widths).enumerate();
        let cells = cells.map(|(at, (cell, &width))| match at {
            0 | 4.. => format!("{cell:>width$}"),
            _ => format!("{cell:<width$}"),
        });
        let line = Line::raw(cells.collect::<Vec<_>>().join("  "));
        text.push_line(if place == 0 { line.style(TITLE) } else { line });
    }
    if hidden > 0 {
        text.push_line(Line::from(format!("and {} more", hidden + 1)).dim());
    }
    frame.render_widget(Paragraph::new(text), area);
}

fn device_line(device: &OpenDevice) -> Vec<String> {
    let rate = |of: fn(&super::super::open_devices::Rates) -> f64| {
        let rates = device.rates.as_ref();
        rates.map_or_else(|| "-".to_owned(), |rates| bytes(of(rates)))
    };
    vec![
        device.pid.to_string(),
        device.program.clone(),
        device.device.clone(),
        device.address.to_string(),
        device.lanes.len().to_string(),
        device.queue_pair_count.to_string(),
        rate(|rates| rates.bytes_sent),
        rate(|rates| rates.bytes_received),
        device.sum(&["retransmitted"]).to_string(),
        device
            .sum(&["rnr_naks_sent", "rnr_naks_received"])
            .to_string(),
        device.dropped().to_string(),
    ]
}

/// The table of queue pairs, with as many columns as fit.
fn queue_pairs<'t>(view: &View, rows: &[Row<'_>], width: usize) -> Table<'t> {
    let widths = COLUMNS.each_ref().map(|column| {
        let cells = rows.iter().map(|row| (column.text)(row).len());
        // The mark of the column that is sorted by takes one place.
        cells.chain([column.title.len() + 1]).max().unwrap_or(0)
    });
    let shown = fitting(&widths, width);
    let numeric = |at: usize| (rows.first()).is_some_and(|row| COLUMNS[at].is_numeric(row));
    let aligned = |at: usize, text: String| {
        let side = if numeric(at) {
            Alignment::Right
        } else {
            Alignment::Left
        };
        Text::from(text).alignment(side)
    };
    let titles = shown.iter().map(|&at| {
        let mark = match (at == view.sort, view.reversed) {
            (false, _) => "",
            (true, false) => "▾",
            (true, true) => "▴",
        };
        Cell::from(aligned(at, format!("{}{mark}", COLUMNS[at].title)))
    });
    let lines = rows.iter().map(|row| {
        let cells = (shown.iter()).map(|&at| Cell::from(aligned(at, (COLUMNS[at].text)(row))));
        TableRow::new(cells).style(style(row))
    });
    let widths = shown
        .iter()
        .map(|&at| Constraint::Length(widths[at] as u16));
    Table::new(lines, widths)
        .header(TableRow::new(titles).style(TITLE))
        .column_spacing(GAP as u16)
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED))
}

/// Which columns fit into the width. The least important ones are left out.
fn fitting(widths: &[usize; COLUMNS.len()], width: usize) -> Vec<usize> {
    let mut shown: Vec<usize> = (0..COLUMNS.len()).collect();
    let total = |shown: &[usize]| shown.iter().map(|&at| widths[at] + GAP).sum::<usize>();
    while total(&shown) > width + GAP {
        let least = |&(_, &at): &(usize, &usize)| {
            let column: &Column = &COLUMNS[at];
            (column.importance, std::cmp::Reverse(at))
        };
        let Some((place, _)) = shown.iter().enumerate().min_by_key(least) else {
            break;
        };
        shown.remove(place);
    }
    shown
}

fn style(row: &Row<'_>) -> Style {
    let queue_pair = row.queue_pair;
    match queue_pair.state {
        "ERR" | "SQE" => TROUBLE,
        _ if queue_pair.waits_for_receiver || queue_pair.present_timeouts > 0 => CAUTION,
        _ => Style::new(),
    }
}

fn footer(view: &View) -> Paragraph<'static> {
    if view.mode == Mode::Filter {
        let text = format!(
            "filter: {}▏  Enter: done, Esc: clear, !word: without",
            view.filter
        );
        return Paragraph::new(text).style(TITLE);
    }
    let keys = "q quit  ? help  Enter details  / filter  < > r sort  p pause";
    let mut line = vec![Span::raw(keys).dim()];
    if !view.filter.is_empty() {
        line.push(Span::styled(format!("  filter: {}", view.filter), CAUTION));
    }
    Paragraph::new(Line::from(line))
}

const HELP: &str = "\
up, down, page up, page down, Home, End   select a queue pair
Enter, right                              all of the selected queue pair
Esc, Enter, left                          back to the list
<, >                                      sort by the column before or after
r                                         reverse the order
/                                         filter: words that a line must contain; !word: must not
Esc                                       clear the filter
p                                         pause, go on
q, Ctrl-C                                 quit

STATE     the state of the queue pair. rnr: it waits because its peer has no receive posted.
          retry 2: its peer has not answered since two timeouts.
LANE      the engine of the device that runs the queue pair. Threads get different ones; see ROCI_LANES
PATH      sockets, memory (shared with the peer's process), device (the peer is one of the same device)
RETRANS   retransmitted packets
RNR       RNR NAKs sent and received: a message found no receive
WINDOW    packets without acknowledgement, and how many may be
SENDS     send requests that are not completed, and how many fit
RECVS     receives that are posted, and how many fit
CQ        completions that the program has not polled, and how many fit, of the fuller queue

Any key goes back.";

fn help(frame: &mut Frame<'_>) {
    frame.render_widget(Clear, frame.area());
    frame.render_widget(Paragraph::new(HELP), frame.area());
}
