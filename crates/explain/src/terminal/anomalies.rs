//! The anomalies by kind, the most severe first.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anstyle::Style;

use super::View;
use super::colours::{BAD, FAINT, STRONG, WARNING, paint};
use super::table::paragraph;
use crate::analysis::Analysis;
use crate::anomaly::{Anomaly, AnomalyKind, Severity};
use crate::text_format::{count, moment};

/// The most anomalies of one kind to list.
const SHOWN: usize = 8;

/// All anomalies with their explanations.
pub(super) fn list(analysis: &Analysis, view: &View) -> String {
    let mut kinds: BTreeMap<AnomalyKind, Vec<&Anomaly>> = BTreeMap::new();
    for anomaly in analysis
        .anomalies
        .iter()
        .filter(|anomaly| view.shows_anomaly(analysis, anomaly))
    {
        kinds.entry(anomaly.kind).or_default().push(anomaly);
    }
    if kinds.is_empty() {
        return String::new();
    }
    let mut kinds: Vec<_> = kinds.into_iter().collect();
    kinds.sort_by_key(|(kind, _)| (std::cmp::Reverse(kind.severity()), *kind));
    let is_harmless = kinds
        .iter()
        .all(|(kind, _)| kind.severity() == Severity::Note);
    let title = if is_harmless {
        "Remarks"
    } else {
        "What went wrong"
    };
    let mut text = format!("\n{}\n", paint(STRONG, title));
    for (kind, anomalies) in kinds {
        text.push_str(&section(kind, &anomalies, view.width()));
    }
    text
}

fn section(kind: AnomalyKind, anomalies: &[&Anomaly], width: usize) -> String {
    let explanation = kind.explanation();
    let (style, sign) = look(kind.severity());
    let mut text = format!(
        "  {}\n",
        paint(style, format!("{sign} {}", explanation.name))
    );
    for anomaly in anomalies.iter().take(SHOWN) {
        let time = format!("    {} ", moment(anomaly.time));
        text.push_str(&paragraph(&anomaly.sentence, &time, "             ", width));
    }
    if anomalies.len() > SHOWN {
        let more = count((anomalies.len() - SHOWN) as u64, "more", "more");
        let _ = writeln!(text, "    … and {more} of this kind (--json has all)");
    }
    let mut rest = paragraph(explanation.rule, "    rule: ", "          ", width);
    for (index, cause) in explanation.causes.iter().enumerate() {
        let first = if index == 0 {
            "    likely: "
        } else {
            "         or "
        };
        rest.push_str(&paragraph(cause, first, "            ", width));
    }
    for line in rest.lines() {
        let _ = writeln!(text, "{}", paint(FAINT, line));
    }
    text
}

/// One anomaly with its name.
pub(super) fn line(anomaly: &Anomaly, width: usize) -> String {
    let explanation = anomaly.kind.explanation();
    let (style, sign) = look(anomaly.kind.severity());
    let so_far = if anomaly.is_open { ", so far" } else { "" };
    let name = paint(style, format!("{sign} {}{so_far}", explanation.name));
    let first = format!("  {} ", moment(anomaly.time));
    let sentence = paragraph(&anomaly.sentence, &first, "           ", width);
    format!("  {name}\n{sentence}")
}

fn look(severity: Severity) -> (Style, char) {
    match severity {
        Severity::Error => (BAD, '✗'),
        Severity::Warning => (WARNING, '!'),
        Severity::Note => (STRONG, '·'),
    }
}
