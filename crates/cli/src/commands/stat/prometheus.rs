//! The text format of Prometheus.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::commands::open_devices::Report;

/// All counters of all devices and queue pairs.
pub(super) fn text(report: &Report) -> String {
    let mut metrics = BTreeMap::<String, Vec<(String, u64)>>::new();
    for device in &report.devices {
        let labels = format!(
            "pid=\"{}\",program=\"{}\",device=\"{}\",address=\"{}\"",
            device.pid,
            escaped(&device.program),
            escaped(&device.device),
            device.address
        );
        for (name, value) in &device.counters {
            let name = format!("roci_device_{name}_total");
            let lines = metrics.entry(name).or_default();
            lines.push((labels.clone(), *value));
        }
        for queue_pair in &device.queue_pairs {
            let peer = queue_pair.peer.as_ref();
            let peer = peer.map(|it| format!("{} {:#08x}", it.address, it.number));
            let labels = format!(
                "{labels},qp=\"{:#08x}\",type=\"{}\",peer=\"{}\",path=\"{}\"",
                queue_pair.number,
                queue_pair.kind,
                peer.unwrap_or_default(),
                queue_pair.path
            );
            for (name, value) in &queue_pair.counters {
                let name = format!("roci_queue_pair_{name}_total");
                let lines = metrics.entry(name).or_default();
                lines.push((labels.clone(), *value));
            }
        }
    }
    let mut text = String::new();
    for (name, lines) in metrics {
        let _ = writeln!(text, "# TYPE {name} counter");
        for (labels, value) in lines {
            let _ = writeln!(text, "{name}{{{labels}}} {value}");
        }
    }
    text
}

fn escaped(value: &str) -> String {
    value
        .replace('\\', r"\\")
        .replace('"', "\\\"")
        .replace('\n', r"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        assert_eq!(escaped("a\"b\\c\nd"), r#"a\"b\\c\nd"#);
    }
}
