//! Ctrl-C: a connection is disconnected first; without one the program exits at once.

use std::io::{self, Read as _};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::low_level::pipe;

/// How long disconnecting may take after a signal. Then the program exits anyway.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);

/// The signal that was received; 0 if none was.
static SIGNAL: LazyLock<Arc<AtomicUsize>> = LazyLock::new(Arc::default);

/// Whether a signal ends the program at once, because there is no connection to end.
static EXIT_AT_ONCE: LazyLock<Arc<AtomicBool>> = LazyLock::new(|| Arc::new(true.into()));

/// Listens for signals from now on.
pub(super) fn watch() -> anyhow::Result<()> {
    try_watch().context("a handler for Ctrl-C can't be installed")
}

fn try_watch() -> io::Result<()> {
    let (mut came, tell) = UnixStream::pair()?;
    for signal in [SIGINT, SIGTERM] {
        // In this order, so that a second signal ends the program at once.
        flag::register_conditional_shutdown(signal, code_of(signal), Arc::clone(&EXIT_AT_ONCE))?;
        flag::register(signal, Arc::clone(&EXIT_AT_ONCE))?;
        flag::register_usize(signal, Arc::clone(&SIGNAL), signal as usize)?;
        pipe::register(signal, tell.try_clone()?)?;
    }
    thread::Builder::new().spawn(move || {
        // A thread may block on a peer or on its output, and then does not check for signals.
        if came.read_exact(&mut [0]).is_ok() {
            thread::sleep(EXIT_TIMEOUT);
            std::process::exit(code_of(SIGNAL.load(Ordering::Acquire) as i32));
        }
    })?;
    Ok(())
}

/// From now on a thread checks [`is_asked`] often, and ends the connection.
pub(super) fn expect_farewell() {
    EXIT_AT_ONCE.store(false, Ordering::Release);
}

/// Whether the program was interrupted.
pub(super) fn is_asked() -> bool {
    SIGNAL.load(Ordering::Acquire) != 0
}

/// The exit code: after a signal 128 plus its number, as in shells.
pub(super) fn exit_code() -> ExitCode {
    match SIGNAL.load(Ordering::Acquire) {
        0 => ExitCode::SUCCESS,
        signal => ExitCode::from(code_of(signal as i32) as u8),
    }
}

fn code_of(signal: i32) -> i32 {
    128 + signal
}
