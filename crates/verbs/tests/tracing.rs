//! What a subscriber of the crate `tracing` gets.

mod support;

use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rocinante::{Connector, Request};
use support::ConnectedPair;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

/// The text of each event, with its span in front.
#[derive(Clone, Default)]
struct Events(Arc<Mutex<Vec<String>>>);

/// Collects the message and the fields of an event.
#[derive(Default)]
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.push_str(&format!(" {}={value:?}", field.name()));
    }
}

impl<S: Subscriber + for<'s> LookupSpan<'s>> Layer<S> for Events {
    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let span = context.lookup_current().map_or("", |span| span.name());
        let mut text = Text(format!("{span}:"));
        event.record(&mut text);
        self.0.lock().expect("no panic").push(text.0);
    }
}

impl Events {
    /// Waits for an event of another thread.
    fn wait_for(&self, parts: &[&str]) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !self.have(parts) && Instant::now() < deadline {
            std::thread::yield_now();
        }
        self.assert_any(parts);
    }

    fn have(&self, parts: &[&str]) -> bool {
        let events = self.0.lock().expect("no panic");
        let has_all = |event: &String| parts.iter().all(|part| event.contains(part));
        events.iter().any(has_all)
    }

    fn assert_any(&self, parts: &[&str]) {
        let has_them = self.have(parts);
        let events = self.0.lock().expect("no panic");
        assert!(has_them, "{parts:?} in {events:#?}");
    }
}

#[test]
fn posts_packets_completions_and_state_changes_are_events() {
    let events = Events::default();
    // For all threads: one without a subscriber that is the first to reach an event would disable it for all.
    let subscriber = tracing_subscriber::registry().with(events.clone());
    tracing::subscriber::set_global_default(subscriber).expect("the only test here");
    let pair = ConnectedPair::connected("127.55.7.1", "127.55.7.2");
    let receive = pair.right.memory.slice(0..64);
    pair.from_right.post_receive(1, [receive]).expect("room");
    let send = Request::send().inline(b"traced").id(77);
    pair.from_left.post_send(send).expect("room");
    while pair.left.completions.poll().is_none() {}
    events.assert_any(&["message=state change", "state=ReadyToSend"]);
    events.assert_any(&[
        "post:",
        "message=packet",
        "direction=\"sent\"",
        "opcode=RcSendOnly",
    ]);
    events.assert_any(&["message=completion", "id=77"]);
    // The receiver tells of it when it has released its lock, perhaps after its acknowledgement has arrived.
    events.wait_for(&[
        "message=packet",
        "direction=\"received\"",
        "opcode=RcSendOnly",
    ]);
    let source = "127.55.7.1:0".parse().expect("an address");
    let connector = Connector::resolve_from(source, "127.55.7.2:7183");
    drop(connector.expect("both are here"));
    events.assert_any(&["message=connection event", "AddressResolved"]);
}
