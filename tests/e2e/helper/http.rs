//! A look at the daemon's metrics server.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Where it listens unless told otherwise.
const SERVER: ([u8; 4], u16) = ([127, 0, 0, 1], 9469);
const PATIENCE: Duration = Duration::from_secs(10);

/// The whole answer, head and body.
pub(super) fn get(path: &str) -> String {
    let mut stream = TcpStream::connect_timeout(&SocketAddr::from(SERVER), PATIENCE).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // Version 1.0: the end of the connection is the end of the body, which comes in one piece.
    write!(stream, "GET {path} HTTP/1.0\r\nHost: weftd\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}
