//! The built command, run as people and scripts run it.

mod beside_a_network;
mod bundled_libraries;
mod client_death;
mod demo;
mod device_files;
mod devices_and_doctor;
mod explain;
mod help_and_errors;
mod link;
mod perf;
mod ping;
mod run_roci;
mod sandbox;
mod stand_in;
mod stat;
mod top;
mod torture;
mod unmodified_programs;
