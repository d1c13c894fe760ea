//! Whether a program's data went over our device, and not over TCP or shared memory.
//!
//! Our device speaks UDP, and nobody else does in a network namespace that is there for one run.

use crate::programs::network::Host;

/// How many UDP datagrams came to a host so far. What comes as one batch counts once.
pub(super) fn datagrams(host: &Host) -> Result<u64, String> {
    let output = host.command("cat").arg("/proc/net/snmp").output();
    let output = output.map_err(|error| format!("`cat` can't be started: {error}"))?;
    let table = String::from_utf8_lossy(&output.stdout);
    received(&table).ok_or_else(|| format!("the kernel doesn't count datagrams: {table}"))
}

/// The table has a line of names and a line of numbers for each protocol.
fn received(table: &str) -> Option<u64> {
    let mut lines = table.lines().filter(|line| line.starts_with("Udp:"));
    let (names, numbers) = (lines.next()?, lines.next()?);
    let place = names
        .split_whitespace()
        .position(|name| name == "InDatagrams")?;
    numbers.split_whitespace().nth(place)?.parse().ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_number_is_found_by_its_name() {
        let table =
            "Tcp: InSegs\nTcp: 9\nUdp: NoPorts InDatagrams\nUdp: 3 70\nUdpLite: InDatagrams\n";
        assert_eq!(super::received(table), Some(70));
        assert_eq!(super::received("Tcp: InSegs\nTcp: 9\n"), None);
    }
}
