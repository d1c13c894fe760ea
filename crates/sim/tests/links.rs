//! WRITEs between two devices over links with a rate, a queue, a delay and losses, in virtual time.

use std::time::Duration;

use engine::Congestion;
use sim::links::{Link, Setup};

const SHALLOW: Link = Link {
    rate: 300,
    delay: Duration::from_micros(500),
    queue: 50,
    loses_one_in: None,
    delays_one_in: None,
    marks_from: None,
};

const SECOND: Duration = Duration::from_secs(1);

fn alone(link: Link, duration: Duration) -> Setup {
    Setup {
        link,
        congestion: Congestion::default(),
        held_lists: true,
        senders: 1,
        queue_pairs: 1,
        outstanding: 16,
        cubic: 0,
        bbr: 0,
        duration,
        seed: 0,
    }
}

/// Asserts that WRITEs take at least this part of the link: to a receiver that lists what it holds behind a loss, and to one that
/// doesn't.
#[track_caller]
fn assert_uses(link: Link, duration: Duration, with_lists: f64, without: f64) {
    for (held_lists, part) in [(true, with_lists), (false, without)] {
        let setup = Setup {
            held_lists,
            ..alone(link, duration)
        };
        let ours = setup.run().ours[0];
        println!("lists {held_lists}: {ours:?}");
        assert!(ours.of_link >= part, "lists {held_lists}: {ours:?}");
    }
}

#[test]
fn short_queue_does_not_stop_the_sender() {
    assert_uses(SHALLOW, SECOND / 2, 0.9, 0.9);
}

#[test]
fn fast_link_with_a_short_queue_is_used() {
    let link = Link {
        rate: 1000,
        queue: 100,
        ..SHALLOW
    };
    assert_uses(link, SECOND / 4, 0.9, 0.9);
}

#[test]
fn lost_packets_cost_little_more_than_themselves() {
    let link = Link {
        queue: 1000,
        loses_one_in: Some(100),
        ..SHALLOW
    };
    assert_uses(link, SECOND / 2, 0.9, 0.75);
}

#[test]
fn late_packets_are_not_taken_for_lost_ones() {
    let link = Link {
        queue: 1000,
        delays_one_in: Some(100),
        ..SHALLOW
    };
    assert_uses(link, SECOND / 2, 0.9, 0.9);
}

#[test]
fn long_path_is_filled() {
    let link = Link {
        rate: 100,
        delay: Duration::from_millis(25),
        queue: 1000,
        ..SHALLOW
    };
    assert_uses(link, 2 * SECOND, 0.65, 0.65);
}

#[test]
fn long_path_with_losses_is_used() {
    let link = Link {
        rate: 100,
        delay: Duration::from_millis(25),
        queue: 1000,
        loses_one_in: Some(1000),
        ..SHALLOW
    };
    assert_uses(link, 2 * SECOND, 0.5, 0.5);
}

#[test]
fn long_path_with_many_losses_is_used() {
    let link = Link {
        rate: 100,
        delay: Duration::from_millis(25),
        queue: 1000,
        loses_one_in: Some(100),
        ..SHALLOW
    };
    assert_uses(link, 2 * SECOND, 0.45, 0.08);
}

#[test]
fn link_that_loses_one_packet_in_twenty_is_used() {
    let link = Link {
        queue: 1000,
        loses_one_in: Some(20),
        ..SHALLOW
    };
    // Which packets are lost decides much: of eight seeds one takes 1.8 times as much as another.
    for (held_lists, part) in [(true, 0.2), (false, 0.1)] {
        let taken = (0..8).map(|seed| {
            let setup = Setup {
                seed,
                held_lists,
                ..alone(link, SECOND / 2)
            };
            setup.run().ours[0].of_link
        });
        let mean = taken.sum::<f64>() / 8.0;
        assert!(mean >= part, "lists {held_lists}: {mean}");
    }
}

#[test]
fn link_is_shared_with_a_tcp_connection() {
    let setup = Setup {
        cubic: 1,
        ..alone(SHALLOW, 4 * SECOND)
    };
    let outcome = setup.run();
    let [ours, theirs] = [outcome.ours[0], outcome.tcp[0]].map(|it| it.of_link);
    println!("{ours} and {theirs}");
    assert!((0.3..0.7).contains(&ours), "{ours} and {theirs}");
    assert!(ours + theirs > 0.95, "{ours} and {theirs}");
}

/// Jain's index: 1 if all have the same part of the link, and the inverse of their number if one has all.
fn fairness(parts: &[f64]) -> f64 {
    let sum: f64 = parts.iter().sum();
    let squares: f64 = parts.iter().map(|part| part.powi(2)).sum();
    sum.powi(2) / (squares * parts.len() as f64)
}

/// All of them begin at once, and the first windows of most of them are lost as a whole.
#[test]
fn hosts_share_a_short_queue() {
    let setup = Setup {
        senders: 8,
        ..alone(SHALLOW, 2 * SECOND)
    };
    let parts: Vec<f64> = setup.run().ours.iter().map(|it| it.of_link).collect();
    let (sum, fairness) = (parts.iter().sum::<f64>(), fairness(&parts));
    println!("{sum}, {fairness}");
    assert!(sum > 0.95 && fairness > 0.65, "{sum}, {fairness}");
}

#[test]
fn hosts_share_a_link_that_marks_packets() {
    let link = Link {
        queue: 1000,
        marks_from: Some(60),
        rate: 1000,
        ..SHALLOW
    };
    for senders in [2, 8] {
        let setup = Setup {
            senders,
            ..alone(link, SECOND)
        };
        let parts: Vec<f64> = setup.run().ours.iter().map(|it| it.of_link).collect();
        let (sum, fairness) = (parts.iter().sum::<f64>(), fairness(&parts));
        println!("{senders}: {sum}, {fairness}");
        assert!(sum > 0.93 && fairness > 0.9, "{senders}: {sum}, {fairness}");
    }
}

#[test]
fn queue_pairs_to_one_peer_share_a_link_evenly() {
    for queue_pairs in [8, 64, 1000] {
        let setup = Setup {
            queue_pairs,
            ..alone(SHALLOW, 2 * SECOND)
        };
        let parts: Vec<f64> = setup.run().ours.iter().map(|it| it.of_link).collect();
        let (sum, fairness) = (parts.iter().sum::<f64>(), fairness(&parts));
        println!("{queue_pairs} queue pairs: {sum}, {fairness}");
        assert!(sum > 0.95, "{queue_pairs}: {sum}");
        assert!(fairness > 0.95, "{queue_pairs}: {fairness}");
    }
}

#[test]
fn many_queue_pairs_share_a_link_with_a_tcp_connection_as_one_does() {
    let setup = Setup {
        cubic: 1,
        queue_pairs: 64,
        ..alone(SHALLOW, 4 * SECOND)
    };
    let outcome = setup.run();
    let ours: f64 = outcome.ours.iter().map(|it| it.of_link).sum();
    let theirs = outcome.tcp[0].of_link;
    println!("{ours} and {theirs}");
    assert!((0.3..0.7).contains(&ours), "{ours} and {theirs}");
    assert!(ours + theirs > 0.9, "{ours} and {theirs}");
}

#[test]
fn congestion_notifications_shorten_the_queue() {
    let queue = |marks_from| {
        let link = Link {
            queue: 1000,
            marks_from,
            ..SHALLOW
        };
        let mut setup = alone(link, SECOND);
        setup.senders = 4;
        let outcome = setup.run();
        println!(
            "{outcome:?}",
            outcome = (outcome.longest_queue, &outcome.ours)
        );
        outcome.longest_queue
    };
    assert!(queue(Some(20)) < queue(None));
}

#[test]
fn same_seed_gives_the_same_run() {
    let link = Link {
        loses_one_in: Some(100),
        ..SHALLOW
    };
    let run = || alone(link, SECOND / 10).run();
    assert_eq!(run().times, run().times);
}
