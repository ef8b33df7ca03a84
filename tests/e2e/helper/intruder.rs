//! Senders of files that do not keep to the rules: the protocol of `weftctl cp` spoken by hand.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use weft_verbs::{Access, Completion, CompletionOp, CompletionQueue, Context, MemoryRegion, QpOptions, QueuePair, Status};

use crate::support::{sha256, within};

const PATIENCE: Duration = Duration::from_secs(10);
/// The service of `weftctl receive`, and the length of its messages.
const SERVICE: u16 = 10;
const SLOT: u32 = 2048;
/// Slots for messages in either direction.
const SLOTS: u64 = 8;

/// A connection to `weftctl receive` on b. Dropping it hangs up.
struct Sender {
    qp: QueuePair,
    cq: CompletionQueue,
    memory: MemoryRegion,
    sent: u64,
    _context: Context,
}

impl Sender {
    fn connect() -> Self {
        let context = Context::attach(std::env::var_os("WEFT_APP_SOCKET").unwrap(), "intruder").unwrap();
        let cq = context.create_cq(64).unwrap();
        let qp = context.create_qp(&cq, &cq, &QpOptions { sq_depth: 8, rq_depth: 8, ..QpOptions::default() }).unwrap();
        let access = Access { local_write: true, ..Access::default() };
        let memory = context.register(2 * SLOTS as usize * SLOT as usize, access).unwrap();
        let mut sender = Self { qp, cq, memory, sent: 0, _context: context };
        for slot in 0..SLOTS {
            sender.qp.recv(slot, &[sender.memory.sge(slot * u64::from(SLOT), SLOT).unwrap()]).unwrap();
        }
        let hello = json!({ "magic": "weft-files", "version": 1, "chunk": 65_536, "window": 4 }).to_string();
        sender.qp.connect("b", SERVICE, hello.as_bytes(), PATIENCE).unwrap();
        sender
    }

    /// Sends one of at most eight messages.
    fn send(&mut self, message: &Value) {
        let (text, slot) = (message.to_string(), SLOTS + self.sent);
        self.sent += 1;
        self.memory.copy_in(slot * u64::from(SLOT), text.as_bytes()).unwrap();
        self.qp.send(slot, &[self.memory.sge(slot * u64::from(SLOT), text.len() as u32).unwrap()], None).unwrap();
    }

    /// The next completion of this kind, which must be a success.
    fn next(&mut self, op: CompletionOp) -> Completion {
        loop {
            let done = self.cq.next_completion(PATIENCE).unwrap().expect("nothing from the receiver");
            assert_eq!(done.status, Status::Success);
            if done.op == op {
                return done;
            }
        }
    }

    fn receive(&mut self) -> Value {
        let done = self.next(CompletionOp::Recv);
        let mut message = vec![0; done.byte_len as usize];
        self.memory.copy_out(done.wr_id * u64::from(SLOT), &mut message).unwrap();
        serde_json::from_slice(&message).unwrap()
    }
}

fn begin(name: &str, size: u64) -> Value {
    json!({ "type": "begin", "name": name.as_bytes(), "size": size, "mode": 0o644 })
}

/// Offers a file called `name` to `weftctl receive` on b; what it answers.
pub(super) fn offer(name: &str) -> String {
    let mut sender = Sender::connect();
    sender.send(&begin(name, 7));
    loop {
        let answer = sender.receive();
        if answer["type"] == "refused" {
            return format!("refused: {}", answer["message"]);
        }
    }
}

/// Sends an empty file once `go` exists, and hangs up as soon as the other daemon has it.
pub(super) fn send_and_leave(go: &Path) -> String {
    let mut sender = Sender::connect();
    println!("connected");
    assert!(within(PATIENCE, || go.exists()));
    sender.send(&begin("empty", 0));
    sender.send(&json!({ "type": "end", "sha256": sha256(b"") }));
    sender.send(&json!({ "type": "finish", "files": 1 }));
    for _ in 0..sender.sent {
        sender.next(CompletionOp::Send);
    }
    "gone".to_owned()
}
