//! Messages to the user of a program.

use std::fmt::Display;
use std::io::{ErrorKind, Write};
use std::os::fd::AsFd;
use std::time::Duration;

use crate::poll::{Interest, wait};
use crate::times::GIVE_UP_AFTER;

/// Prints a paragraph on stderr. One write, so that lines of several threads do not mix. A write error is ignored: stderr
/// may be a pipe that nobody reads any more. One that does not block, such as a terminal that another program has changed, is waited for
/// if it is full. The caller holds no lock that packets need: its reader may be slow.
pub fn print(text: impl Display) {
    let paragraph = format!("roci: {text}\n");
    let stderr = &mut std::io::stderr().lock();
    write_whole(stderr, paragraph.as_bytes(), GIVE_UP_AFTER);
}

/// Writes all bytes, also if the descriptor does not block and its reader does nothing for a while, at most `timeout`.
fn write_whole(to: &mut (impl Write + AsFd), mut bytes: &[u8], timeout: Duration) {
    while !bytes.is_empty() {
        match to.write(bytes) {
            Ok(0) => return,
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let ready = wait(&[Interest::writable(to.as_fd())], Some(timeout));
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

    /// No reader here does nothing for as long, even on a busy machine.
    const LONGEST: Duration = Duration::from_secs(60);

    #[test]
    fn a_paragraph_is_whole_although_its_reader_is_slow_and_the_descriptor_does_not_block() {
        let (mut ours, mut reader) = UnixStream::pair().expect("sockets");
        ours.set_nonblocking(true).expect("a socket");
        let paragraph = vec![b'a'; 4 << 20];
        let read = thread::spawn(move || {
            let mut text = Vec::new();
            reader.read_to_end(&mut text).map(|_| text)
        });
        write_whole(&mut ours, &paragraph, LONGEST);
        drop(ours);
        let text = read.join().expect("no panic").expect("a socket");
        assert_eq!(text.len(), paragraph.len());
    }

    #[test]
    fn a_reader_that_has_gone_is_ignored() {
        let (mut ours, reader) = UnixStream::pair().expect("sockets");
        drop(reader);
        write_whole(&mut ours, b"text", LONGEST);
    }
}
