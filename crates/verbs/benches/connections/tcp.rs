//! The same with TCP.

use std::io::Read;
use std::net::TcpStream;

use crate::server::Server;

/// Opens this number of connections, each when the server has accepted the one before, and waits until the
/// server has closed them.
pub(crate) fn round(server: &mut Server, open: usize) {
    server.accept_tcp(open);
    let connections: Vec<TcpStream> = (0..open).map(|_| connect(server)).collect();
    for mut connection in connections {
        assert_eq!(connection.read(&mut [0]).expect("it closes"), 0);
    }
    server.wait();
}

fn connect(server: &Server) -> TcpStream {
    let mut connection = TcpStream::connect(server.tcp).expect("a server");
    connection.read_exact(&mut [0]).expect("a welcome");
    connection
}
