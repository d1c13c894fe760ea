//! `roci explain`: what happened in a capture, or what a code means.

mod catalogue;

use std::fs::File;
use std::io::{BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::Args;
use explain::Analysis;
use explain::terminal::{View, render};
use indicatif::{ProgressBar, ProgressStyle};
use wire::Qpn;

use crate::output;

/// The options of `roci explain`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  roci explain trace.pcapng                   connections, messages, problems, ladder diagrams
  roci explain trace.pcap --qp 0x11 --ladder 500
  roci explain trace.pcapng --from 1.5 --to 1.6
  roci explain trace.pcapng --html page.html  the same as an HTML page
  roci explain trace.pcapng --json | jq '.anomalies[].sentence'
  roci explain wc 12                          a completion status; also: event 3, nak 0x62
  roci explain IBV_WC_RETRY_EXC_ERR           the same by its name

Reads pcap and pcapng files from tcpdump, Wireshark and ROCI_PCAP.")]
pub(crate) struct Options {
    /// A capture file, a kind of code (wc, event, nak and others), or the name of a code
    #[arg(value_name = "CAPTURE|KIND|NAME")]
    subject: PathBuf,
    /// The number or the name of the code
    #[arg(value_name = "CODE", allow_negative_numbers = true)]
    codes: Vec<String>,
    /// Print JSON, for scripts
    #[arg(long, conflicts_with = "html")]
    json: bool,
    /// Write an HTML page to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Show only connections of this queue pair
    #[arg(long, value_name = "NUMBER", value_parser = queue_pair_number)]
    qp: Option<Qpn>,
    /// Maximum number of lines in a ladder diagram; 0 for no diagram
    #[arg(long, value_name = "LINES", default_value_t = View::default().ladder)]
    ladder: usize,
    /// Maximum number of messages to list
    #[arg(long, value_name = "NUMBER", default_value_t = View::default().messages)]
    messages: usize,
    /// Show only events from this time on, in seconds since the first packet
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    from: Option<u64>,
    /// Show only events up to this time, in seconds since the first packet
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    to: Option<u64>,
}

/// Runs `roci explain`.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let word = options.subject.to_string_lossy();
    let is_capture = |path: &Path| path.is_file();
    let mut others = options.codes.iter();
    let other = others.find(|other| is_capture(other.as_ref()));
    match (options.codes.as_slice(), other) {
        (_, Some(other)) => bail!(
            "one capture is explained at a time: run `roci explain {word}`, then `roci explain {other}`"
        ),
        ([], _) if is_capture(&options.subject) => {}
        ([], _) if catalogue::is_topic(&word) => return catalogue::print(&word, None),
        ([], _) => {
            if let Some(text) = catalogue::of_any_kind(&word)? {
                return output::print(text);
            }
        }
        ([code], _) => return catalogue::print(&word, Some(code)),
        ([_, more, ..], _) => {
            bail!("one code is explained at a time, so `{more}` is too much")
        }
    }
    let analysis = read(&options.subject)?;
    match &options.html {
        Some(page) => write_page(&analysis, &options.subject, page),
        None if options.json => print_json(&analysis),
        None => output::print(render(&analysis, &options.view())),
    }
}

impl Options {
    fn view(&self) -> View {
        View {
            width: width(),
            ladder: self.ladder,
            messages: self.messages,
            queue_pair: self.qp,
            from: self.from.unwrap_or(0),
            to: self.to.unwrap_or(u64::MAX),
        }
    }
}

fn read(path: &Path) -> anyhow::Result<Analysis> {
    let name = path.display();
    let file = File::open(path).with_context(|| format!("{name} can't be opened"))?;
    let length = file.metadata().map_or(0, |metadata| metadata.len());
    let bar = progress(length);
    let analysis = Analysis::read(bar.wrap_read(file));
    bar.finish_and_clear();
    analysis.with_context(|| format!("{name} can't be explained"))
}

/// A progress bar for large files, on terminals only.
fn progress(length: u64) -> ProgressBar {
    const LARGE: u64 = 32 << 20;
    if length < LARGE {
        return ProgressBar::hidden();
    }
    let style =
        ProgressStyle::with_template("reading {bar:40} {bytes} of {total_bytes}, {eta} left");
    ProgressBar::new(length).with_style(style.expect("the template is right"))
}

fn write_page(analysis: &Analysis, capture: &Path, page: &Path) -> anyhow::Result<()> {
    let name = page.display();
    let title = capture.file_name().unwrap_or(capture.as_os_str());
    let file = File::create(page).with_context(|| format!("{name} can't be written"))?;
    let mut out = BufWriter::new(file);
    analysis
        .write_page(&title.to_string_lossy(), &mut out)
        .and_then(|()| out.flush())
        .with_context(|| format!("{name} can't be written"))?;
    output::print_line(format_args!(
        "The page is in {name}: open it with a browser."
    ))
}

fn print_json(analysis: &Analysis) -> anyhow::Result<()> {
    let mut out = BufWriter::new(std::io::stdout().lock());
    match analysis.write_json(&mut out).and_then(|()| out.flush()) {
        // The reader has closed the pipe.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => other.context("the output can't be written"),
    }
}

/// The width of the terminal, or a readable width for a file.
fn width() -> usize {
    let stdout = std::io::stdout();
    let size = if stdout.is_terminal() {
        rustix::termios::tcgetwinsize(&stdout).ok()
    } else {
        None
    };
    size.map_or(View::default().width, |size| size.ws_col.into())
}

fn queue_pair_number(text: &str) -> Result<Qpn, String> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    match number {
        Ok(number) if Qpn::new(number).value() == number => Ok(Qpn::new(number)),
        _ => Err("a queue pair number is below 2^24, such as 17 or 0x11".to_owned()),
    }
}

/// Converts seconds to nanoseconds.
fn seconds(text: &str) -> Result<u64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..1e10).contains(&seconds) => Ok((seconds * 1e9) as u64),
        _ => Err("a time is a number of seconds, such as 1.5".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_pair_numbers_and_times_are_read() {
        assert_eq!(queue_pair_number("0x11"), Ok(Qpn::new(17)));
        assert_eq!(queue_pair_number("17"), Ok(Qpn::new(17)));
        assert!(queue_pair_number("0x1000000").is_err());
        assert_eq!(seconds("1.5"), Ok(1_500_000_000));
        assert!(seconds("-1").is_err());
        assert!(seconds("soon").is_err());
    }
}
