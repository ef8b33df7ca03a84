//! The application library of Weft: attach to `weftd`, move messages and memory to other hosts.
//!
//! An application [attaches](Context::attach) over a Unix socket, registers memory, creates completion queues and
//! queue pairs, connects them to a peer, and then works in shared memory alone: posting a request is a write to a
//! ring and a doorbell bit, finding out how it ended is a read from another ring. System calls happen only when one
//! side sleeps.
//!
//! ```no_run
//! use std::time::Duration;
//! use weft_verbs::{Access, Context, QpOptions};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let patience = Duration::from_secs(5);
//! let context = Context::attach("/run/weft/app.sock", "hello")?;
//! let mut memory = context.register(4096, Access::default())?;
//! let mut cq = context.create_cq(64)?;
//! let mut qp = context.create_qp(&cq, &cq, &QpOptions::default())?;
//!
//! // The peer called `context.listen(7)` and accepts the request it finds in `context.next_event(..)`.
//! qp.connect("b", 7, b"", patience)?;
//! memory.copy_in(0, b"hello")?;
//! qp.send(1, &[memory.sge(0, 5)?], None)?;
//! while let Some(done) = cq.next_completion(patience)? {
//!     println!("request {} on {:?}: {}", done.wr_id, done.qp, done.status.description());
//!     if done.wr_id == 1 {
//!         break;
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! | module | owns |
//! | --- | --- |
//! | [`layout`] | the bytes that application and daemon share, and their checked decoding |
//! | [`shm`] | mapped memory: the only unsafe code here |
//! | [`ring`] | single-producer, single-consumer rings that survive a hostile other side |
//! | [`page`] | doorbells and the sleep protocol |
//! | [`protocol`], [`socket`] | the attach protocol: messages, and how they travel with file descriptors |
//! | the rest | what applications call |

pub mod layout;
pub mod page;
pub mod protocol;
pub mod ring;
pub mod shm;
pub mod socket;

mod context;
mod cq;
mod error;
mod link;
mod qp;
mod region;
mod srq;
mod window;

pub use context::Context;
pub use cq::CompletionQueue;
pub use error::{Error, PostError};
pub use protocol::Event;
pub use qp::{Connected, QpOptions, QueuePair};
pub use region::MemoryRegion;
pub use srq::SharedReceiveQueue;
pub use weft_proto::transport::{
    Access, AtomicOp, Completion, CompletionOp, ConnectFailure, CqId, Data, Inline, QpNum, Recovery, RecvWork, RequestId, SendOp, SendWork,
    SgList, Sge, SrqId, Status,
};
pub use weft_proto::wire::MacAddr;
