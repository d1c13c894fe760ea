//! The C libraries as C sees them.

mod layout;
mod programs;
mod releases;
mod support;
mod symbols;
