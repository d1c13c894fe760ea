//! The C libraries as C sees them.

mod checked;
mod hangs;
mod layout;
mod programs;
mod releases;
mod support;
mod symbols;
mod thread_sanitizer;
