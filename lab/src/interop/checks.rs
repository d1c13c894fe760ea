//! Checks the results of a pair of programs.

use super::command_channel::Outcome;
use super::pair_runner::Conversation;
use super::rows::{Difference, Judge, Role};

/// Checks the output of a pair in which our side had the role `ours`; the error says what is wrong.
///
/// `kernels` is the output of two kernels, for rows that are compared.
pub(crate) fn judge(
    judge: &Judge,
    ours: Role,
    said: &Conversation,
    kernels: Option<&Conversation>,
) -> Result<(), String> {
    match (judge, kernels) {
        (Judge::BothSucceed, _) => both_succeed(said),
        (Judge::Pings(count), _) => both_succeed(said).and_then(|()| pings(said, *count)),
        (Judge::LikeKernels(differences), Some(kernels)) => {
            like_kernels(differences, ours, said, kernels)
        }
        (Judge::LikeKernels(_), None) => {
            Err("there is no output of two kernels to compare with".into())
        }
    }
}

fn both_succeed(said: &Conversation) -> Result<(), String> {
    for (who, outcome) in [("client", &said.client), ("server", &said.server)] {
        if !outcome.succeeded() {
            let (code, text) = (outcome.code, last_lines(&outcome.text));
            return Err(format!("the {who} ended with {code}: {text}"));
        }
    }
    Ok(())
}

/// The client has compared the data that came back; the server must have printed the same data.
fn pings(said: &Conversation, count: usize) -> Result<(), String> {
    let lines = |text: &str, start: &str| -> Vec<String> {
        let found = text.lines().filter_map(|line| line.strip_prefix(start));
        found.map(str::to_owned).collect()
    };
    let sent = lines(&said.client.text, "ping data: ");
    let seen = lines(&said.server.text, "server ping data: ");
    match (sent.len() == count, sent == seen) {
        (true, true) => Ok(()),
        (false, _) => Err(format!("{} pings of {count}", sent.len())),
        (true, false) => Err(first_difference(&sent, &seen)),
    }
}

fn first_difference(sent: &[String], seen: &[String]) -> String {
    let unlike = sent.iter().zip(seen).position(|(sent, seen)| sent != seen);
    match unlike {
        None => format!("the server saw {} pings of {}", seen.len(), sent.len()),
        Some(number) => format!(
            "ping {number}: the server saw `{}`, the client sent `{}`",
            shortened(&seen[number]),
            shortened(&sent[number])
        ),
    }
}

fn like_kernels(
    differences: &[Difference],
    ours: Role,
    said: &Conversation,
    kernels: &Conversation,
) -> Result<(), String> {
    if !kernels.client.succeeded() {
        let text = last_lines(&kernels.client.text);
        return Err(format!("two kernels fail, too: {text}"));
    }
    let expected = transcript(kernels);
    let known = differences.iter().filter(|it| it.we_are == ours);
    let expected = known.fold(expected, |lines, it| {
        let replace = |line: String| {
            if line == it.kernels {
                it.with_us.to_owned()
            } else {
                line
            }
        };
        lines.into_iter().map(replace).collect()
    });
    let found = transcript(said);
    if expected == found {
        return Ok(());
    }
    Err(format!(
        "between two kernels: `{}`; with us: `{}`",
        expected.join(" | "),
        found.join(" | ")
    ))
}

/// The output of server and client, one after the other, and their exit codes. What their shells printed
/// about it is left out.
fn transcript(said: &Conversation) -> Vec<String> {
    let part = |name: &str, outcome: &Outcome| {
        let own = format!("{name}: ");
        let lines = outcome.text.lines().filter(|line| line.starts_with(&own));
        let mut lines: Vec<String> = lines.map(str::to_owned).collect();
        lines.push(format!("{name} ends with {}", outcome.code));
        lines
    };
    let mut lines = part("server", &said.server);
    lines.extend(part("client", &said.client));
    lines
}

/// The last lines of a program's output, which usually have the reason of a failure.
fn last_lines(text: &str) -> String {
    let lines: Vec<_> = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .map(shortened)
        .collect();
    lines[lines.len().saturating_sub(3)..].join(" | ")
}

/// A line of at most 120 characters. A line of ping data may have thousands.
fn shortened(line: &str) -> String {
    const MAX_LENGTH: usize = 120;
    match line.char_indices().nth(MAX_LENGTH) {
        None => line.to_owned(),
        Some((end, _)) => format!("{}… ({} bytes)", &line[..end], line.len()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn conversation(server: (i32, &str), client: (i32, &str)) -> Conversation {
        let outcome = |(code, text): (i32, &str)| Outcome {
            code,
            text: text.to_owned(),
        };
        Conversation {
            server: outcome(server),
            client: outcome(client),
            took: Duration::ZERO,
        }
    }

    #[test]
    fn a_failed_side_is_named() {
        let said = conversation((0, ""), (1, "a\nno route\n"));
        let verdict = judge(&Judge::BothSucceed, Role::Client, &said, None);
        assert!(
            verdict
                .expect_err("it failed")
                .contains("client ended with 1: a | no route")
        );
    }

    #[test]
    fn pings_are_counted_and_compared() {
        let good = conversation((0, "server ping data: a\n"), (0, "ping data: a\n"));
        assert_eq!(judge(&Judge::Pings(1), Role::Client, &good, None), Ok(()));
        assert!(judge(&Judge::Pings(2), Role::Client, &good, None).is_err());
        let wrong = conversation((0, "server ping data: b\n"), (0, "ping data: a\n"));
        assert!(judge(&Judge::Pings(1), Role::Client, &wrong, None).is_err());
    }

    #[test]
    fn long_data_does_not_fill_the_screen() {
        let data = |letter: &str| letter.repeat(20_000);
        let server = format!("server ping data: {}\n", data("b"));
        let client = format!("ping data: {}\n", data("a"));
        let said = conversation((0, &server), (0, &client));
        let verdict = judge(&Judge::Pings(1), Role::Client, &said, None);
        let reason = verdict.expect_err("they differ");
        assert!(reason.starts_with("ping 0: the server saw `bbb") && reason.len() < 500);
    }

    #[test]
    fn only_a_known_difference_is_accepted() {
        const KNOWN: Judge = Judge::LikeKernels(&[Difference {
            we_are: Role::Server,
            kernels: "client: status 11",
            with_us: "client: status 9",
        }]);
        let kernels = conversation((0, ""), (0, "client: status 11\n"));
        let ours = conversation((0, ""), (0, "client: status 9\n"));
        assert_eq!(judge(&KNOWN, Role::Server, &ours, Some(&kernels)), Ok(()));
        assert!(judge(&KNOWN, Role::Client, &ours, Some(&kernels)).is_err());
        assert!(judge(&KNOWN, Role::Server, &kernels, Some(&kernels)).is_err());
    }
}
