//! Messages to the user of a program.

use std::fmt::Display;
use std::io::{ErrorKind, Write};
use std::os::fd::AsFd;
use std::time::Duration;

use crate::poll::{Interest, wait};

/// How long to wait for the reader of a stderr that does not block. It may be a terminal that another program has changed.
const READER_TIMEOUT: Duration = Duration::from_secs(1);

/// Prints a paragraph on stderr. One write, so that lines of several threads do not mix. A write error is ignored: stderr
/// may be a pipe that nobody reads any more. The caller holds no lock that packets need: its reader may be slow.
pub fn print(text: impl Display) {
    let paragraph = format!("roci: {text}\n");
    write_whole(&mut std::io::stderr().lock(), paragraph.as_bytes());
}

/// Writes all bytes, also if the descriptor does not block and its reader is slow for a while.
fn write_whole(to: &mut (impl Write + AsFd), mut bytes: &[u8]) {
    while !bytes.is_empty() {
        match to.write(bytes) {
            Ok(0) => return,
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let ready = wait(&[Interest::writable(to.as_fd())], Some(READER_TIMEOUT));
                if ready.map_or(true, |ready| ready.is_empty() && !ready.was_interrupted()) {
                    return;
                }
            }
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;
    use std::thread;

    use super::*;

    #[test]
    fn a_paragraph_is_whole_although_its_reader_is_slow_and_the_descriptor_does_not_block() {
        let (mut ours, mut reader) = UnixStream::pair().expect("sockets");
        ours.set_nonblocking(true).expect("a socket");
        let paragraph = vec![b'a'; 4 << 20];
        let read = thread::spawn(move || {
            let mut text = Vec::new();
            reader.read_to_end(&mut text).map(|_| text)
        });
        write_whole(&mut ours, &paragraph);
        drop(ours);
        let text = read.join().expect("no panic").expect("a socket");
        assert_eq!(text.len(), paragraph.len());
    }

    #[test]
    fn a_reader_that_has_gone_is_ignored() {
        let (mut ours, reader) = UnixStream::pair().expect("sockets");
        drop(reader);
        write_whole(&mut ours, b"text");
    }
}
