//! Programs that use TCP, over rsockets: `roci run --rsocket`.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use crate::run_roci::{Roci, Running, own_address, roci};

/// A server that echoes what each of two clients sends until it sends no more, and waits in the way that the first argument
/// names.
const SERVER: &str = r"
import selectors, socket, sys
waiting = getattr(selectors, sys.argv[1])()
listener = socket.create_server((sys.argv[2], 0))
listener.setblocking(False)
waiting.register(listener, selectors.EVENT_READ)
print(listener.getsockname()[1], flush=True)
served = 0
while served < 2:
    for key, _ in waiting.select():
        if key.fileobj is listener:
            client, (host, _) = listener.accept()
            assert client.getpeername()[0] == host
            client.setblocking(False)
            waiting.register(client, selectors.EVENT_READ, bytearray())
            continue
        try:
            data = key.fileobj.recv(65536)
        except BlockingIOError:
            continue
        key.data.extend(data)
        if not data:
            waiting.unregister(key.fileobj)
            key.fileobj.setblocking(True)
            key.fileobj.sendall(key.data)
            key.fileobj.close()
            served += 1
";

/// Sends more than the buffers of a connection hold, in several ways, and compares.
const CLIENT: &str = r"
import os, socket, sys, tempfile
connection = socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=20)
assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
data = os.urandom(1 << 20)
with tempfile.TemporaryFile() as file:
    file.write(data)
    file.flush()
    part = data[1000:101000]
    assert connection.sendfile(file, offset=1000, count=100000) == 100000
copy = connection.dup()
connection.close()
copy.sendall(data)
assert copy.sendmsg([b'the ', b'end']) == 7
child = os.fork()
if child == 0:
    copy.close()
    os._exit(0)
os.waitpid(child, 0)
copy.shutdown(socket.SHUT_WR)
heard = b''.join(iter(lambda: copy.recv(65536), b''))
assert heard == part + data + b'the end'
print('same')
";

/// Sends two messages by one call and receives them by another.
const BATCHES: &str = r"
import ctypes, socket, sys, threading
class Part(ctypes.Structure):
    _fields_ = [('at', ctypes.c_void_p), ('length', ctypes.c_size_t)]
class Message(ctypes.Structure):
    _fields_ = [('name', ctypes.c_void_p), ('name_length', ctypes.c_uint),
                ('parts', ctypes.POINTER(Part)), ('count', ctypes.c_size_t),
                ('control', ctypes.c_void_p), ('control_length', ctypes.c_size_t),
                ('flags', ctypes.c_int), ('padding', ctypes.c_int), ('length', ctypes.c_uint)]
def messages(buffers):
    parts = [Part(ctypes.addressof(it), len(it) - 1) for it in buffers]
    return (Message * len(parts))(*[Message(parts=ctypes.pointer(it), count=1) for it in parts])
texts = b'one', b'after'
system = ctypes.CDLL(None)
listener = socket.create_server((sys.argv[1], 0))
client = socket.socket()
connecting = threading.Thread(target=client.connect, args=(listener.getsockname(),))
connecting.start()
accepted, _ = listener.accept()
connecting.join()
out = [ctypes.create_string_buffer(it) for it in texts]
sent = messages(out)
assert system.sendmmsg(client.fileno(), sent, 2, 0) == 2
assert [it.length for it in sent] == [3, 5]
into = [ctypes.create_string_buffer(len(it) + 1) for it in texts]
received = messages(into)
assert system.recvmmsg(accepted.fileno(), received, 2, socket.MSG_WAITALL, None) == 2
assert tuple(it.value for it in into) == texts
waits_for_one = 0x10000
assert client.send(b'two') == 3
assert system.recvmmsg(accepted.fileno(), received, 2, waits_for_one, None) == 1
print('same')
";

fn under_rsockets(words: &[&str], device: &str) -> Roci {
    let run = roci(
        ["run", "--rsocket", "--", "python3", "-c"]
            .iter()
            .chain(words),
    );
    run.env("ROCI_DEVICES", format!("s={device}"))
}

fn serve(waiting: &str, at: &str) -> (Running, String) {
    let mut server = under_rsockets(&[SERVER, waiting, at], at).start();
    let port = server.line();
    (server, port)
}

#[track_caller]
fn echoes_with(waiting: &str) {
    let at = own_address();
    let (server, port) = serve(waiting, &at);
    for _ in 0..2 {
        let client = under_rsockets(&[CLIENT, &at, &port], &at).run();
        assert_eq!(client.stderr, "");
        assert_eq!(client.success(), "same\n");
    }
    let served = server.end();
    assert_eq!(served.stderr, "");
    served.success();
}

#[test]
fn a_server_with_epoll_serves_clients() {
    echoes_with("EpollSelector");
}

#[test]
fn a_server_with_poll_serves_clients() {
    echoes_with("PollSelector");
}

#[test]
fn a_server_with_select_serves_clients() {
    echoes_with("SelectSelector");
}

#[test]
fn several_messages_are_sent_and_received_by_one_call() {
    let at = own_address();
    let both = under_rsockets(&[BATCHES, &at], &at).run();
    assert_eq!(both.stderr, "");
    assert_eq!(both.success(), "same\n");
}

#[test]
fn a_listener_is_not_one_of_tcp() {
    let at = own_address();
    let (_server, port) = serve("PollSelector", &at);
    let port: u16 = port.parse().expect("a port");
    let refused = TcpStream::connect((at.as_str(), port)).expect_err("nobody listens for TCP");
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
}

/// A process that is ended with the test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_peer_without_rsockets_is_reached_by_tcp_and_that_is_said_once() {
    let at = own_address();
    let mut server = Command::new("python3")
        .args(["-c", SERVER, "PollSelector", &at])
        .stdout(Stdio::piped())
        .spawn()
        .map(Ended)
        .expect("python3");
    let said = server.0.stdout.take().expect("a pipe");
    let mut port = String::new();
    let mut said = BufReader::new(said);
    said.read_line(&mut port).expect("a port");
    let twice = format!("{CLIENT}{CLIENT}");
    let client = under_rsockets(&[&twice, &at, port.trim()], &at).run();
    assert_eq!(client.stderr.lines().count(), 1, "{}", client.stderr);
    let expected = format!("roci: {at}:{} has no rsocket (", port.trim());
    assert!(client.stderr.starts_with(&expected), "{}", client.stderr);
    assert_eq!(client.success(), "same\nsame\n");
    let mut rest = String::new();
    said.read_to_string(&mut rest).expect("a text");
}
