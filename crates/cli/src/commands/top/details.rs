//! Draws all that is known about one queue pair.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style, Stylize as _};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Paragraph, Sparkline};

use super::super::open_devices::{Level, Rates, bytes};
use super::column::{Row, condition};
use super::view::View;

const TITLE: Style = Style::new().add_modifier(Modifier::BOLD);

/// How wide the names of values are.
const NAME_WIDTH: usize = 24;

/// Draws the selected queue pair.
pub(super) fn draw(frame: &mut Frame<'_>, view: &View) {
    let [top, middle, graphs, bottom] = Layout::vertical([
        Constraint::Length(2),
        Constraint::Fill(1),
        Constraint::Length(8),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    let Some(row) = view.selected_row() else {
        let text = "This queue pair does not exist any more. Esc goes back.";
        frame.render_widget(Paragraph::new(text), top);
        return;
    };
    let title = format!(
        "queue pair {:#08x} of {} (process {}) at {} {}",
        row.queue_pair.number,
        row.device.program,
        row.device.pid,
        row.device.device,
        row.device.address
    );
    frame.render_widget(Paragraph::new(title).style(TITLE), top);
    let [left, right] =
        Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).areas(middle);
    frame.render_widget(Paragraph::new(present(&row)), left);
    frame.render_widget(Paragraph::new(counters(&row)), right);
    let [sent, received] =
        Layout::vertical([Constraint::Length(4), Constraint::Length(4)]).areas(graphs);
    graph(frame, sent, view, &row, "sent", |rates| rates.bytes_sent);
    graph(frame, received, view, &row, "received", |rates| {
        rates.bytes_received
    });
    let paused = if view.paused { "  paused" } else { "" };
    let keys = format!("Esc back  p pause  ? help  q quit{paused}");
    frame.render_widget(Paragraph::new(Span::raw(keys).dim()), bottom);
}

/// The present state.
fn present(row: &Row<'_>) -> Text<'static> {
    let queue_pair = row.queue_pair;
    let rates = queue_pair.rates.unwrap_or_default();
    let lines = [
        ("type", queue_pair.kind.to_owned()),
        ("state", condition(queue_pair)),
        ("peer", queue_pair.peer_text()),
        ("lane", lane(row)),
        ("path", queue_pair.path.to_owned()),
        ("path MTU", queue_pair.mtu_text()),
        ("sent", format!("{}/s", bytes(rates.bytes_sent))),
        ("received", format!("{}/s", bytes(rates.bytes_received))),
        ("messages", format!("{:.0}/s", rates.messages)),
        ("outstanding sends", level(queue_pair.send_queue)),
        ("posted receives", level(queue_pair.receive_queue)),
        ("unacknowledged packets", level(queue_pair.window)),
        ("completions of sends", level(queue_pair.send_completions)),
        (
            "completions of receives",
            level(queue_pair.receive_completions),
        ),
        ("timeouts in a row", queue_pair.present_timeouts.to_string()),
    ];
    lines
        .into_iter()
        .map(|(name, value)| line(name, value))
        .collect()
}

/// The lane of the queue pair, and how many its device has.
fn lane(row: &Row<'_>) -> String {
    match row.device.lanes.len() {
        0 | 1 => row.queue_pair.lane.to_string(),
        lanes => format!("{} ({lanes} are open)", row.queue_pair.lane),
    }
}

fn counters(row: &Row<'_>) -> Text<'static> {
    let counters = row.queue_pair.counters.iter();
    counters
        .map(|(name, value)| line(&name.replace('_', " "), value.to_string()))
        .collect()
}

fn line(name: &str, value: String) -> Line<'static> {
    let name = format!("{name:<NAME_WIDTH$}");
    Line::from(vec![Span::raw(name).dim(), Span::raw(value)])
}

fn level(level: Level) -> String {
    match level.capacity {
        0 => "none".to_owned(),
        capacity => format!("{} of {capacity}", level.used),
    }
}

/// A graph of one rate; the newest value is at the right.
fn graph(
    frame: &mut Frame<'_>,
    area: Rect,
    view: &View,
    row: &Row<'_>,
    name: &str,
    of: fn(&Rates) -> f64,
) {
    let values: Vec<u64> = view
        .history(row.id())
        .map(|rates| of(rates) as u64)
        .collect();
    let shown = &values[values.len().saturating_sub(usize::from(area.width))..];
    let most = shown.iter().copied().max().unwrap_or(0);
    let [title, bars] = Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(area);
    let text = format!("{name}, at most {}/s", bytes(most as f64));
    frame.render_widget(Paragraph::new(text).dim(), title);
    let mut place = bars;
    place.width = shown.len() as u16;
    place.x += bars.width.saturating_sub(place.width);
    frame.render_widget(Sparkline::default().data(shown).max(most.max(1)), place);
}
