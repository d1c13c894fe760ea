//! What a program leaves behind when it destroys an object, and when it ends.

use check::Rule;
use engine::observation::Discarded;
use engine::{
    Access, AsyncEvent, CompletedWork, Completion, MappingChange, Observation, QueuePairType,
    Registration, Status, Work,
};
use wire::Qpn;

use crate::program::{DEVICE, KEY, Program, local};

fn program() -> Program {
    Program::new(QueuePairType::Rc)
}

fn destroyed(queue_pair: Qpn, failure: Option<Completion>) -> Observation {
    Observation::QueuePairDestroyed(Discarded {
        queue_pair,
        sends: 0,
        failure,
    })
}

/// A send of a queue pair that failed.
fn failed(queue_pair: Qpn) -> Completion {
    Completion {
        id: 1,
        status: Status::RetriesExhausted,
        work: CompletedWork::Write,
        length: 0,
        queue_pair,
        immediate: None,
        invalidated: None,
        source: None,
    }
}

/// Memory that begins at zero, as the requests of these tests have it.
fn registered() -> Observation {
    Observation::Registered {
        accelerated: false,
        region: Registration {
            local_key: KEY,
            remote_key: KEY,
            address: 0,
            length: 4096,
        },
        access: Access::REMOTE_WRITE,
        memory: Some(0),
    }
}

fn deregistered(changed: Option<(u64, MappingChange)>) -> Observation {
    Observation::Deregistered { key: KEY, changed }
}

#[test]
fn a_failure_that_is_not_polled_is_found_when_its_queue_pair_or_the_program_ends() {
    let mut program = program();
    let [first, second] = program.queue_pairs;
    let found = program.observe(destroyed(first, Some(failed(first))));
    assert_eq!(found, [Rule::FailureNotPolled]);
    let queue = program.completions;
    program.observe(Observation::Completed(queue, failed(second)));
    assert!(program.close().contains(&Rule::FailureNotPolled));
}

#[test]
fn a_failure_that_is_polled_is_not_found() {
    let mut program = program();
    let (queue, failed) = (program.completions, failed(program.queue_pairs[0]));
    program.observe(Observation::Completed(queue, failed));
    program.observe(Observation::Polled(queue, failed));
    assert!(!program.close().contains(&Rule::FailureNotPolled));
}

#[test]
fn an_end_that_no_poll_has_told_is_found_when_its_queue_pair_or_the_program_ends() {
    for destroys in [false, true] {
        let ends = |program: &mut Program| {
            let number = program.queue_pairs[0];
            if destroys {
                program.observe(destroyed(number, None))
            } else {
                program.close()
            }
        };
        let mut program = program();
        program.write(0, true);
        program.end(0);
        assert!(ends(&mut program).contains(&Rule::NeverPolled));
        let mut program = self::program();
        program.write(0, true);
        program.end(0);
        program.poll(0, CompletedWork::Write);
        assert!(!ends(&mut program).contains(&Rule::NeverPolled));
    }
}

/// A server whose client was killed destroys the queue pair. There is no completion that it should have waited for.
#[test]
fn a_request_that_was_flushed_is_no_end_that_the_program_must_poll() {
    let mut program = program();
    let number = program.queue_pairs[0];
    program.write(0, true);
    program.observe(Observation::QueuePairFailed(number));
    let flushed = Observation::SendEnded {
        queue_pair: number,
        status: Status::Flushed,
        changed_at: None,
    };
    program.observe(flushed);
    assert_eq!(program.observe(destroyed(number, None)), []);
}

#[test]
fn an_end_that_no_poll_has_told_says_how_many_there_are() {
    let what_after = |requests| {
        let mut program = program();
        for _ in 0..requests {
            program.write(0, true);
            program.end(0);
        }
        let mut findings = Vec::new();
        program.checker.close(DEVICE, &mut findings);
        let mut findings = findings.into_iter();
        let found = findings.find(|finding| finding.rule == Rule::NeverPolled);
        found.expect("nobody polls").what
    };
    let [one, three] = [1, 3].map(what_after);
    assert!(!one.contains(" more."), "{one}");
    assert!(three.ends_with(" and 2 more."), "{three}");
}

#[test]
fn an_event_about_an_error_must_be_fetched_unless_a_completion_tells_the_error() {
    let mut program = program();
    let [first, second] = program.queue_pairs;
    let queue = program.completions;
    for event in [
        AsyncEvent::AccessError(first),
        AsyncEvent::QueuePairFatal(second),
        AsyncEvent::CompletionQueueError(queue),
    ] {
        program.observe(Observation::EventRaised(event));
    }
    let found = program.observe(destroyed(first, None));
    assert_eq!(found, [Rule::EventNotFetched]);
    program.observe(Observation::Polled(queue, failed(second)));
    let left = program.close().into_iter();
    let left = left.filter(|it| *it == Rule::EventNotFetched);
    assert_eq!(left.count(), 1, "that of the completion queue");
}

#[test]
fn a_fetched_event_is_not_found() {
    let mut program = program();
    let event = AsyncEvent::RequestError(program.queue_pairs[0]);
    program.observe(Observation::EventRaised(event));
    program.observe(Observation::EventFetched(event));
    assert!(!program.close().contains(&Rule::EventNotFetched));
}

#[test]
fn memory_is_deregistered_after_the_program_has_polled_the_requests_that_use_it() {
    let mut program = program();
    program.observe(registered());
    program.post_from(0, Work::Send, local(0));
    program.end(0);
    assert_eq!(program.observe(deregistered(None)), [Rule::RegionInUse]);
    let mut program = self::program();
    program.observe(registered());
    program.post_from(0, Work::Send, local(0));
    program.post_receive(1, local(100));
    program.end(0);
    program.poll(0, CompletedWork::Send);
    assert_eq!(
        program.observe(deregistered(None)),
        [],
        "a receive may wait"
    );
}

#[test]
fn memory_stays_mapped_until_it_is_deregistered() {
    for change in [
        MappingChange::Unmapped,
        MappingChange::ReadOnly,
        MappingChange::Replaced,
    ] {
        let mut program = program();
        program.observe(registered());
        let found = program.observe(deregistered(Some((0x1000, change))));
        assert_eq!(found, [Rule::MemoryUnmapped]);
    }
}

#[test]
fn objects_that_are_left_are_found_once() {
    let mut program = program();
    assert_eq!(program.close(), [Rule::Leak]);
    assert_eq!(program.close(), []);
}

#[test]
fn a_program_leaves_nothing_only_if_it_destroys_its_last_object() {
    for frees_domain in [false, true] {
        let mut program = program();
        for number in program.queue_pairs {
            program.observe(destroyed(number, None));
        }
        let queue = program.completions;
        program.observe(Observation::CompletionQueueDestroyed(queue));
        if frees_domain {
            program.observe(Observation::DomainFreed(program.domain));
            assert_eq!(program.close(), []);
        } else {
            assert_eq!(program.close(), [Rule::Leak]);
        }
    }
}
