//! Writes findings to stderr, and to a file as JSON.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use ::check::Level;
use net::{named_file, stderr};
use serde_json::json;

use super::Finding;
use super::summary::EXPLAINED;
use crate::diagnostics::Explained;

/// Where findings are written.
#[derive(Debug)]
pub(super) struct Output {
    json: Option<File>,
}

impl Output {
    /// Findings go to stderr, and to this file. If it cannot be written, the program is told once.
    pub(super) fn new(json: Option<&Path>) -> Self {
        let json = json.and_then(|path: &Path| {
            let file = named_file::open_to_append(path);
            file.inspect_err(|error| {
                let path = path.display();
                print(&format!(
                    "the findings cannot be written to {path}: {error}"
                ));
            })
            .ok()
        });
        Self { json }
    }

    pub(super) fn write(&mut self, finding: &Finding) {
        let stacks: Vec<_> = finding.calls.iter().map(stack).collect();
        let mut text = finding.paragraph();
        for (name, frames) in &stacks {
            text += &format!("\n    {name}");
            frames
                .iter()
                .for_each(|frame| text += &format!("\n        {frame}"));
        }
        print(&text);
        if let Some(file) = &mut self.json {
            let calls = stacks
                .iter()
                .map(|(request, stack)| json!({ "request": request, "stack": stack }));
            let line = json!({
                "rule": finding.rule.name(),
                "level": level(finding.rule.level()),
                "pid": std::process::id(),
                "about": finding.about,
                "what": finding.what,
                "remedy": finding.rule.remedy(),
                "calls": calls.collect::<Vec<_>>(),
            });
            // One write, so that lines of several processes do not mix. A full disk loses the line.
            let _ = file.write_all(format!("{line}\n").as_bytes());
        }
    }

    /// Writes an explained mistake into the file. It was printed when it was explained.
    pub(super) fn write_explained(&mut self, problem: &Explained) {
        if let Some(file) = &mut self.json {
            let line = json!({
                "rule": EXPLAINED,
                "level": level(Level::Error),
                "pid": std::process::id(),
                "about": problem.about,
                "what": problem.what,
                "remedy": problem.cause.remedy,
                "calls": [],
            });
            let _ = file.write_all(format!("{line}\n").as_bytes());
        }
    }
}

fn stack((name, call): &(String, Option<std::sync::Arc<super::Call>>)) -> (&str, Vec<String>) {
    let frames = call.as_ref().map(|call| call.frames());
    (name, frames.unwrap_or_default())
}

const fn level(level: Level) -> &'static str {
    match level {
        Level::Error => "error",
        Level::Note => "note",
    }
}

/// Prints a paragraph.
pub(super) fn print(text: &str) {
    stderr::print(format_args!("check: {text}"));
}
