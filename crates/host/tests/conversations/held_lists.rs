//! Two hosts agree on lists of held packets, after the first loss.

use engine::HeldLists;
use wire::extension::{Kind, Message};
use wire::{Packet, Qpn, mad};

use crate::station::{CLIENT, Pair, SERVER, Sent, Station};

/// The question or answer in a packet.
fn extension(sent: &Sent) -> Option<Message> {
    let packet = Packet::parse(&sent.bytes).ok()?;
    let datagram: &[u8; mad::LENGTH] = packet.payload.private()?.try_into().ok()?;
    Message::parse(datagram)
}

/// A client and a server that may send lists or not.
fn connected(server: HeldLists, client: HeldLists) -> (Station, Station, Pair) {
    let mut server = Station::with(SERVER, |config| config.device.held_lists = server);
    let mut client = Station::with(CLIENT, |config| config.device.held_lists = client);
    let (left, right) = (client.queue_pair(), server.queue_pair());
    left.connect(&mut client, SERVER, right.number);
    right.connect(&mut server, CLIENT, left.number);
    (client, server, left)
}

/// The client's first message is lost, and the second one arrives. Returns what the server sends.
fn lose_one(millis: u64, client: &mut Station, server: &mut Station, left: &Pair) -> Vec<Sent> {
    left.send(client, 1);
    assert!(!client.sends(millis).is_empty());
    left.send(client, 2);
    let second = client.sends(millis);
    server.receives(millis, &second);
    server.sends(millis)
}

#[test]
fn question_after_a_loss_is_answered() {
    let (mut client, mut server, left) = connected(HeldLists::Negotiated, HeldLists::Negotiated);
    let sent = lose_one(0, &mut client, &mut server, &left);
    let [question] = &sent
        .iter()
        .filter(|it| extension(it).is_some())
        .collect::<Vec<_>>()[..]
    else {
        panic!("one question");
    };
    assert_eq!(extension(question).map(|it| it.kind), Some(Kind::Question));
    client.receives(1, std::slice::from_ref(question));
    let answers = client.sends(1);
    let answer = answers.iter().find(|it| extension(it).is_some());
    let answer = answer.expect("an answer");
    let kind = extension(answer).map(|it| it.kind);
    assert_eq!(kind, Some(Kind::Answer { held_packets: true }));
    server.receives(2, std::slice::from_ref(answer));
    left.send(&mut client, 3);
    let third = client.sends(3);
    server.receives(3, &third);
    let lists = server.sends(3).iter().any(|sent| {
        let packet = Packet::parse(&sent.bytes).expect("a packet");
        packet.held_packets().is_ok_and(|held| !held.is_empty())
    });
    assert!(lists);
}

#[test]
fn host_without_lists_says_so_and_asks_nothing() {
    let (mut client, mut server, left) = connected(HeldLists::Negotiated, HeldLists::Never);
    let sent = lose_one(0, &mut client, &mut server, &left);
    let question = sent.iter().find(|it| extension(it).is_some());
    client.receives(1, std::slice::from_ref(question.expect("a question")));
    let answers = client.sends(1);
    let kinds: Vec<_> = answers
        .iter()
        .filter_map(extension)
        .map(|it| it.kind)
        .collect();
    assert_eq!(
        kinds,
        [Kind::Answer {
            held_packets: false
        }]
    );

    let (mut client, mut server, left) = connected(HeldLists::Never, HeldLists::Negotiated);
    let sent = lose_one(0, &mut client, &mut server, &left);
    assert!(sent.iter().all(|it| extension(it).is_none()));
}

/// Queue pair 1 has 64 sends.
#[test]
fn questions_to_many_peers_are_all_sent_beside_as_many_messages() {
    const PEERS: u8 = 70;
    let mut server = Station::new(SERVER);
    for last in 0..PEERS {
        let address = [10, 0, 1, last].into();
        let mut client = Station::new(address);
        let (left, right) = (client.queue_pair(), server.queue_pair());
        left.connect(&mut client, SERVER, right.number);
        right.connect(&mut server, address, left.number);
        left.send(&mut client, 1);
        assert_eq!(client.sends(0).len(), 1, "lost");
        left.send(&mut client, 2);
        let second = client.sends(0);
        server.receives(0, &second);
        server.connect(0, Qpn::new(0x500 + u32::from(last)));
    }
    let sent = server.sends(0);
    let messages = sent.iter().filter_map(Sent::message);
    assert_eq!(messages.count(), usize::from(PEERS));
    let questions = sent.iter().filter_map(extension);
    assert_eq!(questions.count(), usize::from(PEERS));
}
