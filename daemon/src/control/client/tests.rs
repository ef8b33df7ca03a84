use std::net::Shutdown;
use std::os::unix::net;

use super::*;

fn pair() -> (Client, net::UnixStream) {
    let (ours, theirs) = net::UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    (Client::new(Instant::ZERO, UnixStream::from_std(ours)), theirs)
}

/// Answers each line with itself in brackets; `bye` is answered and hung up on.
fn echo(line: Result<&[u8], LineTooLong>) -> Answer {
    let text = line.map_or_else(|e| e.to_string(), |l| String::from_utf8_lossy(l).into_owned());
    Answer { line: format!("<{text}>\n").into_bytes(), last: text == "bye" }
}

fn run(client: &mut Client, now: Instant) -> Turn {
    loop {
        match client.turn(now, echo) {
            Turn::Again => {}
            other => return other,
        }
    }
}

fn read(theirs: &mut net::UnixStream, len: usize) -> String {
    let mut bytes = vec![0; len];
    theirs.read_exact(&mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn several_requests_on_one_connection_are_answered_in_order() {
    let (mut client, mut theirs) = pair();
    theirs.write_all(b"one\ntwo\nthr").unwrap();
    assert_eq!(run(&mut client, Instant::ZERO), Turn::Wait);
    assert_eq!(read(&mut theirs, 12), "<one>\n<two>\n");
    theirs.write_all(b"ee\n").unwrap();
    client.handle_readable();
    assert_eq!(run(&mut client, Instant::ZERO), Turn::Wait);
    assert_eq!(read(&mut theirs, 8), "<three>\n");
}

#[test]
fn a_client_that_closed_its_sending_half_still_gets_its_answer() {
    let (mut client, mut theirs) = pair();
    theirs.write_all(b"last words\n").unwrap();
    theirs.shutdown(Shutdown::Write).unwrap();
    assert_eq!(run(&mut client, Instant::ZERO), Turn::Drop);
    drop(client);
    let mut answer = String::new();
    theirs.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "<last words>\n");
}

#[test]
fn a_line_without_an_end_is_answered_and_hung_up_on() {
    let (mut client, theirs) = pair();
    let writer = std::thread::spawn(move || {
        let mut theirs = theirs;
        // Fails once the other side hangs up.
        let _ = theirs.write_all(&vec![b'x'; 4 * MAX_REQUEST]);
        let mut answer = String::new();
        let _ = theirs.read_to_string(&mut answer);
        answer
    });
    while run(&mut client, Instant::ZERO) == Turn::Wait {
        client.handle_readable();
    }
    drop(client);
    assert!(writer.join().unwrap().contains("longer than"));
}

#[test]
fn a_last_answer_is_flushed_before_hanging_up() {
    let (mut client, mut theirs) = pair();
    theirs.write_all(b"bye\nignored\n").unwrap();
    assert_eq!(run(&mut client, Instant::ZERO), Turn::Drop);
    drop(client);
    let mut answer = [0; 32];
    let len = theirs.read(&mut answer).unwrap();
    assert_eq!(&answer[..len], b"<bye>\n");
}

#[test]
fn a_client_that_does_not_read_is_neither_served_nor_kept() {
    let (mut client, mut theirs) = pair();
    let big = vec![b'z'; 4 << 20];
    theirs.write_all(b"a\nb\n").unwrap();
    let mut served = 0;
    let mut answer = |_: Result<&[u8], LineTooLong>| {
        served += 1;
        Answer { line: big.clone(), last: false }
    };
    while client.turn(Instant::ZERO, &mut answer) == Turn::Again {}
    assert_eq!(served, 1, "the second request waits until the first answer is read");
    assert!(!client.is_stalled(Instant::ZERO + (PATIENCE - Duration::from_nanos(1))));
    assert!(client.is_stalled(Instant::ZERO + PATIENCE));
    drop(theirs);
}
