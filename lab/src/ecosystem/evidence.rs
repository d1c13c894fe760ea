//! Checks that a program's data went over our device and not over TCP or shared memory.
//!
//! Our device uses UDP, and nothing else does in the network namespace of one run.

use crate::programs::network::{Host, Network};

/// How many UDP datagrams both hosts have received. A batch counts once.
pub(super) fn datagrams(network: &Network) -> Result<u64, String> {
    Ok(datagrams_at(&network.server)? + datagrams_at(&network.client)?)
}

fn datagrams_at(host: &Host) -> Result<u64, String> {
    let mut command = host.command("cat");
    let output = command.args(["/proc/net/snmp", "/proc/net/snmp6"]).output();
    let output = output.map_err(|error| format!("`cat` can't be started: {error}"))?;
    let tables = String::from_utf8_lossy(&output.stdout);
    let counted = received(&tables).zip(received_over_ipv6(&tables));
    let (ipv4, ipv6) =
        counted.ok_or_else(|| format!("the kernel doesn't count datagrams: {tables}"))?;
    Ok(ipv4 + ipv6)
}

/// The table of IPv4 has a line of names and a line of numbers for each protocol.
fn received(tables: &str) -> Option<u64> {
    let mut lines = tables.lines().filter(|line| line.starts_with("Udp:"));
    let (names, numbers) = (lines.next()?, lines.next()?);
    let index = names
        .split_whitespace()
        .position(|name| name == "InDatagrams")?;
    numbers.split_whitespace().nth(index)?.parse().ok()
}

/// The table of IPv6 has a line for each number.
fn received_over_ipv6(tables: &str) -> Option<u64> {
    let mut lines = tables.lines().map(str::split_whitespace);
    let number = lines.find_map(|mut words| {
        let name = words.next()?;
        (name == "Udp6InDatagrams").then(|| words.next())?
    });
    number?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_found_by_their_names() {
        let tables = "Tcp: InSegs\nTcp: 9\nUdp: NoPorts InDatagrams\nUdp: 3 70\nUdpLite: InDatagrams\n\
                      Ip6InReceives 5\nUdp6InDatagrams \t8\nUdp6NoPorts 2\n";
        assert_eq!(received(tables), Some(70));
        assert_eq!(received_over_ipv6(tables), Some(8));
        assert_eq!(received("Tcp: InSegs\nTcp: 9\n"), None);
    }
}
