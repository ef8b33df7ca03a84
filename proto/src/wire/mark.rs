//! What a switch may see and change in a transport frame.

use core::mem::{offset_of, size_of};

use crate::time::Timestamp;
use crate::wire::eth::{EtherType, Ethernet};
use crate::wire::headers::{BthView, WeftHeader};
use crate::wire::packet::{FECN, split_base};

/// What the sender's clock showed when a frame left, if it is one of the transport's that says so; `rest` is what follows the
/// Ethernet header. Nothing is checked: the frame may be damaged.
pub fn sent_at(rest: &[u8], header: &Ethernet, ethertype: EtherType) -> Option<Timestamp> {
    let (weft, _, _) = split_base(rest).ok().filter(|_| header.ethertype == ethertype)?;
    Some(weft.timestamp.get()).filter(|&ticks| ticks > 0).map(Timestamp::from_ticks)
}

/// Marks a transport frame as having met a long queue (FECN). False, and nothing changed, if it is not one. The ICRC
/// stays right: it does not cover these bits.
pub fn mark_congestion(frame: &mut [u8], ethertype: EtherType) -> bool {
    let Ok((eth, rest)) = Ethernet::parse(frame) else { return false };
    if eth.ethertype != ethertype || split_base(rest).is_err() {
        return false;
    }
    let octet = eth.len() + size_of::<WeftHeader>() + offset_of!(BthView, congestion);
    frame[octet] |= FECN;
    true
}
