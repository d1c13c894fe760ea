//! What the library does when the process ends.

use net::exit_hooks::{Stage, at_exit};

use crate::{exit_report, rdmacm, rsocket, verbs};

/// The loader calls it. The library is never unloaded, so the functions exist until the process ends.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = register;

extern "C" fn register() {
    at_exit(Stage::Connections, rsocket::close_all);
    at_exit(Stage::Connections, rdmacm::disconnect_all);
    at_exit(Stage::Packets, verbs::open_device::flush_all);
    at_exit(Stage::Captures, exit_report::print);
}
