//! Compares what clients saw acknowledged with what servers received.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

/// A killed server may have acknowledged messages that it had not read: at most as many as it keeps
/// receives posted.
const RECEIVES: u64 = 16;

/// The names of the files of servers that are never killed, of servers that are, and of clients.
pub(super) const STEADY: &str = "received-steady";
pub(super) const KILLED: &str = "received-killed";
pub(super) const STEADY_CLIENT: &str = "acknowledged-steady-";
pub(super) const KILLED_CLIENT: &str = "acknowledged-killed-";

/// Checks all files of a directory. Returns how much was compared.
pub(super) fn check(directory: &Path) -> Result<String, String> {
    let steady = received(&read(&directory.join(STEADY)))?;
    let killed = received(&read(&directory.join(KILLED)))?;
    let (mut clients, mut numbers) = (0, 0);
    let entries = fs::read_dir(directory).map_err(|error| error.to_string())?;
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let of = |prefix: &str| name.strip_prefix(prefix).and_then(|id| id.parse().ok());
        let (id, received, may_miss) = match (of(STEADY_CLIENT), of(KILLED_CLIENT)) {
            (Some(id), _) => (id, &steady, 0),
            (_, Some(id)) => (id, &killed, RECEIVES),
            _ => continue,
        };
        let acknowledged = acknowledged(id, &read(&entry.path()))?;
        compare(id, acknowledged, received, may_miss)
            .map_err(|loss| format!("{loss}\n{}", reports_about(directory, id)))?;
        clients += 1;
        numbers += acknowledged;
    }
    Ok(format!(
        "{numbers} numbers of {clients} ledger clients were acknowledged, and none is lost"
    ))
}

/// What programs wrote to stderr about a client, and what the client itself wrote.
fn reports_about(directory: &Path, client: u64) -> String {
    let programs = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut reports = vec![format!(
        "the client: {}",
        read(&directory.join(format!("program-{client}/stderr")))
    )];
    for program in programs {
        let errors = read(&program.path().join("stderr"));
        let about = format!("client {client}:");
        reports.extend(
            errors
                .lines()
                .filter(|line| line.contains(&about))
                .map(String::from),
        );
    }
    reports.join("\n")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// The last number of each client; a server's numbers of each client count from 1.
fn received(text: &str) -> Result<HashMap<u64, u64>, String> {
    let mut last = HashMap::new();
    for line in text.lines() {
        let mut words = line.split(' ').map(|word| word.parse().ok());
        let (Some(Some(client)), Some(Some(number))) = (words.next(), words.next()) else {
            return Err(format!("a server recorded `{line}`"));
        };
        let before = last.insert(client, number).unwrap_or(0);
        if number != before + 1 {
            return Err(format!(
                "the server received {number} after {before} of client {client}"
            ));
        }
    }
    Ok(last)
}

/// The last number that a client saw completed.
fn acknowledged(client: u64, text: &str) -> Result<u64, String> {
    let mut last = 0;
    for line in text.lines() {
        if line.parse() != Ok(last + 1) {
            return Err(format!("client {client} saw {line} completed after {last}"));
        }
        last += 1;
    }
    Ok(last)
}

fn compare(
    client: u64,
    acknowledged: u64,
    received: &HashMap<u64, u64>,
    may_miss: u64,
) -> Result<(), String> {
    let received = received.get(&client).copied().unwrap_or(0);
    if acknowledged <= received + may_miss {
        Ok(())
    } else {
        Err(format!(
            "client {client} saw {acknowledged} numbers acknowledged, and the server received {received}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_is_missing_twice_or_out_of_order_is_found() {
        assert!(received("7 1\n8 1\n7 2\n").is_ok());
        assert!(received("7 1\n7 1\n").is_err());
        assert!(received("7 2\n7 1\n").is_err());
        assert!(received("7 1\n7 3\n").is_err());
        assert!(acknowledged(7, "1\n2\n") == Ok(2));
        assert!(acknowledged(7, "1\n3\n").is_err());
    }

    #[test]
    fn what_was_acknowledged_must_have_been_received() {
        let received = received("7 1\n7 2\n").expect("in order");
        assert!(compare(7, 2, &received, 0).is_ok());
        assert!(compare(7, 3, &received, 0).is_err());
        assert!(compare(7, 18, &received, RECEIVES).is_ok());
        assert!(compare(7, 19, &received, RECEIVES).is_err());
        assert!(compare(9, 1, &received, 0).is_err());
    }
}
