//! The programs that run inside labs here.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::UdpSocket;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::time::Duration;

/// Says which of the programs to be, and `ARGUMENT` with what.
pub(crate) const ROLE: &str = "STAND_IN_ROLE";
pub(crate) const ARGUMENT: &str = "STAND_IN_ARGUMENT";
const PORT: u16 = 7007;

#[test]
#[ignore = "a program for the other tests to run"]
fn stand_in_program() {
    let argument = std::env::var(ARGUMENT).unwrap_or_default();
    match std::env::var(ROLE).as_deref() {
        Ok("daemon") => daemon(&argument),
        Ok("ask") => ask(&argument),
        _ => {}
    }
}

/// Does what a lab expects of `weftd --config FILE`, and echoes.
fn daemon(config: &str) {
    let folder = PathBuf::from(config).parent().unwrap().to_owned();
    let control = UnixListener::bind(folder.join("weftd.sock")).unwrap();
    let echo = UdpSocket::bind(("0.0.0.0", PORT)).unwrap();
    std::thread::spawn(move || {
        let name = std::env::var("WEFT_NODE").unwrap();
        let mut buffer = [0; 64];
        while let Ok((_, from)) = echo.recv_from(&mut buffer) {
            let _ = echo.send_to(name.as_bytes(), from);
        }
    });
    for stream in control.incoming() {
        let mut stream = stream.unwrap();
        let mut line = String::new();
        let _ = BufReader::new(stream.try_clone().unwrap()).read_line(&mut line);
        let _ = writeln!(stream, "{{\"version\":1,\"id\":1,\"result\":{{}}}}");
    }
}

/// Prints who answers at an address.
fn ask(address: &str) {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let mut buffer = [0; 64];
    // A lost datagram would look like nobody: three are not lost on a cable that works.
    let name = (0..3).find_map(|_| {
        socket.send_to(b"who?", (address, PORT)).ok()?;
        let length = socket.recv(&mut buffer).ok()?;
        Some(String::from_utf8_lossy(&buffer[..length]).into_owned())
    });
    println!("answer={}.", name.as_deref().unwrap_or("nobody"));
}
