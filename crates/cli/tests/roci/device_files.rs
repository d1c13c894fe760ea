//! The device files that programs see under `roci run`.

use crate::run_roci::{Roci, address, roci};

/// What the kernel's own device has, listed by `lab/guest/device-files.sh`. `cargo xtask interop`
/// checks that the kernel still says so.
const KERNEL: &str = include_str!("rxe-files.txt");

const LIST: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../lab/guest/device-files.sh"
);

/// What only a card has: `counters`, and some names in `hw_counters`, are those of common cards.
fn is_of_a_card(line: &str) -> bool {
    const CARD: [&str; 4] = [
        "file 444 /sys/class/infiniband/rxe0/board_id rocinante",
        "link /sys/class/infiniband/rxe0/device 5243:00:00.0",
        "link /sys/class/infiniband_verbs/uverbs0/device 5243:00:00.0",
        "directory 755 /sys/class/infiniband/rxe0/ports/1/counters",
    ];
    const COUNTERS: [&str; 2] = ["counters/", "hw_counters/"];
    let counter = line.strip_prefix("file 444 /sys/class/infiniband/rxe0/ports/1/");
    CARD.contains(&line)
        || counter.is_some_and(|name| COUNTERS.iter().any(|it| name.starts_with(it)))
}

/// A program that sees one device, named as the kernel's.
fn beside_one_device(program: &[&str]) -> Roci {
    let words = ["run", "--"].iter().chain(program);
    roci(words).env("ROCI_DEVICES", format!("rxe0={}", address(3)))
}

fn python(script: &str) -> String {
    let outcome = beside_one_device(&["python3", "-c", script]).run();
    outcome.success().trim().to_owned()
}

#[test]
fn every_file_of_the_kernels_device_is_there() {
    let ours = beside_one_device(&["sh", LIST, "rxe0"]).run().success();
    let missing: Vec<_> = KERNEL
        .lines()
        .filter(|line| !ours.lines().any(|it| it == *line))
        .collect();
    let more: Vec<_> = ours
        .lines()
        .filter(|line| !KERNEL.lines().any(|it| it == *line))
        .collect();
    assert!(missing.is_empty(), "{missing:#?} is missing of {more:#?}");
    let unexpected: Vec<_> = more.iter().filter(|line| !is_of_a_card(line)).collect();
    assert!(unexpected.is_empty(), "{unexpected:#?}");
    // Two links, the name of the board, a directory and its 21 files, and 10 more names.
    assert_eq!(more.len(), 4 + 21 + 10, "{more:#?}");
}

#[test]
fn a_device_is_a_link_to_a_card_on_a_bus() {
    let script = "
import os
x = '/sys/class/infiniband/rxe0'
card = '/sys/devices/pci5243:00/5243:00:00.0'
assert os.path.islink(x), os.readlink(x)
assert os.path.realpath(x) == card + '/infiniband/rxe0', os.path.realpath(x)
assert os.path.realpath(x + '/device') == card, os.path.realpath(x + '/device')
assert open(card + '/numa_node').read() == '-1\\n'
assert os.listdir(card + '/net') == ['lo']
assert open(x + '/device/net/lo/mtu').read() == open('/sys/class/net/lo/mtu').read()
print('linked')";
    assert_eq!(python(script), "linked");
}

#[test]
fn the_c_library_resolves_paths_as_if_the_files_were_real() {
    let script = "
import ctypes
libc = ctypes.CDLL(None)
libc.realpath.restype = ctypes.c_char_p
def real(path):
    return libc.realpath(path.encode(), ctypes.create_string_buffer(4096))
x = '/sys/class/infiniband/rxe0'
card = b'/sys/devices/pci5243:00/5243:00:00.0'
assert real(x + '/../..') == card, real(x + '/../..')
assert real(x + '/device') == card, real(x + '/device')
assert real(x + '/device/subsystem') == b'/sys/bus/pci', real(x + '/device/subsystem')
assert real('/sys/class/infiniband/..') == b'/sys/class'
assert real('/sys/class/infiniband/../net') == b'/sys/class/net'
print('resolved')";
    assert_eq!(python(script), "resolved");
}

#[test]
fn a_listing_has_no_entry_of_unknown_kind() {
    for directory in [
        "/sys/class/infiniband",
        "/sys/class/infiniband/rxe0/",
        "/dev/infiniband",
    ] {
        let listing = beside_one_device(&["ls", "-la", directory]).run().success();
        assert!(!listing.contains('?'), "{listing}");
    }
    let listing = beside_one_device(&["ls", "-la", "/dev/infiniband/uverbs0"]);
    let listing = listing.run().success();
    assert!(listing.starts_with("crw-rw-rw-"), "{listing}");
}

/// With `open` and with `fopen`, and by a relative path.
#[test]
fn reading_an_attribute_of_an_empty_gid_is_rejected() {
    let script = "
import ctypes, errno, os
def rejected(path):
    try:
        open(path).read()
        assert False, path
    except OSError as error:
        assert error.errno == errno.EINVAL, error
libc = ctypes.CDLL(None, use_errno=True)
libc.fopen.restype = ctypes.c_void_p
for kind in ('types', 'ndevs'):
    path = '/sys/class/infiniband/rxe0/ports/1/gid_attrs/%s/255' % kind
    rejected(path)
    file = ctypes.c_void_p(libc.fopen(path.encode(), b'r'))
    assert file and libc.fgetc(file) == -1 and ctypes.get_errno() == errno.EINVAL
    assert open(path.replace('255', '0')).read()
    os.chdir(os.path.dirname(path))
    rejected('255')
    assert open('0').read()
print('rejected')";
    assert_eq!(python(script), "rejected");
}

/// The number is the kernel's, and the kernel does not know our devices: another device would be
/// asked about.
#[test]
fn a_device_has_no_number_in_the_kernel() {
    let script = "
import ctypes
library = ctypes.CDLL('libibverbs.so.1')
library.ibv_get_device_list.restype = ctypes.POINTER(ctypes.c_void_p)
device = library.ibv_get_device_list(None)[0]
print(library.ibv_get_device_index(ctypes.c_void_p(device)))";
    assert_eq!(python(script), "-1");
}
