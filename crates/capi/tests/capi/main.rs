//! The C libraries as C sees them.

mod layout;
mod programs;
mod support;
mod symbols;
