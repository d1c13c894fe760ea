//! Open devices and their queue pairs as tables.

use crate::commands::open_devices::{OpenDevice, OpenQueuePair, Report, bytes};
use crate::output::{Table, count};

/// Two tables, one of devices and one of queue pairs.
pub(super) fn tables(report: &Report) -> String {
    let mut devices = Table::new([
        "PID",
        "PROGRAM",
        "DEVICE",
        "ADDRESS",
        "LANES",
        "QPS",
        "SENT",
        "RECEIVED",
        "PACKETS",
        "RETRANSMITTED",
        "TIMEOUTS",
        "RNR",
        "DROPPED",
    ]);
    let mut queue_pairs = Table::new([
        "PID",
        "QP",
        "TYPE",
        "STATE",
        "PEER",
        "LANE",
        "PATH",
        "MTU",
        "OUTSTANDING",
        "MESSAGES",
        "SENT",
        "RECEIVED",
        "RETRANSMITTED",
        "TIMEOUTS",
        "RNR",
    ]);
    let mut left_out = 0;
    for device in &report.devices {
        devices.push(device_row(device));
        for queue_pair in &device.queue_pairs {
            queue_pairs.push(queue_pair_row(queue_pair, device.pid));
        }
        let shown = device.queue_pairs.len() as u64;
        left_out = u64::saturating_add(left_out, device.queue_pair_count.saturating_sub(shown));
    }
    let mut text = devices.to_string();
    if !queue_pairs.is_empty() {
        text += &format!("\n{queue_pairs}");
    }
    if left_out > 0 {
        let more = count(left_out as usize, "queue pair is", "queue pairs are");
        text += &format!("{more} not shown: a lane publishes a limited number.\n");
    }
    text + "\n"
}

fn device_row(device: &OpenDevice) -> Vec<String> {
    let sum = |names: &[&str]| device.sum(names).to_string();
    let rates = device.rates;
    vec![
        device.pid.to_string(),
        device.program.clone(),
        device.device.clone(),
        device.address.to_string(),
        device.lanes.len().to_string(),
        device.queue_pair_count.to_string(),
        amount(device.counters["bytes_sent"], rates.map(|it| it.bytes_sent)),
        amount(
            device.counters["bytes_received"],
            rates.map(|it| it.bytes_received),
        ),
        sum(&["packets_sent", "packets_received"]),
        sum(&["retransmitted"]),
        sum(&["timeouts"]),
        sum(&["rnr_naks_sent", "rnr_naks_received"]),
        device.dropped().to_string(),
    ]
}

fn queue_pair_row(queue_pair: &OpenQueuePair, pid: u32) -> Vec<String> {
    let sum = |names: &[&str]| queue_pair.sum(names);
    let rates = queue_pair.rates;
    vec![
        pid.to_string(),
        format!("{:#08x}", queue_pair.number),
        queue_pair.kind.to_owned(),
        queue_pair.state.to_owned(),
        queue_pair.peer_text(),
        queue_pair.lane.to_string(),
        queue_pair.path.to_owned(),
        queue_pair.mtu_text(),
        queue_pair.send_queue.used.to_string(),
        sum(&["messages_sent", "messages_received"]).to_string(),
        amount(sum(&["bytes_sent"]), rates.map(|it| it.bytes_sent)),
        amount(sum(&["bytes_received"]), rates.map(|it| it.bytes_received)),
        sum(&["retransmitted"]).to_string(),
        sum(&["timeouts"]).to_string(),
        sum(&["rnr_naks_sent", "rnr_naks_received"]).to_string(),
    ]
}

/// An amount of bytes, or a rate.
fn amount(total: u64, rate: Option<f64>) -> String {
    match rate {
        None => bytes(total as f64),
        Some(rate) => format!("{}/s", bytes(rate)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_replaces_the_amount() {
        assert_eq!(amount(1_500_000, None), "1.5 MB");
        assert_eq!(amount(0, Some(2e9)), "2.0 GB/s");
    }
}
