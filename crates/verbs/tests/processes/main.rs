//! Eight processes on one address, each connected with every other, while some are killed and new
//! ones come: the others lose nothing.
//!
//! The parent is the meeting point: it starts this same program as children and passes their
//! endpoints on, line by line. Every child keeps one fetch-and-add under way to each peer, so each
//! pair can be counted on both sides afterwards, exactly.

mod child;
mod parent;

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("child") => child::run(),
        // What test runners ask for.
        Some("--list") => println!("processes: test"),
        _ => parent::run(),
    }
}
