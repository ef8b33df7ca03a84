//! Bytes to meaning and back.
//!
//! Two layers: fixed big-endian views of each header (private to its module, sizes asserted at compile time) and
//! a meaning type that can hold only what Weft supports. Parsing is total: any bytes give a meaning or a
//! [`DropReason`](crate::DropReason).
//!
//! A transport frame, lengths in bytes:
//!
//! ```text
//! | Ethernet 14 or 18 | Weft 12 | BTH 12 | extension headers | payload | ICRC 4 | padding to 60 |
//!                     '-------- Weft.length covers BTH to ICRC -------------'
//! ```
//!
//! | opcode | extension headers |
//! | --- | --- |
//! | SEND | SeqETH 8 (every packet), ImmDt 4 or IETH 4 (last, with immediate or invalidate) |
//! | WRITE | RETH 16 (every packet), and on the last with immediate ImmDt 4, SeqETH 8 |
//! | READ request | RETH 16, ReadSeqETH 8 |
//! | READ response | SeqETH 8 (every packet) |
//! | COMPARE SWAP, FETCH ADD | AtomicETH 28, ReadSeqETH 8 |
//! | ATOMIC response | SeqETH 8, AtomicAckETH 8 |
//! | ACKNOWLEDGE, READ ACKNOWLEDGE | AETH 4, EchoETH 8, SackETH 4 + 8 n (when something is out of order) |
//! | CONGESTION NOTIFICATION | none |
//! | UD SEND ONLY to QPN 1 | DETH 8, connection message |

pub mod ack;
pub mod connection;
pub mod eth;
pub mod headers;
pub mod mac_control;
mod mark;
pub mod packet;
pub mod stop;

pub use ack::{Ack, Echo, Sack};
pub use connection::{ConnectionKind, ConnectionMessage, RecoveryOffer, Refusal};
pub use eth::{EtherType, Ethernet, MacAddr, VlanTag};
pub use headers::{AckKind, Credits, NakCode, Opcode, Position};
pub use mac_control::MacControl;
pub use mark::{mark_congestion, sent_at};
pub use packet::{Base, Body, Packet, Tail};
pub use stop::{STOP_ETHERTYPES, StopKey, StopMessage};

#[cfg(test)]
mod tests;
