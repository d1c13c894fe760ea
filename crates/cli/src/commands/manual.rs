//! `roci manual`: writes the manual pages, with the texts of `--help`.

use std::fs;
use std::io;
use std::path::Path;

use clap::Command;
use clap::builder::Resettable;
use clap_mangen::Man;
use roff::{Roff, roman};

/// Writes a page for the command and each of its subcommands.
pub(crate) fn write(command: Command, directory: &Path) -> io::Result<()> {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    write_all(&command, directory)
}

fn write_all(command: &Command, directory: &Path) -> io::Result<()> {
    let shown = |command: &&Command| !command.is_hide_set();
    for below in command.get_subcommands().filter(shown) {
        write_all(below, directory)?;
    }
    let (name, text) = page(command)?;
    fs::write(directory.join(name), text)
}

/// A page and its name. The text below the options keeps its own line breaks: clap_mangen would join them to
/// paragraphs.
fn page(command: &Command) -> io::Result<(String, Vec<u8>)> {
    let man = Man::new(command.clone().after_help(Resettable::Reset));
    let mut text = Vec::new();
    man.render(&mut text)?;
    if let Some(notes) = command.get_after_help() {
        let mut section = Roff::new();
        section.control("SH", ["NOTES"]).control("nf", []);
        for line in notes.to_string().lines() {
            section.text([roman(line)]);
        }
        section.control("fi", []);
        text.extend(section.to_roff().into_bytes());
    }
    Ok((man.get_filename(), text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_keep_their_lines() {
        let notes = "Examples:\n  roci a   one\n  roci b   two";
        let command = Command::new("roci").about("words").after_help(notes);
        let (name, text) = page(&command).expect("a page");
        let text = String::from_utf8(text).expect("text");
        assert_eq!(name, "roci.1");
        let end = ".SH NOTES\n.nf\nExamples:\n  roci a   one\n  roci b   two\n.fi\n";
        assert!(text.ends_with(end), "{text}");
        assert_eq!(text.matches("roci a").count(), 1);
    }

    #[test]
    fn hidden_commands_have_no_manual_page() {
        let directory = std::env::temp_dir().join(format!("roci-manual-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("a directory");
        let below = [Command::new("seen"), Command::new("unseen").hide(true)];
        write(Command::new("roci").subcommands(below), &directory).expect("written");
        let mut pages: Vec<_> = fs::read_dir(&directory)
            .expect("a directory")
            .map(|page| page.expect("a page").file_name())
            .collect();
        pages.sort();
        assert_eq!(pages, ["roci-seen.1", "roci.1"]);
        fs::remove_dir_all(&directory).expect("removed");
    }
}
