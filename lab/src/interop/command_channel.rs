//! The channels for commands to the kernel peer: a serial port of the machine, or a TCP connection.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// A connection is answered at once, or the peer is not up yet.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(300);

/// How many channels the machine has. Programs run in the first two; the last one is for queries meanwhile.
pub(crate) const CHANNELS: usize = 3;

/// How a program ended, and everything that it printed.
#[derive(Debug, Clone)]
pub(crate) struct Outcome {
    pub(crate) code: i32,
    pub(crate) text: String,
}

impl Outcome {
    pub(crate) fn succeeded(&self) -> bool {
        self.code == 0
    }
}

/// A channel to the machine that runs one command at a time.
pub(crate) struct CommandChannel {
    stream: BufReader<Wire>,
}

/// Its transport.
enum Wire {
    Serial(UnixStream),
    Network(TcpStream),
}

impl CommandChannel {
    pub(crate) fn at_serial_port(socket: &Path) -> io::Result<Self> {
        Ok(Self::behind(Wire::Serial(UnixStream::connect(socket)?)))
    }

    pub(crate) fn at_address(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT)?;
        stream.set_nodelay(true)?;
        Ok(Self::behind(Wire::Network(stream)))
    }

    fn behind(wire: Wire) -> Self {
        let stream = BufReader::new(wire);
        Self { stream }
    }

    /// Starts a shell command; its outcome must be fetched before the next one.
    pub(crate) fn begin(&mut self, command: &str) -> io::Result<()> {
        debug_assert!(!command.contains('\n'), "a command is a line");
        self.stream.get_mut().write_all(command.as_bytes())?;
        self.stream.get_mut().write_all(b"\n")
    }

    /// Waits for the end of the command; `None` after the timeout.
    pub(crate) fn finish(&mut self, timeout: Duration) -> io::Result<Option<Outcome>> {
        self.stream.get_mut().set_read_timeout(Some(timeout))?;
        let mut line = String::new();
        match self.stream.read_line(&mut line) {
            Ok(_) => {}
            Err(error) if is_timeout(&error) => return Ok(None),
            Err(error) => return Err(error),
        }
        let (code, length) = header(&line)
            .ok_or_else(|| io::Error::new(ErrorKind::InvalidData, format!("answered {line:?}")))?;
        let mut text = vec![0; length];
        self.stream.read_exact(&mut text)?;
        let text = String::from_utf8_lossy(&text).into_owned();
        Ok(Some(Outcome { code, text }))
    }
}

impl Wire {
    fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Wire::Serial(stream) => stream.set_read_timeout(timeout),
            Wire::Network(stream) => stream.set_read_timeout(timeout),
        }
    }
}

impl Read for Wire {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Wire::Serial(stream) => stream.read(bytes),
            Wire::Network(stream) => stream.read(bytes),
        }
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Wire::Serial(stream) => stream.write(bytes),
            Wire::Network(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Wire::Serial(stream) => stream.flush(),
            Wire::Network(stream) => stream.flush(),
        }
    }
}

/// The exit code and the length of what follows.
fn header(line: &str) -> Option<(i32, usize)> {
    let (code, length) = line.trim().split_once(' ')?;
    Some((code.parse().ok()?, length.parse().ok()?))
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

#[cfg(test)]
mod tests {
    use super::header;

    #[test]
    fn an_answer_begins_with_code_and_length() {
        assert_eq!(header("0 12\n"), Some((0, 12)));
        assert_eq!(header("137 0\n"), Some((137, 0)));
        assert_eq!(header("sh: not found\n"), None);
    }
}
