//! The text format of Prometheus.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::commands::open_devices::Report;

/// All counters of all devices and queue pairs, and how many objects the devices have.
pub(super) fn text(report: &Report) -> String {
    let mut counters = BTreeMap::<String, Vec<(String, u64)>>::new();
    let mut gauges = BTreeMap::<String, Vec<(String, u64)>>::new();
    for device in &report.devices {
        let labels = format!(
            "pid=\"{}\",context=\"{}\",program=\"{}\",device=\"{}\",address=\"{}\"",
            device.pid,
            device.context,
            escaped(&device.program),
            escaped(&device.device),
            device.address
        );
        for (name, value) in &device.counters {
            let name = format!("roci_device_{name}_total");
            let lines = counters.entry(name).or_default();
            lines.push((labels.clone(), *value));
        }
        let queue_pairs = ("queue_pairs", device.queue_pair_count);
        let objects = device.objects.iter().map(|(name, value)| (*name, *value));
        for (name, value) in objects.chain([queue_pairs]) {
            let lines = gauges.entry(format!("roci_device_{name}")).or_default();
            lines.push((labels.clone(), value));
        }
        for queue_pair in &device.queue_pairs {
            let peer = queue_pair.peer.as_ref();
            let peer = peer.map(|it| format!("{} {:#08x}", it.address, it.number));
            let labels = format!(
                "{labels},qp=\"{:#08x}\",type=\"{}\",peer=\"{}\",lane=\"{}\",path=\"{}\"",
                queue_pair.number,
                queue_pair.kind,
                peer.unwrap_or_default(),
                queue_pair.lane,
                queue_pair.path
            );
            for (name, value) in &queue_pair.counters {
                let name = format!("roci_queue_pair_{name}_total");
                let lines = counters.entry(name).or_default();
                lines.push((labels.clone(), *value));
            }
        }
    }
    printed(counters, "counter") + &printed(gauges, "gauge")
}

/// The lines of metrics of one type.
fn printed(metrics: BTreeMap<String, Vec<(String, u64)>>, kind: &str) -> String {
    let mut text = String::new();
    for (name, lines) in metrics {
        let _ = writeln!(text, "# TYPE {name} {kind}");
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
    use std::time::Instant;

    use super::*;
    use crate::commands::open_devices::OpenDevice;
    use crate::commands::open_devices::tests::{device, report};

    /// Prometheus rejects a text with two lines of the same name and labels.
    #[test]
    fn two_open_devices_of_one_process_have_different_labels() {
        let second = OpenDevice {
            context: 1,
            ..device(7, 0.0, 20)
        };
        let text = text(&report(Instant::now(), 0.0, [device(7, 0.0, 10), second]));
        let labels = text.lines().filter_map(|line| line.split_once("} "));
        let mut labels: Vec<_> = labels.map(|(labels, _)| labels).collect();
        let all = labels.len();
        labels.sort_unstable();
        labels.dedup();
        // Two counters and six kinds of objects.
        assert_eq!((all, labels.len()), (16, 16), "{text}");
    }

    #[test]
    fn labels_are_escaped() {
        assert_eq!(escaped("a\"b\\c\nd"), r#"a\"b\\c\nd"#);
    }
}
