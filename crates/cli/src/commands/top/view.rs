//! What the screen shows: the present report, the selection, sorting and filter; and what keys change.

use std::collections::{BTreeMap, VecDeque};

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::widgets::TableState;

use super::super::open_devices::{OpenDevice, Rates, Report};
use super::column::{COLUMNS, FIRST_SORT, Row, RowId};
use super::filter::Filter;

/// How many updates the graphs of a queue pair show.
const HISTORY: usize = 240;

/// How many lines a page key moves the selection.
const PAGE: usize = 10;

/// What happens after a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    Continue,
    Quit,
}

/// What takes the whole screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// Devices and queue pairs.
    List,
    /// As `List`, while the user types the filter.
    Filter,
    /// One queue pair.
    Details,
    Help,
}

/// The state of the screen.
pub(super) struct View {
    pub(super) report: Report,
    pub(super) mode: Mode,
    /// The text of the filter.
    pub(super) filter: String,
    pub(super) sort: usize,
    pub(super) reversed: bool,
    pub(super) paused: bool,
    selected: Option<RowId>,
    /// Where the selection is, also if its queue pair ends.
    position: usize,
    history: BTreeMap<RowId, VecDeque<Rates>>,
    /// How far the table is scrolled.
    pub(super) table: TableState,
}

impl View {
    pub(super) fn new(report: Report, filter: &str) -> Self {
        Self {
            report,
            mode: Mode::List,
            filter: filter.to_owned(),
            sort: FIRST_SORT,
            reversed: false,
            paused: false,
            selected: None,
            position: 0,
            history: BTreeMap::new(),
            table: TableState::default(),
        }
    }

    /// Takes a new report, unless the view is paused.
    pub(super) fn update(&mut self, report: Report) {
        if self.paused {
            return;
        }
        self.report = report.since(&self.report);
        let mut history = std::mem::take(&mut self.history);
        for row in all_rows(&self.report) {
            let mut rates = history.remove(&row.id()).unwrap_or_default();
            rates.extend(row.queue_pair.rates);
            rates.drain(..rates.len().saturating_sub(HISTORY));
            self.history.insert(row.id(), rates);
        }
    }

    /// The rates of a queue pair, oldest first.
    pub(super) fn history(&self, id: RowId) -> impl Iterator<Item = &Rates> {
        self.history.get(&id).into_iter().flatten()
    }

    /// The queue pairs that the filter admits, sorted.
    pub(super) fn rows(&self) -> Vec<Row<'_>> {
        let filter = Filter::new(&self.filter);
        let admitted = |row: &Row<'_>| filter.admits(&row.text());
        let mut rows: Vec<_> = all_rows(&self.report).filter(admitted).collect();
        let column = &COLUMNS[self.sort];
        rows.sort_by(|a, b| {
            let order = column.compare(a, b);
            let order = if self.reversed {
                order.reverse()
            } else {
                order
            };
            order.then_with(|| a.id().cmp(&b.id()))
        });
        rows
    }

    /// The devices of these rows, and those that the filter admits itself.
    pub(super) fn devices(&self, rows: &[Row<'_>]) -> Vec<&OpenDevice> {
        let filter = Filter::new(&self.filter);
        let shown = |device: &&OpenDevice| {
            let text = format!(
                "{} {} {} {}",
                device.pid, device.program, device.device, device.address
            );
            filter.admits(&text) || rows.iter().any(|row| std::ptr::eq(row.device, *device))
        };
        self.report.devices.iter().filter(shown).collect()
    }

    /// Where the selected queue pair is in these rows. If it has ended, the one at its place is meant.
    pub(super) fn selection(&self, rows: &[Row<'_>]) -> Option<usize> {
        let found = rows.iter().position(|row| Some(row.id()) == self.selected);
        let last = rows.len().checked_sub(1)?;
        Some(found.unwrap_or(self.position.min(last)))
    }

    /// The selected queue pair, if it exists.
    pub(super) fn selected_row(&self) -> Option<Row<'_>> {
        all_rows(&self.report).find(|row| Some(row.id()) == self.selected)
    }

    /// Selects the queue pair that is this number of lines below the present one.
    fn move_selection(&mut self, by: isize) {
        let rows = self.rows();
        let Some(at) = self.selection(&rows) else {
            return;
        };
        let to = at.saturating_add_signed(by).min(rows.len() - 1);
        let id = rows[to].id();
        (self.position, self.selected) = (to, Some(id));
    }

    /// Handles a key.
    pub(super) fn handle_key(&mut self, key: KeyEvent) -> Next {
        if key.kind == KeyEventKind::Release {
            return Next::Continue;
        }
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        if control && matches!(key.code, KeyCode::Char('c')) {
            return Next::Quit;
        }
        match self.mode {
            Mode::Filter => self.edit_filter(key.code),
            Mode::List | Mode::Details if key.code == KeyCode::Char('q') => return Next::Quit,
            Mode::List => self.handle_list_key(key.code),
            // Every key goes back.
            Mode::Help => self.mode = Mode::List,
            Mode::Details => match key.code {
                KeyCode::Esc | KeyCode::Enter | KeyCode::Left | KeyCode::Backspace => {
                    self.mode = Mode::List;
                }
                KeyCode::Char('p') => self.paused = !self.paused,
                KeyCode::Char('?') => self.mode = Mode::Help,
                _ => {}
            },
        }
        Next::Continue
    }

    fn handle_list_key(&mut self, key: KeyCode) {
        match key {
            KeyCode::Up | KeyCode::Char('k') => self.move_selection(-1),
            KeyCode::Down | KeyCode::Char('j') => self.move_selection(1),
            KeyCode::PageUp => self.move_selection(-(PAGE as isize)),
            KeyCode::PageDown => self.move_selection(PAGE as isize),
            KeyCode::Home => self.move_selection(isize::MIN),
            KeyCode::End => self.move_selection(isize::MAX),
            KeyCode::Enter | KeyCode::Right => {
                // The one that is highlighted becomes the selected one.
                self.move_selection(0);
                if self.selected_row().is_some() {
                    self.mode = Mode::Details;
                }
            }
            KeyCode::Char('<' | ',') => self.sort = (self.sort + COLUMNS.len() - 1) % COLUMNS.len(),
            KeyCode::Char('>' | '.') => self.sort = (self.sort + 1) % COLUMNS.len(),
            KeyCode::Char('r') => self.reversed = !self.reversed,
            KeyCode::Char('p') => self.paused = !self.paused,
            KeyCode::Char('/') => self.mode = Mode::Filter,
            KeyCode::Char('?' | 'h') => self.mode = Mode::Help,
            KeyCode::Esc => self.filter.clear(),
            _ => {}
        }
    }

    fn edit_filter(&mut self, key: KeyCode) {
        match key {
            KeyCode::Char(letter) => self.filter.push(letter),
            KeyCode::Backspace => {
                self.filter.pop();
            }
            KeyCode::Enter => self.mode = Mode::List,
            KeyCode::Esc => {
                self.filter.clear();
                self.mode = Mode::List;
            }
            _ => {}
        }
    }
}

fn all_rows(report: &Report) -> impl Iterator<Item = Row<'_>> {
    report.devices.iter().flat_map(|device| {
        let rows = device.queue_pairs.iter();
        rows.map(move |queue_pair| Row { device, queue_pair })
    })
}
