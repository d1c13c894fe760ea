//! The screen of `roci top`, in the terminal of the user.

use std::io::{self, IsTerminal as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::super::open_devices::Report;
use super::Options;
use super::screen;
use super::view::{Next, View};

/// How long a signal may wait until the screen is restored.
const SIGNAL_CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// After this number of intervals a signal ends the process although the screen does not react to it.
const SIGNAL_CHECKS: u32 = 10;

/// Shows the screen until the user quits.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        bail!("`roci top` needs a terminal; for scripts, use `roci stat --json -i 1`");
    }
    let first = Report::now(options.device.as_deref())?;
    let ended = end_signals()?;
    end_with_terminal(Arc::clone(&ended));
    let terminal = ratatui::try_init().context("the terminal can't be used")?;
    let done = watch(terminal, options, first, &ended);
    ratatui::restore();
    done
}

/// Becomes true at a signal that ends the process, so that the terminal is restored first.
fn end_signals() -> anyhow::Result<Arc<AtomicBool>> {
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&ended))?;
    }
    Ok(ended)
}

/// Ends the process when its terminal is gone, or when the screen does not react to a signal. Reading keys from a
/// terminal that is gone never returns.
fn end_with_terminal(ended: Arc<AtomicBool>) {
    std::thread::spawn(move || {
        let mut left = SIGNAL_CHECKS;
        while left > 0 && !is_gone(io::stdin().as_fd()) {
            std::thread::sleep(SIGNAL_CHECK_INTERVAL);
            left -= u32::from(ended.load(Ordering::Relaxed));
        }
        ratatui::restore();
        std::process::exit(1);
    });
}

fn is_gone(terminal: BorrowedFd<'_>) -> bool {
    let mut state = [PollFd::from_borrowed_fd(terminal, PollFlags::empty())];
    let polled = poll(&mut state, Some(&Timespec::default()));
    polled.is_ok()
        && state[0]
            .revents()
            .intersects(PollFlags::HUP | PollFlags::ERR)
}

fn watch(
    mut terminal: DefaultTerminal,
    options: &Options,
    first: Report,
    ended: &AtomicBool,
) -> anyhow::Result<()> {
    let mut view = View::new(first, &options.filter);
    let mut update_at = Instant::now() + options.interval;
    while !ended.load(Ordering::Relaxed) {
        terminal.draw(|frame| screen::draw(frame, &mut view))?;
        let left = update_at.saturating_duration_since(Instant::now());
        if event::poll(left.min(SIGNAL_CHECK_INTERVAL))? {
            if let Event::Key(key) = event::read()?
                && view.handle_key(key) == Next::Quit
            {
                break;
            }
        } else if left.is_zero() {
            view.update(Report::now(options.device.as_deref())?);
            update_at = Instant::now() + options.interval;
        }
    }
    Ok(())
}
