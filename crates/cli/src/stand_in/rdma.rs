//! `rdma`, the tool of iproute2: the commands that have an answer for our devices.
//!
//! Text and JSON are equal to those of iproute2 6.1 byte by byte; `crates/cli/tests/roci/rxe-rdma.txt` has its
//! output for the kernel's Soft-RoCE. A command that only the kernel can answer fails with a message. A call
//! about a device of the kernel is passed to the tool of the distribution.

mod device;
mod link;
mod record;
mod resource;
mod statistic;

use std::process::ExitCode;

use anyhow::Context as _;

use super::original::Original;
use crate::find_device::all;
use crate::output::print;
use record::{Record, printed};

const USAGE: &str = "\
Usage: rdma [ OPTIONS ] OBJECT { COMMAND | help }
where  OBJECT := { dev | link | resource | system | statistic | help }
       OPTIONS := { -V[ersion] | -d[etails] | -j[son] | -p[retty] }
";

const VERSION: &str = concat!("rdma utility, rocinante-", env!("CARGO_PKG_VERSION"), "\n");

/// The output of `rdma system`: our devices are in the network namespace of their interface, and a forked child
/// gets its own copy of memory.
const SYSTEM: &str = "netns exclusive copy-on-fork on\n";

/// The output format.
#[derive(Clone, Copy, Default, Debug, PartialEq)]
struct Format {
    json: bool,
    pretty: bool,
    details: bool,
}

/// The result of a call.
enum Answer {
    Records(Vec<Record>),
    Text(String),
    /// Success, with a message on stderr.
    Note(String),
    /// A failure, with a message on stderr.
    Rejected(String),
    /// A failure that also prints an empty list with `-j`.
    NoRecords(String),
}

/// Runs the command and returns the exit code.
pub(super) fn run(arguments: &[String]) -> anyhow::Result<ExitCode> {
    let call = match Call::parse(arguments) {
        Ok(call) => call,
        Err(sentence) => {
            eprintln!("{sentence}");
            return Ok(ExitCode::FAILURE);
        }
    };
    if let Some(original) = call.of_kernel()? {
        let failed = original.take_over(arguments);
        let path = original.path().display();
        return Err(failed).with_context(|| format!("{path} can't be run"));
    }
    let format = call.format;
    match call.answer()? {
        Answer::Records(records) => print(printed(&records, format))?,
        Answer::Text(text) => print(text)?,
        Answer::Note(sentence) => eprintln!("{sentence}"),
        Answer::Rejected(sentence) => {
            eprintln!("{sentence}");
            return Ok(ExitCode::FAILURE);
        }
        Answer::NoRecords(sentence) => {
            eprintln!("{sentence}");
            if format.json {
                print(printed(&[], format))?;
            }
            return Ok(ExitCode::FAILURE);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The options, which may be anywhere, and the other arguments.
#[derive(Default, Debug, PartialEq)]
struct Call {
    format: Format,
    /// `-V` or `-h`.
    instead: Option<&'static str>,
    words: Vec<String>,
}

/// The options that take no value: a letter and a word.
const OPTIONS: [(char, &str); 7] = [
    ('V', "Version"),
    ('h', "help"),
    ('d', "details"),
    ('j', "json"),
    ('p', "pretty"),
    ('r', "raw"),
    ('f', "force"),
];

/// The objects of `rdma`.
const OBJECTS: [&str; 7] = [
    "help",
    "dev",
    "link",
    "resource",
    "system",
    "statistic",
    "monitor",
];

impl Call {
    fn parse(arguments: &[String]) -> Result<Self, String> {
        let mut call = Self::default();
        let mut arguments = arguments.iter();
        while let Some(word) = arguments.next() {
            match word.strip_prefix('-') {
                Some("-") => call.words.extend(arguments.by_ref().cloned()),
                Some(long) if long.starts_with('-') => call.set(long_option(&long[1..])?)?,
                Some(letters) if !letters.is_empty() => {
                    for letter in letters.chars() {
                        call.set(letter)?;
                    }
                }
                _ => call.words.push(word.clone()),
            }
        }
        Ok(call)
    }

    fn set(&mut self, option: char) -> Result<(), String> {
        match option {
            'V' => self.instead = Some(VERSION),
            'h' => self.instead = Some(USAGE),
            'd' => self.format.details = true,
            'j' => self.format.json = true,
            'p' => self.format.pretty = true,
            'r' | 'f' => {}
            _ => return Err(unknown_option()),
        }
        Ok(())
    }

    /// The distribution's tool, if the call is about a device that the kernel has and we have not.
    fn of_kernel(&self) -> anyhow::Result<Option<Original>> {
        let Some(name) = self.device() else {
            return Ok(None);
        };
        if all()?.iter().any(|device| device.name == name) {
            return Ok(None);
        }
        let original = Original::find(super::RDMA);
        Ok(original.filter(|it| it.accepts(&["dev", "show", name])))
    }

    /// The device that the arguments name; `None` for one that is being added.
    fn device(&self) -> Option<&str> {
        let mut words = self.words.iter().map(String::as_str);
        let object = meant(words.next()?, &OBJECTS)?;
        let name = match object {
            "dev" | "link" => {
                let command = words.next()?;
                let adds = meant(command, &["add"]).is_some();
                words.next().filter(|_| !adds)?
            }
            "resource" | "statistic" => {
                let words: Vec<&str> = words.collect();
                if object == "resource"
                    && let Some(name) = resource::named_device(&words)
                {
                    return Some(name);
                }
                let mut words = words.into_iter();
                words.find(|word| ["dev", "link"].contains(word))?;
                words.next()?
            }
            _ => return None,
        };
        name.split('/').next()
    }

    fn answer(&self) -> anyhow::Result<Answer> {
        if let Some(text) = self.instead {
            return Ok(Answer::Text(text.to_owned()));
        }
        let words: Vec<&str> = self.words.iter().map(String::as_str).collect();
        let Some((object, rest)) = words.split_first() else {
            return Ok(Answer::Text(USAGE.to_owned()));
        };
        match meant(object, &OBJECTS) {
            Some("dev") => device::answer(rest, self.format),
            Some("link") => link::answer(rest, self.format),
            Some("resource") => resource::answer(rest),
            Some("system") => Ok(system(rest)),
            Some("statistic") => statistic::answer(rest),
            Some("monitor") => Ok(Answer::Rejected(
                "rdma: `rdma monitor` is not supported for these devices; `rdma link` shows their state"
                    .to_owned(),
            )),
            Some(_) => Ok(Answer::Text(USAGE.to_owned())),
            None => Ok(unknown("object", object)),
        }
    }
}

fn system(words: &[&str]) -> Answer {
    match words {
        [] => Answer::Text(SYSTEM.to_owned()),
        [word] if meant(word, &["show"]).is_some() => Answer::Text(SYSTEM.to_owned()),
        _ => Answer::Rejected(
            "rdma: `rdma system set` is not supported for these devices".to_owned(),
        ),
    }
}

fn long_option(word: &str) -> Result<char, String> {
    let is_meant = |(_, name): &&(char, &str)| name.to_lowercase().starts_with(word);
    let found = OPTIONS.iter().find(is_meant).map(|(letter, _)| *letter);
    found
        .filter(|_| !word.is_empty())
        .ok_or_else(unknown_option)
}

fn unknown_option() -> String {
    format!("Unknown option.\n{}", USAGE.trim_end())
}

/// The first name with this prefix.
fn meant<'n>(word: &str, names: &[&'n str]) -> Option<&'n str> {
    names.iter().copied().find(|name| name.starts_with(word))
}

/// As in iproute2, the exit code of a call that it does not understand is 0.
fn unknown(kind: &str, word: &str) -> Answer {
    Answer::Note(format!("Unknown {kind} '{word}'."))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(line: &str) -> Call {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        Call::parse(&words).expect("a call")
    }

    #[test]
    fn options_are_accepted_at_any_position() {
        let pretty = Format {
            json: true,
            pretty: true,
            details: false,
        };
        for line in [
            "-j -p link show",
            "link -jp show",
            "link show --json --pretty",
        ] {
            let call = call(line);
            assert_eq!(call.format, pretty, "{line}");
            assert_eq!(call.words, ["link", "show"], "{line}");
        }
        assert!(call("--det link").format.details);
        assert!(Call::parse(&["-x".to_owned()]).is_err());
        assert!(Call::parse(&["--no".to_owned()]).is_err());
    }

    #[test]
    fn a_call_is_about_the_device_that_it_names() {
        for (line, device) in [
            ("link show mlx5_0/1 -j", Some("mlx5_0")),
            ("dev show mlx5_0", Some("mlx5_0")),
            ("link delete rxe0", Some("rxe0")),
            ("res show qp link mlx5_0/1", Some("mlx5_0")),
            ("statistic show link mlx5_0/1", Some("mlx5_0")),
            ("link add rxe0 type rxe netdev eth0", None),
            ("link show", None),
            ("res show qp", None),
            ("res show mlx5_0", Some("mlx5_0")),
            ("res", None),
            ("system show", None),
        ] {
            assert_eq!(call(line).device(), device, "{line}");
        }
    }

    #[test]
    fn words_may_be_abbreviated() {
        assert_eq!(meant("res", &["dev", "resource"]), Some("resource"));
        assert_eq!(meant("resources", &["resource"]), None);
    }
}
