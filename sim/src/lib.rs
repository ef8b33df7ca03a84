//! Networks in virtual time: real endpoints and real switches of `weft-proto`, cables with a rate and a delay, and a clock
//! that jumps to the next instant at which something happens. The same seed gives the same run on every machine.
//!
//! | module | owns |
//! | --- | --- |
//! | [`network`] | nodes, cables and the clock |
//! | [`node`] | a switch, or a host around one, as the daemon's worker drives them |
//! | `cable` | frames on their way |
//! | [`application`] | closed loops of WRITEs, ping-pongs |
//! | [`incast`] | the scenario that stop control is there for |

pub mod application;
mod cable;
pub mod incast;
pub mod network;
pub mod node;

pub use network::{Link, Network};
pub use node::{HostConfig, NodeConfig};
