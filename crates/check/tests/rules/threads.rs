//! What ThreadSanitizer is told.

use check::{Actor, Deed, MemoryAccess};
use engine::{Access, CompletedWork, Observation, QueuePairType, Registration, Work};

use crate::program::{DEVICE, KEY, Program, local, remote};

/// A program with a region that peers may access in this way.
fn program(access: Access) -> Program {
    let mut program = Program::new(QueuePairType::Rc);
    program.checker = std::mem::take(&mut program.checker).with_threads(true);
    program.observe(Observation::Registered {
        region: Registration {
            local_key: KEY,
            remote_key: KEY,
            address: 0x1000,
            length: 0x1000,
        },
        access,
        memory: Some(0x1000),
        accelerated: false,
    });
    program.checker.take_deeds();
    program
}

fn deeds_of(program: &mut Program, actor: Actor) -> Vec<Deed<()>> {
    let deeds = program.checker.take_deeds();
    deeds.into_iter().filter(|it| it.actor == actor).collect()
}

fn addresses(syncs: &[check::SyncPoint]) -> Vec<usize> {
    syncs.iter().map(check::SyncPoint::address).collect()
}

#[test]
fn a_request_accesses_its_memory_at_its_post_and_a_poll_learns_of_it() {
    let mut program = program(Access::LOCAL_WRITE);
    let requests = Actor::Requests(DEVICE, program.queue_pairs[0]);
    program.post_from(0, Work::Read(remote(0)), local(0x1000));
    let told = deeds_of(&mut program, requests);
    let [read] = told.as_slice() else {
        panic!("one request: {told:?}");
    };
    assert!(read.is_asked);
    assert_eq!(read.accesses, [MemoryAccess::Write(0x1000..0x1008)]);
    program.end(0);
    assert!(program.checker.take_deeds().is_empty());
    program.poll(0, CompletedWork::Read);
    let polled = deeds_of(&mut program, Actor::Thread);
    assert_eq!(addresses(&polled[0].learns), addresses(&read.tells));
}

#[test]
fn a_poll_of_a_message_learns_of_requests_that_have_ended() {
    let mut program = program(Access::LOCAL_WRITE);
    let requests = Actor::Requests(DEVICE, program.queue_pairs[0]);
    program.post_from(0, Work::Send, local(0x1000));
    let sent = deeds_of(&mut program, requests);
    assert_eq!(sent[0].accesses, [MemoryAccess::Read(0x1000..0x1008)]);
    program.poll(0, CompletedWork::Receive);
    assert!(deeds_of(&mut program, Actor::Thread).is_empty());
    program.end(0);
    program.poll(0, CompletedWork::Receive);
    let polled = deeds_of(&mut program, Actor::Thread);
    assert_eq!(addresses(&polled[0].learns), addresses(&sent[0].tells));
}

/// Another process may answer by a WRITE, and the program may read that at any time.
#[test]
fn messages_are_not_told_if_the_peer_may_answer_in_memory() {
    let mut program = program(Access::LOCAL_WRITE | Access::REMOTE_WRITE);
    let requests = Actor::Requests(DEVICE, program.queue_pairs[0]);
    program.post_from(0, Work::Send, local(0x1000));
    program.post_from(0, Work::Read(remote(0)), local(0x1100));
    let told = deeds_of(&mut program, requests);
    assert_eq!(told[0].accesses, []);
    assert_eq!(told[1].accesses, [MemoryAccess::Write(0x1100..0x1108)]);
}

#[test]
fn words_of_this_process_are_atomic_and_longer_ranges_are_not() {
    let mut program = program(Access::LOCAL_WRITE | Access::REMOTE_WRITE);
    let requests = Actor::Requests(DEVICE, program.queue_pairs[0]);
    let add = Work::FetchAdd {
        remote: remote(0x1008),
        add: 1,
    };
    // Each is about 8 bytes.
    let [aligned, shifted] = [0x1010, 0x1014].map(remote);
    for work in [
        add,
        Work::Write(aligned),
        Work::Read(aligned),
        Work::Write(shifted),
    ] {
        program.post(0, work, true, false);
    }
    let told = deeds_of(&mut program, requests);
    let accesses: Vec<_> = told.into_iter().flat_map(|it| it.accesses).collect();
    let expected = [
        MemoryAccess::ChangeWord(0x1008..0x1010),
        MemoryAccess::StoreWord(0x1010..0x1018),
        MemoryAccess::LoadWord(0x1010..0x1018),
        MemoryAccess::Write(0x1014..0x101c),
    ];
    assert_eq!(accesses, expected);
}

#[test]
fn memory_that_the_program_cannot_access_is_not_told() {
    let mut program = program(Access::LOCAL_WRITE);
    let requests = Actor::Requests(DEVICE, program.queue_pairs[0]);
    program.post_from(0, Work::Read(remote(0)), local(0x2000));
    program.post_from(0, Work::Read(remote(0)), local(0x1ffc));
    let told = deeds_of(&mut program, requests);
    assert!(told.iter().all(|it| it.accesses.is_empty()), "{told:?}");
}
