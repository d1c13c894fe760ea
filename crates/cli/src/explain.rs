//! `roci explain`: what happened in a capture, or what a code means.

mod catalogue;
mod follow;

use std::fs::File;
use std::io::{BufWriter, IsTerminal, Read, Write};
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
  roci explain client.pcapng server.pcapng    captures of both ends, merged by time
  tcpdump -i any -w - udp port 4791 | roci explain -
  roci explain --follow trace.pcapng          report what happens while the capture is being written
  roci explain                                the kinds of codes
  roci explain wc 12                          a completion status; also: event 3, nak 0x62
  roci explain IBV_WC_RETRY_EXC_ERR           the same by its name
  roci explain transport retry counter exceeded   the same by its text

Reads pcap and pcapng files from tcpdump, Wireshark and ROCI_PCAP.")]
pub(crate) struct Options {
    /// Capture files (- for stdin), or a kind of code (wc, event, nak and others) and a number, or the name or text of a code
    #[arg(value_name = "CAPTURE|CODE", allow_negative_numbers = true)]
    subjects: Vec<PathBuf>,
    /// Print JSON, for scripts
    #[arg(long, conflicts_with = "html")]
    json: bool,
    /// Report what happens in a capture while it is being written, until Ctrl-C
    #[arg(long, conflicts_with_all = ["json", "html"])]
    follow: bool,
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
    if let (Some(from), Some(to)) = (options.from, options.to)
        && from > to
    {
        bail!("--from is after --to, so no packet can be in between: exchange the two");
    }
    let subjects = options.subjects.as_slice();
    if !subjects.iter().any(|subject| is_capture(subject)) {
        let words: Vec<_> = subjects.iter().map(|word| word.to_string_lossy()).collect();
        if let Some(entries) = catalogue::find_words(&words)? {
            if options.html.is_some() || options.follow {
                bail!("--html and --follow are for captures: leave them out to explain a code");
            }
            return catalogue::print(&entries, options.json);
        }
    }
    if options.follow {
        let [capture] = subjects else {
            bail!("--follow tells one capture: give one file");
        };
        return follow::follow(capture, &options.view());
    }
    let analysis = read(subjects)?;
    match &options.html {
        Some(page) => write_page(&analysis, subjects, page),
        None if options.json => print_json(&analysis),
        None => output::print(render(&analysis, &options.view())),
    }
}

/// Whether an argument is a capture and not a word.
fn is_capture(subject: &Path) -> bool {
    subject == Path::new(STDIN) || subject.is_file() || is_pipe(subject)
}

/// The argument for the standard input.
const STDIN: &str = "-";

/// A pipe, such as that of `<(ssh server cat trace.pcapng)`.
fn is_pipe(subject: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    let metadata = std::fs::metadata(subject);
    metadata.is_ok_and(|metadata| metadata.file_type().is_fifo())
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

fn read(paths: &[PathBuf]) -> anyhow::Result<Analysis> {
    let mut length = 0;
    let mut sources: Vec<Box<dyn Read>> = Vec::new();
    for path in paths {
        if path == Path::new(STDIN) {
            sources.push(Box::new(std::io::stdin().lock()));
            continue;
        }
        let file = File::open(path).with_context(|| unopened(path))?;
        length += file.metadata().map_or(0, |metadata| metadata.len());
        sources.push(Box::new(file));
    }
    let bar = progress(length);
    let sources = sources.into_iter().map(|source| bar.wrap_read(source));
    let analysis = Analysis::read_all(sources.collect());
    bar.finish_and_clear();
    analysis.map_err(|(place, error)| {
        let name = paths[place].display();
        anyhow::Error::new(error).context(format!("{name} can't be explained"))
    })
}

fn unopened(path: &Path) -> String {
    let name = path.display();
    if path.components().count() > 1 || path.extension().is_some() {
        return format!("{name} can't be opened");
    }
    let kinds = catalogue::kinds();
    format!(
        "no code has the name {name} (the kinds are {kinds}), and the file {name} can't be opened"
    )
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

fn write_page(analysis: &Analysis, captures: &[PathBuf], page: &Path) -> anyhow::Result<()> {
    let name = page.display();
    let titles = captures.iter().map(|capture| {
        let name = capture.file_name().unwrap_or(capture.as_os_str());
        name.to_string_lossy().into_owned()
    });
    let title = titles.collect::<Vec<_>>().join(", ");
    let file = File::create(page).with_context(|| format!("{name} can't be written"))?;
    let mut out = BufWriter::new(file);
    analysis
        .write_page(&title, &mut out)
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
