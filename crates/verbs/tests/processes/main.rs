//! Several processes on one address.
//!
//! Eight of them are each connected with every other, while some are killed and new ones come: the
//! others lose nothing. The parent is the meeting point: it starts this same program as children and
//! passes their endpoints on, line by line. Every child keeps one fetch-and-add outstanding to each
//! peer, so each pair can be counted on both sides afterwards, exactly. All of that twice: over sockets,
//! and through memory.

mod child;
mod exits;
mod listeners;
mod parent;
mod restarts;
#[path = "../support/rings.rs"]
#[allow(unreachable_pub)] // the other test files use it as a part of `support`
mod rings;

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("child") => child::run(),
        Some("listen") => listeners::serve(&argument()),
        Some("connect") => exits::connect_and_die(&argument()),
        Some("accept") => exits::accept_and_die(&argument()),
        Some("hesitate") => exits::hesitate(),
        Some("lie-open") => restarts::lie_open(),
        Some("exits") => exits::run(),
        Some("restarts") => restarts::run(),
        // What test runners ask for.
        Some("--list") => println!("processes: test"),
        _ => {
            parent::run(false);
            parent::run(true);
            listeners::run();
            exits::run();
            restarts::run();
            println!("processes: 5 passed, 0 failed");
        }
    }
}

fn argument() -> String {
    std::env::args().nth(2).expect("an argument")
}
