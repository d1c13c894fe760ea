//! The built command, run as people and scripts run it.

mod bundled_libraries;
mod client_death;
mod demo;
mod device_files;
mod devices_and_doctor;
mod explain;
mod help_and_errors;
mod link;
mod loopback_not_listed;
mod perf;
mod ping;
mod rsocket;
mod run_roci;
mod sanitizers;
mod seccomp;
mod silent_peer;
mod stand_in;
mod stat;
mod system_devices;
#[cfg(feature = "monitor")]
mod top;
mod torture;
mod two_machines;
mod unmodified_programs;
