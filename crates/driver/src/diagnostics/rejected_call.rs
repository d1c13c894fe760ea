//! Rejected calls.

use std::net::IpAddr;

use engine::incident::{ObjectKind, RejectedModify};
use engine::{
    Access, Address, AddressError, Attribute, CompletedWork, MemoryError, ModifyError, PostError,
    State,
};
use errors::errno::{EBUSY, EFAULT, EINVAL, ENODATA, ENOMEM, EOPNOTSUPP};
use errors::{Cause, CodeKind, cause};
use net::socket::interface::Device;
use wire::Qpn;

use super::misuse::{DeviceMemoryMistake, Misuse};
use super::{Diagnostic, names, row_towards};

pub(super) fn modify(device: &Device, change: &RejectedModify) -> Diagnostic {
    let about = names::queue_pair(change.queue_pair);
    let to = change.attributes.state.unwrap_or(change.state);
    let (kind, from) = (change.kind, change.state);
    let asked = format!("{about} ({kind}) can't go from {from} to {to}");
    let (wrong, cause) = wrong_with(device, change);
    let number = match change.error {
        ModifyError::Path(error) => number_of(error),
        _ => EINVAL,
    };
    Diagnostic::new(about, format!("{asked}: {wrong}"), cause).code(CodeKind::Errno, number)
}

const fn number_of(error: AddressError) -> u32 {
    match error {
        AddressError::EmptySourceIndex(_) => ENODATA,
        AddressError::Exhausted => ENOMEM,
        _ => EINVAL,
    }
}

fn wrong_with(device: &Device, change: &RejectedModify) -> (String, &'static Cause) {
    match change.error {
        ModifyError::Path(error) => wrong_path(device, change.attributes.path, error),
        ModifyError::OutOfRange { attribute } => out_of_range(device, change, attribute),
        ModifyError::OtherState(state) => {
            let wrong = format!("it is in {state}, not in the state of cur_qp_state.");
            (wrong, &cause::OTHER_STATE)
        }
        ModifyError::Missing { .. } | ModifyError::NotAllowed { .. } => masks(change),
        _ => (
            "there is no such transition.".to_owned(),
            &cause::NO_SUCH_TRANSITION,
        ),
    }
}

fn masks(change: &RejectedModify) -> (String, &'static Cause) {
    let missing = names::attributes(change.missing);
    let surplus = names::attributes(change.surplus);
    match (missing.is_empty(), surplus.is_empty()) {
        (true, _) => (
            format!("the mask has {surplus}, which this transition does not take."),
            &cause::SURPLUS_ATTRIBUTES,
        ),
        (false, true) => (
            format!("the mask lacks {missing}."),
            &cause::MISSING_ATTRIBUTES,
        ),
        (false, false) => (
            format!(
                "the mask lacks {missing}, and has {surplus}, which this transition does not take."
            ),
            &cause::MISSING_ATTRIBUTES,
        ),
    }
}

fn out_of_range(
    device: &Device,
    change: &RejectedModify,
    attribute: Attribute,
) -> (String, &'static Cause) {
    if attribute == Attribute::PATH_MTU {
        let asked = change.attributes.path_mtu.map_or(0, wire::PathMtu::bytes);
        let (max, mtu) = (device.active_mtu.bytes(), device.mtu);
        let name = &device.name;
        let wrong =
            format!("a path MTU of {asked} exceeds the {max} of {name} (interface MTU {mtu}).");
        return (wrong, &cause::MTU_ABOVE_PORT);
    }
    let name = names::attributes(attribute);
    let wrong = format!("the value of {name} is out of range.");
    (wrong, &cause::VALUE_OUT_OF_RANGE)
}

fn wrong_path(
    device: &Device,
    path: Option<Address>,
    error: AddressError,
) -> (String, &'static Cause) {
    let peer = path.and_then(|path| path.destination.ip());
    match error {
        AddressError::Exhausted => (
            "the limit on address handles is reached.".to_owned(),
            &cause::EXHAUSTED,
        ),
        AddressError::NoDestination => (
            "the peer's GID is zero.".to_owned(),
            &cause::NO_GLOBAL_ROUTE,
        ),
        AddressError::EmptySourceIndex(index) => (
            format!(
                "GID index {index} is empty.{}",
                better_row(device, peer, None)
            ),
            &cause::EMPTY_GID,
        ),
        AddressError::FamilyMismatch { source_index, .. } => (
            format!(
                "GID index {source_index}{} can't reach the peer{}.{}",
                address_of_row(device, source_index),
                peer.map_or(String::new(), |peer| format!(" at {peer}")),
                better_row(
                    device,
                    peer,
                    device.gid(source_index.into()).map(|row| row.address)
                )
            ),
            &cause::UNREACHABLE_FROM_GID,
        ),
        // Our devices refuse in no other way.
        other => (format!("{other}."), &cause::EXHAUSTED),
    }
}

fn address_of_row(device: &Device, index: u8) -> String {
    let row = device.gid(usize::from(index));
    row.map_or(String::new(), |row| format!(" ({})", row.address))
}

/// The row of the GID table that reaches the peer, as a sentence.
/// Nothing if the present source is that of the row already.
pub(super) fn better_row(device: &Device, peer: Option<IpAddr>, present: Option<IpAddr>) -> String {
    let Some(peer) = peer else {
        return String::new();
    };
    match row_towards(device, peer) {
        Some(row) if Some(row.address) == present => String::new(),
        Some(row) => {
            let (index, address) = (row.index, row.address);
            let interface = &row.interface.name;
            format!(" GID index {index} ({address} on {interface}) can reach the peer.")
        }
        None => format!(" {} has no address that can reach the peer.", device.name),
    }
}

fn device_memory(call: &str, mistake: &DeviceMemoryMistake) -> Diagnostic {
    let range = |offset, length| format!("{} at offset {offset}", names::bytes(length));
    let (wrong, cause, number) = match *mistake {
        DeviceMemoryMistake::TooLarge { length, max } => (
            format!(
                "{} exceed the {max} of the device (max_dm_size).",
                names::bytes(length)
            ),
            &cause::EXHAUSTED,
            ENOMEM,
        ),
        DeviceMemoryMistake::NotZeroBased => (
            "the access flags lack IBV_ACCESS_ZERO_BASED.".to_owned(),
            &cause::DEVICE_MEMORY_HAS_NO_ADDRESS,
            EINVAL,
        ),
        DeviceMemoryMistake::OutOfRange {
            offset,
            length,
            size,
        } => (
            format!(
                "{} exceed the {} that were allocated.",
                range(offset, length),
                names::bytes(size)
            ),
            &cause::DEVICE_MEMORY_RANGE,
            EINVAL,
        ),
        DeviceMemoryMistake::NotInUnits {
            offset,
            length,
            unit,
        } => (
            format!(
                "{} are not in units of {unit} bytes.",
                range(offset, length)
            ),
            &cause::DEVICE_MEMORY_RANGE,
            EINVAL,
        ),
        DeviceMemoryMistake::Registered => (
            "a memory region still uses the memory (ibv_dereg_mr).".to_owned(),
            &cause::IN_USE,
            EBUSY,
        ),
    };
    Diagnostic::new(call.to_owned(), format!("{call} failed: {wrong}"), cause)
        .code(CodeKind::Errno, number)
}

pub(super) fn misuse(device: &Device, queue_pair: Option<Qpn>, misuse: &Misuse) -> Diagnostic {
    let about = match (queue_pair, misuse) {
        (Some(number), _) => names::queue_pair(number),
        (None, Misuse::UnmappedMemory { .. } | Misuse::GpuMemory { .. }) => {
            "a memory region".to_owned()
        }
        (None, _) => "an address handle".to_owned(),
    };
    let (wrong, cause) = match misuse {
        Misuse::NoGlobalRoute => {
            let rows = device.gids.iter();
            let rows = names::listed(rows.map(|row| format!("{} ({})", row.index, row.address)));
            let wrong = format!(
                "the address has no global route (is_global is 0); GID indexes here are {rows}."
            );
            (wrong, &cause::NO_GLOBAL_ROUTE)
        }
        Misuse::UnknownAttributes(bits) => {
            let wrong = format!("the mask has the unknown bits {bits:#x}.");
            (wrong, &cause::UNKNOWN_ATTRIBUTE)
        }
        Misuse::BadValue { attribute, value } => {
            let name = names::attributes(*attribute);
            let wrong = format!("{value} is not a valid value for {name}.");
            (wrong, &cause::VALUE_OUT_OF_RANGE)
        }
        Misuse::UnmappedMemory {
            address,
            length,
            writing,
        } => {
            let range = format!("{} at {address:#x}", names::bytes(*length as u64));
            let what = if *writing { "written" } else { "read" };
            let wrong = format!("not all of the {range} can be {what}.");
            (wrong, &cause::UNMAPPED_MEMORY)
        }
        Misuse::GpuMemory { address, reason } => {
            let wrong = format!("{address:#x} is an address of a GPU, and {reason}.");
            (wrong, &cause::GPU_MEMORY)
        }
        Misuse::Address(address, error) => wrong_path(device, Some(*address), *error),
        Misuse::DeviceMemory { call, mistake } => return device_memory(call, mistake),
    };
    let verb = match queue_pair {
        Some(_) => "can't be modified",
        None => "can't be created",
    };
    let number = match misuse {
        Misuse::Address(_, error) => number_of(*error),
        Misuse::UnmappedMemory { .. } | Misuse::GpuMemory { .. } => EFAULT,
        _ if misuse.asks_for_newer_attributes() => EOPNOTSUPP,
        _ => EINVAL,
    };
    Diagnostic::new(about.clone(), format!("{about} {verb}: {wrong}"), cause)
        .code(CodeKind::Errno, number)
}

pub(super) fn post(
    queue_pair: Qpn,
    state: State,
    id: u64,
    work: CompletedWork,
    error: PostError,
) -> Option<Diagnostic> {
    // The connection manager retries by itself.
    if queue_pair == Qpn::GSI {
        return None;
    }
    if error == PostError::QueueFull && work == CompletedWork::Receive {
        return Some(full_receive_queue(queue_pair, id));
    }
    let (cause, code) = match error {
        PostError::WrongState(_) => (&cause::POSTED_TOO_EARLY, EINVAL),
        PostError::QueueFull => (&cause::QUEUE_FULL, ENOMEM),
        PostError::NoMemory => (&cause::EXHAUSTED, ENOMEM),
        PostError::TooManySegments { .. } => (&cause::TOO_MANY_SEGMENTS, EINVAL),
        PostError::MessageTooLong => (&cause::MESSAGE_TOO_LONG, EINVAL),
        PostError::InlineTooLong { .. } => (&cause::INLINE_TOO_LONG, EINVAL),
        PostError::InlineResult => (&cause::INLINE_RESULT, EINVAL),
        PostError::Unsupported => (&cause::WRONG_SERVICE, EINVAL),
        PostError::Destination => (&cause::WRONG_DESTINATION, EINVAL),
        PostError::Address(_) => (&cause::UNREACHABLE_FROM_GID, EINVAL),
        PostError::AtomicShape => (&cause::ATOMIC_SHAPE, EINVAL),
        PostError::SharedReceive => (&cause::SHARED_RECEIVE, EINVAL),
        _ => return None,
    };
    let about = names::queue_pair(queue_pair);
    let work = names::with_article(names::completed(work));
    let reason = match error {
        PostError::WrongState(_) => format!("the queue pair is in {state}."),
        PostError::QueueFull => "the queue is full.".to_owned(),
        PostError::SharedReceive => "the queue pair uses a shared receive queue.".to_owned(),
        other => format!("{other}."),
    };
    let what = format!("{about} rejected {work} (wr_id {id}): {reason}");
    Some(Diagnostic::new(about, what, cause).code(CodeKind::Errno, code))
}

/// Many programs post receives until the queue is full, so this is reported once for all queue pairs.
fn full_receive_queue(queue_pair: Qpn, id: u64) -> Diagnostic {
    let about = names::queue_pair(queue_pair);
    let what = format!(
        "{about} rejected a receive (wr_id {id}): the queue is full. This is normal for a program that \
         posts until the queue is full."
    );
    Diagnostic::new("receive queues".to_owned(), what, &cause::QUEUE_FULL).ordinary()
}

/// An object that other objects use.
pub(super) fn destroy(object: ObjectKind, users: u32) -> Diagnostic {
    let (name, call, others) = match object {
        ObjectKind::ProtectionDomain => (
            "protection domain",
            "ibv_dealloc_pd",
            "memory regions, memory windows, queue pairs, shared receive queues or address handles",
        ),
        ObjectKind::XrcDomain => (
            "XRC domain",
            "ibv_close_xrcd",
            "queue pairs or shared receive queues",
        ),
        ObjectKind::CompletionQueue => (
            "completion queue",
            "ibv_destroy_cq",
            "queue pairs or shared receive queues",
        ),
        ObjectKind::SharedReceiveQueue => {
            ("shared receive queue", "ibv_destroy_srq", "queue pairs")
        }
    };
    let what = format!(
        "A {name} can't be destroyed ({call}): {users} other {} it ({others}).",
        if users == 1 {
            "object still uses"
        } else {
            "objects still use"
        }
    );
    let about = format!("A {name}");
    Diagnostic::new(about, what, &cause::IN_USE).code(CodeKind::Errno, EBUSY)
}

pub(super) fn register(device: &Device, access: Access, error: MemoryError) -> Diagnostic {
    let cause = match error {
        MemoryError::NeedsLocalWrite => &cause::NEEDS_LOCAL_WRITE,
        MemoryError::Exhausted => &cause::EXHAUSTED,
        _ => &cause::REGISTRATION_REFUSED,
    };
    let rights = names::rights(access);
    let what = format!("Memory can't be registered with {rights}: {error}.");
    Diagnostic::new(device.name.clone(), what, cause).code(CodeKind::Errno, EINVAL)
}
