//! A program under `roci run` whose peer answers nothing looks as if it hangs. A line says why.

use std::net::UdpSocket;

use crate::run_roci::{is_installed, own_address, roci};

/// The socket receives everything and answers nothing, as a firewall that drops packets does.
#[test]
fn a_peer_that_answers_neither_requests_nor_probes_is_named() {
    if !is_installed("rping") {
        return;
    }
    let (here, there) = (own_address(), own_address());
    let _silent = UdpSocket::bind((&*there, 4791)).expect("an address of its own");
    let program = format!("exec rping -c -a {there} 2>&1");
    let client = roci(["run", "--", "sh", "-c", &program]);
    let line = client.env("ROCI_DEVICES", &here).start().line();
    let named = format!(
        "roci: roci_{here}: {there} is silent: connection requests from {here}, and probes of UDP port 4791 there, got \
         neither an answer nor an error."
    );
    assert!(line.starts_with(&named), "{line}");
    assert!(line.contains("`roci doctor`"), "{line}");
}
