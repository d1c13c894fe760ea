//! Captures and their analysis.

// The fuzz crate needs libFuzzer and a nightly compiler. Its functions do not.
#[path = "../../../../fuzz/src/captures.rs"]
mod captures;
mod datagram_services;
mod file_formats;
mod golden;
mod hostile_captures;
mod kernel_captures;
mod linear_time;
mod missing_packets;
mod own_captures;
mod rare_formats;
mod reject_causes;
mod retries_and_program_records;
mod same_first_psn;
mod terminal_text;
mod unusable_captures;
