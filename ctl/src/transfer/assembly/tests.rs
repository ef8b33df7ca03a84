use std::sync::Mutex;

use rustix::io::pwrite;
use sha2::{Digest as _, Sha256};

use super::*;
use crate::transfer::protocol::encode;

const GRANT: Grant = Grant { chunk: 4, window: 2, rkey: 0 };

/// The receiver's memory, written by the tests as the sender would.
struct Slots(Mutex<Vec<u8>>);

impl Source for Slots {
    fn copy(&self, offset: u64, out: &mut [u8]) -> bool {
        let start = usize::try_from(offset).unwrap();
        out.copy_from_slice(&self.0.lock().unwrap()[start..start + out.len()]);
        true
    }
}

impl Memory for Slots {
    fn write_to(&self, offset: u64, len: usize, file: BorrowedFd<'_>, position: u64) -> io::Result<usize> {
        let start = usize::try_from(offset).unwrap();
        // A byte less than asked for, as a file system may do.
        let len = len.div_ceil(2);
        Ok(pwrite(file, &self.0.lock().unwrap()[start..start + len], position)?)
    }
}

struct Test {
    place: tempfile::TempDir,
    folder: Folder,
    memory: Arc<Slots>,
}

/// A sender that follows the rules unless a test makes it break one.
struct Sender<'a> {
    assembly: Assembly<'a, Slots>,
    memory: Arc<Slots>,
    chunks: u32,
}

impl Test {
    fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        let folder = Folder::open(place.path(), false).unwrap();
        Self { place, folder, memory: Arc::new(Slots(Mutex::new(vec![0; 64]))) }
    }

    fn sender(&self) -> Sender<'_> {
        let assembly = Assembly::new(&self.folder, Arc::clone(&self.memory), GRANT).unwrap();
        Sender { assembly, memory: Arc::clone(&self.memory), chunks: 0 }
    }

    fn names(&self) -> Vec<String> {
        std::fs::read_dir(self.place.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

impl Sender<'_> {
    fn say(&mut self, message: &ToReceiver) -> Result<Step, Refusal> {
        self.assembly.handle_message(&encode(message))
    }

    fn begin(&mut self, name: &str, size: u64) -> Result<Step, Refusal> {
        self.say(&ToReceiver::Begin { name: name.into(), size, mode: 0o644 })
    }

    fn chunk(&mut self, bytes: &[u8]) -> Result<(), Refusal> {
        let start = usize::try_from(self.chunks % 2 * 4).unwrap();
        self.memory.0.lock().unwrap()[start..start + bytes.len()].copy_from_slice(bytes);
        self.chunks += 1;
        self.assembly.handle_chunk(self.chunks - 1, u32::try_from(bytes.len()).unwrap())
    }

    fn end(&mut self, bytes: &[u8]) -> Result<Step, Refusal> {
        self.say(&ToReceiver::End { sha256: text::hex(&Sha256::digest(bytes)) })
    }
}

fn why<T: std::fmt::Debug>(outcome: Result<T, Refusal>) -> String {
    outcome.unwrap_err().error.to_string()
}

#[test]
fn files_arrive_whole_one_after_another_empty_ones_too() {
    let test = Test::new();
    let mut sender = test.sender();
    for (name, content) in [("long", b"0123456789".as_slice()), ("empty", b""), ("short", b"x")] {
        assert_eq!(sender.begin(name, content.len() as u64).unwrap(), Step::Quiet);
        content.chunks(4).for_each(|chunk| sender.chunk(chunk).unwrap());
        let Step::Arrived(arrived) = sender.end(content).unwrap() else { panic!("{name}") };
        assert_eq!((arrived.name.as_slice(), arrived.bytes), (name.as_bytes(), content.len() as u64));
        assert_eq!(std::fs::read(test.place.path().join(name)).unwrap(), content);
    }
    assert_eq!(sender.say(&ToReceiver::Finish { files: 3 }).unwrap(), Step::Finished);
}

#[test]
fn a_file_that_is_not_what_was_sent_never_gets_its_name() {
    let test = Test::new();
    let mut sender = test.sender();
    sender.begin("file", 4).unwrap();
    sender.chunk(b"abcX").unwrap();
    let refusal = sender.end(b"abcd").unwrap_err();
    assert!(refusal.damaged && refusal.error.to_string().contains("damaged"));
    drop(sender);
    assert!(test.names().is_empty());
}

#[test]
fn a_file_of_another_length_than_announced_is_refused() {
    let test = Test::new();
    let mut sender = test.sender();
    sender.begin("short", 4).unwrap();
    sender.chunk(b"abc").unwrap();
    assert!(why(sender.end(b"abc")).contains("before all of it"));
    let mut sender = test.sender();
    sender.begin("long", 4).unwrap();
    sender.chunk(b"abc").unwrap();
    assert!(why(sender.chunk(b"de")).contains("more than it announced"));
    drop(sender);
    assert!(test.names().is_empty());
}

#[test]
fn a_sender_out_of_turn_is_refused() {
    let test = Test::new();
    assert!(why(test.sender().chunk(b"a")).contains("outside of a file"));
    assert!(why(test.sender().end(b"")).contains("ended no file"));
    assert!(why(test.sender().say(&ToReceiver::Finish { files: 1 })).contains("missing"));
    assert!(why(test.sender().assembly.handle_message(b"{}")).contains("not understood"));
    let mut sender = test.sender();
    sender.begin("file", 8).unwrap();
    assert!(why(sender.begin("other", 1)).contains("within another"));
    assert!(why(sender.assembly.handle_chunk(1, 1)).contains("out of turn"));
    assert!(why(sender.assembly.handle_chunk(0, 5)).contains("out of turn"));
    assert!(why(sender.assembly.handle_chunk(0, 0)).contains("out of turn"));
    assert!(why(sender.say(&ToReceiver::Finish { files: 0 })).contains("missing"));
}

#[test]
fn a_sender_that_gives_up_leaves_nothing_and_needs_no_answer() {
    let test = Test::new();
    let mut sender = test.sender();
    sender.begin("file", 8).unwrap();
    sender.chunk(b"abcd").unwrap();
    let refusal = sender.say(&ToReceiver::Abort { message: "disk \u{1b}[2J".to_owned() }).unwrap_err();
    assert!(refusal.aborted && !refusal.error.to_string().contains('\u{1b}'));
    drop(sender);
    assert!(test.names().is_empty());
}

#[test]
fn credit_comes_after_a_quarter_of_the_window_and_counts_everything() {
    let test = Test::new();
    let mut assembly = Assembly::new(&test.folder, Arc::clone(&test.memory), Grant { window: 16, ..GRANT }).unwrap();
    let begin = ToReceiver::Begin { name: b"file".into(), size: 100, mode: 0 };
    assembly.handle_message(&encode(&begin)).unwrap();
    (0..2).for_each(|number| assembly.handle_chunk(number, 1).unwrap());
    assert_eq!(assembly.poll_credit(), None);
    assembly.handle_message(b"nonsense").unwrap_err();
    assert_eq!(assembly.poll_credit(), Some(ToSender::Credit { consumed: 4 }));
    assert_eq!(assembly.poll_credit(), None);
}
