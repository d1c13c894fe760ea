//! Why a case can't run on our devices, or on this machine.

const RAW: &str = "raw Ethernet packets, which a device made of UDP sockets does not have";

/// How the names of cases begin, and what they need that is not there.
const NOT_HERE: [(&str, &str); 10] = [
    ("test_cuda_dmabuf.", "memory of a CUDA card"),
    ("test_flow.", RAW),
    (
        "test_mr.DeviceMemoryAPITest.test_dm_export_dmabuf_fd",
        "device memory that other devices reach; ours is memory of the process",
    ),
    ("test_phc_timestamp.", "a clock in the network card (PHC)"),
    ("test_qp.QPTest.test_raw_qp_rate_limit", RAW),
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

/// How the suite says that a case is for virtual machines whose memory is encrypted (confidential
/// computing), and what such a case needs. Other cases of the same files are for every device.
const CONFIDENTIAL: [&str; 2] = ["CC PD is not supported", "does not report CC_DMA_BOUNCE"];
const CONFIDENTIAL_MACHINE: &str = "a virtual machine with encrypted memory";

/// The output of the suite on a machine without reserved huge pages.
const HUGE_PAGES: &str = "uge pages of size 2M";

/// What a case that was skipped needs, if that is known.
pub(super) fn of_skip(case: &str, said: &str) -> Option<&'static str> {
    if is_of_machine(said) {
        return Some("huge pages");
    }
    if CONFIDENTIAL.iter().any(|words| said.contains(words)) {
        return Some(CONFIDENTIAL_MACHINE);
    }
    let known = NOT_HERE.iter().find(|(start, _)| case.starts_with(start));
    known.map(|(_, needs)| *needs)
}

/// Whether another machine, or another user, would have run it.
pub(super) fn is_of_machine(said: &str) -> bool {
    said.contains(HUGE_PAGES)
}
