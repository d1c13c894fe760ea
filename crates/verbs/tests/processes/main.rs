//! Several processes on one address.
//!
//! Eight of them are each connected with every other, while some are killed and new ones come: the
//! others lose nothing. The parent is the meeting point: it starts this same program as children and
//! passes their endpoints on, line by line. Every child keeps one fetch-and-add under way to each
//! peer, so each pair can be counted on both sides afterwards, exactly. All of that twice: over sockets,
//! and through memory.

mod child;
mod listeners;
mod parent;

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("child") => child::run(),
        Some("listen") => listeners::serve(&std::env::args().nth(2).expect("a port")),
        // What test runners ask for.
        Some("--list") => println!("processes: test"),
        _ => {
            parent::run(false);
            parent::run(true);
            listeners::run();
            println!("processes: 3 passed, 0 failed");
        }
    }
}
