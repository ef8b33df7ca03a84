//! A TCP stream with known content.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::Duration;

use crate::support::{pattern, sha256};

const SILENCE: Duration = Duration::from_secs(20);
/// Of the content.
pub(crate) const SEED: u64 = 42;

/// Receives until the end of the stream; its length and digest.
pub(super) fn serve(address: &str) -> String {
    let listener = TcpListener::bind(address).unwrap();
    println!("ready");
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(SILENCE)).unwrap();
    let mut content = Vec::new();
    stream.read_to_end(&mut content).unwrap();
    stream.write_all(b"got it").unwrap();
    format!("{} {}", content.len(), sha256(&content))
}

/// Sends what `argument` says, `ADDRESS LENGTH`, and waits for the word that it came.
pub(super) fn send(argument: &str) -> String {
    let (address, len) = argument.split_once(' ').unwrap();
    let mut stream = TcpStream::connect_timeout(&address.parse().unwrap(), SILENCE).unwrap();
    stream.set_write_timeout(Some(SILENCE)).unwrap();
    stream.set_read_timeout(Some(SILENCE)).unwrap();
    stream.write_all(&pattern(SEED, len.parse().unwrap())).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}
