//! The results as an HTML page: one file without references to others.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::Path;

use explain::Analysis;
use explain::terminal::{View, render};

use super::report::{FailureReport, Report};
use crate::markup::escaped;

const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1c2127;--soft:#68727d;--line:#d9dee3;--box:#f4f6f8;--good:#1a7f37;--bad:#b42318}\
@media(prefers-color-scheme:dark){:root{--ink:#e3e7eb;--soft:#98a2ad;--line:#333b43;--box:#1d2227;--good:#4ac26b;--bad:#ff7b72}}\
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);margin:2em auto;max-width:75em;padding:0 1em}\
h1{font-size:1.5em;margin-bottom:0}h2{font-size:1.2em;margin-top:2em;border-top:1px solid var(--line);padding-top:1em}\
h3{font-size:1em;margin:1.2em 0 .3em}.good{color:var(--good)}.bad{color:var(--bad)}.verdict{font-size:1.2em;font-weight:600}\
table{border-collapse:collapse}th,td{text-align:left;padding:.25em 1.5em .25em 0;border-bottom:1px solid var(--line)}\
th{color:var(--soft);font-weight:500}td.number,th.number{text-align:right}code,pre{font-family:ui-monospace,monospace;font-size:13px}\
pre{background:var(--box);padding:.8em 1em;overflow:auto}pre.command{white-space:pre-wrap;overflow-wrap:anywhere;user-select:all}\
details{margin:.8em 0}summary{cursor:pointer}iframe{width:100%;height:45em;border:1px solid var(--line)}";

/// The whole page. The page of `roci explain` for each failure is a frame in it.
pub(super) fn page(report: &Report) -> String {
    let mut text = format!(
        "<!DOCTYPE html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>roci torture</title>\
         <meta name=\"viewport\" content=\"width=device-width\"><style>{STYLE}</style></head><body>\n\
         <h1>roci torture</h1>\n"
    );
    let tone = if report.failed_runs() == 0 {
        "good"
    } else {
        "bad"
    };
    let verdict = escaped(&report.verdict());
    let _ = writeln!(text, "<p class=\"verdict {tone}\">{verdict}</p>");
    text.push_str(&command(&format!("roci torture {}", report.command)));
    if !report.failures.is_empty() {
        text.push_str(&failures(&report.failures));
    }
    for (place, failure) in report.failures.iter().enumerate() {
        text.push_str(&section(place, failure));
    }
    text.push_str(&injected(report));
    text.push_str(&runs(report));
    text.push_str("</body></html>\n");
    text
}

/// A command that is shown whole. One click selects it.
fn command(words: &str) -> String {
    format!("<pre class=\"command\">{}</pre>\n", escaped(words))
}

fn failures(failures: &[FailureReport]) -> String {
    let mut text = String::from(
        "<h2>Failures</h2>\n<table><tr><th>failure</th><th>last line on stderr, or first finding</th><th class=\"number\">runs</th>\
         <th class=\"number\">first seed</th><th>smallest set of faults</th><th>fails again</th></tr>\n",
    );
    for (place, failure) in failures.iter().enumerate() {
        let _ = writeln!(
            text,
            "<tr><td><a href=\"#failure-{place}\">{}</a></td><td><code>{}</code></td><td class=\"number\">{}</td>\
             <td class=\"number\">{}</td><td>{}</td><td>{}</td></tr>",
            escaped(&failure.title()),
            escaped(&failure.message),
            failure.runs,
            failure.seed,
            failure.size(),
            escaped(&failure.repeated)
        );
    }
    text + "</table>\n"
}

fn section(place: usize, failure: &FailureReport) -> String {
    let mut text = format!(
        "<h2 id=\"failure-{place}\">{}</h2>\n<h3>This repeats it</h3>\n{}",
        escaped(&failure.title()),
        command(&failure.replay)
    );
    if !failure.packets.is_empty() {
        text.push_str("<h3>Faults</h3>\n<ul>\n");
        for packet in &failure.packets {
            let _ = writeln!(text, "<li>{}</li>", escaped(packet));
        }
        text.push_str("</ul>\n");
    }
    text.push_str(&output(&failure.directory));
    text.push_str(&explained(&failure.directory.join("capture.pcapng")));
    text
}

/// What the processes of a failed run have printed.
fn output(directory: &Path) -> String {
    let mut text = String::new();
    for who in ["command", "server", "client"] {
        for stream in ["stdout", "stderr"] {
            let bytes = fs::read(directory.join(format!("{who}.{stream}"))).unwrap_or_default();
            if !bytes.is_empty() {
                let printed = escaped(&String::from_utf8_lossy(&bytes));
                let _ = writeln!(
                    text,
                    "<details><summary>{stream} of the {who}</summary><pre>{printed}</pre></details>"
                );
            }
        }
    }
    text
}

/// The capture as `roci explain` shows it: as text, and as a page.
fn explained(capture: &Path) -> String {
    let analysis = File::open(capture)
        .ok()
        .and_then(|file| Analysis::read(file).ok());
    let Some(analysis) = analysis else {
        return "<p>There is no capture: no packet was sent.</p>\n".to_owned();
    };
    let plain = anstream::adapter::strip_str(&render(&analysis, &View::default())).to_string();
    let mut page = Vec::new();
    let title = capture.display().to_string();
    let frame = match analysis.write_page(&title, &mut page) {
        Ok(()) => format!(
            "<iframe srcdoc=\"{}\"></iframe>",
            escaped(&String::from_utf8_lossy(&page))
        ),
        Err(_) => String::new(),
    };
    format!(
        "<h3>Its packets</h3>\n{frame}\n<details><summary>The same as text</summary><pre>{}</pre></details>\n",
        escaped(&plain)
    )
}

fn injected(report: &Report) -> String {
    if report.injected.is_empty() {
        return String::new();
    }
    let mut text = String::from(
        "<h2>Injected faults</h2>\n<table><tr><th>fault</th><th class=\"number\">injected</th></tr>\n",
    );
    for (kind, number) in &report.injected {
        let kind = escaped(kind);
        let _ = writeln!(
            text,
            "<tr><td>{kind}</td><td class=\"number\">{number}</td></tr>"
        );
    }
    text + "</table>\n"
}

fn runs(report: &Report) -> String {
    let mut text = String::from(
        "<h2>Runs</h2>\n<details><summary>All runs</summary><table><tr><th class=\"number\">run</th>\
         <th class=\"number\">seed</th><th class=\"number\">seconds</th><th class=\"number\">faults</th><th>result</th></tr>\n",
    );
    for run in &report.runs {
        let (tone, result) = match &run.failure {
            Some(failure) => ("bad", escaped(failure)),
            None => ("good", "passed".to_owned()),
        };
        let _ = writeln!(
            text,
            "<tr><td class=\"number\">{}</td><td class=\"number\">{}</td><td class=\"number\">{:.2}</td>\
             <td class=\"number\">{}</td><td class=\"{tone}\">{result}</td></tr>",
            run.number, run.seed, run.seconds, run.faults
        );
    }
    text + "</table></details>\n"
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::report;
    use super::*;

    #[test]
    fn the_page_has_a_table_of_failures_and_the_whole_replay_command() {
        let report = report();
        let page = page(&report);
        assert!(page.contains("<h2>Failures</h2>"), "{page}");
        assert!(page.contains("<a href=\"#failure-0\">exit status 1 of the command</a>"));
        let replay = escaped(&report.failures[0].replay);
        let shown = format!("<pre class=\"command\">{replay}</pre>");
        assert!(page.contains(&shown), "{page}");
        assert!(
            page.contains("pre.command{white-space:pre-wrap"),
            "it is not clipped"
        );
        assert!(page.contains("a &lt; b") && page.contains("<td>1 fault</td>"));
    }
}
