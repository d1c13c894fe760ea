//! Why a case can't run on our devices, or on this machine.

const RAW: &str = "raw Ethernet packets, which a device made of UDP sockets does not have";

/// How the names of cases begin, and what they need that is not there.
const NOT_HERE: [(&str, &str); 7] = [
    ("test_cuda_dmabuf.", "memory of a CUDA card"),
    ("test_flow.", RAW),
    (
        "test_mr.DmaBuf",
        "dmabuf memory, as the drivers of graphics cards hand it out",
    ),
    ("test_qp.QPTest.test_create_raw_qp", RAW),
    ("test_qp.QPTest.test_query_raw_qp", RAW),
    ("test_rss_traffic.", RAW),
    (
        "test_tag_matching.",
        "tag matching in hardware, which only some cards have",
    ),
];

/// The output of the suite on a machine without reserved huge pages.
const HUGE_PAGES: &str = "uge pages of size 2M";

/// What a case that was skipped needs, if that is known.
pub(super) fn of_skip(case: &str, said: &str) -> Option<&'static str> {
    if is_of_machine(said) {
        return Some("huge pages");
    }
    let known = NOT_HERE.iter().find(|(start, _)| case.starts_with(start));
    known.map(|(_, needs)| *needs)
}

/// Whether another machine, or another user, would have run it.
pub(super) fn is_of_machine(said: &str) -> bool {
    said.contains(HUGE_PAGES)
}
