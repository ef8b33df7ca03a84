//! Every decision of Weft, free of I/O.
//!
//! Time, randomness and bytes come in as arguments; frames, deadlines and completions go out.
//! A state machine here has four kinds of method and no others:
//!
//! * getters;
//! * `handle_*(now, ...)`: something happened (a frame, a deadline);
//! * commands: the owner wants something (post, connect, deregister);
//! * `poll_*`: what the machine wants done (transmit, completion, event, timeout), written into the caller's buffer.
//!
//! Nothing here reads a clock, opens a socket, starts a thread or seeds its own randomness, and nothing
//! allocates per packet. The daemon, the simulated world and the benches are three drivers of the same code.
//!
//! | module | owns |
//! | --- | --- |
//! | [`wire`] | bytes to meaning and back; every rejection is a [`DropReason`] |
//! | [`transport`] | queue pairs, loss recovery, regions, connections |
//! | [`stop`] | receiver-driven stop control: seeing congestion, asking senders to stop, obeying |
//! | [`switch`] | address table, virtual output queues, deficit round robin, impairment |
//! | [`pool`] | the frame buffers that all of them pass along |
//! | [`time`], [`units`], [`rng`], [`drops`] | the words they share |

#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod codes;
pub mod drops;
mod pace;
pub mod pool;
pub mod rng;
pub mod stop;
pub mod switch;
pub mod time;
mod timers;
pub mod transport;
pub mod units;
pub mod wire;

pub use drops::{DropCounts, DropReason};
pub use pool::{FrameRef, Pool};
pub use rng::Rng;
pub use time::{Duration, Instant};
pub use units::{BitRate, PortId};
