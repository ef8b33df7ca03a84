//! Making a whole frame of what a socket delivered. Pure but for the pool.

use weft_proto::pool::Offload;
use weft_proto::{DropReason, FrameRef, Pool};

use super::PortCounters;
use super::ancillary::{Auxiliary, insert_tag};
use super::offload::behind_tag;

/// What a socket delivered into a chunk of the pool.
#[derive(Clone, Copy, Debug)]
pub(super) struct Delivery {
    /// Bytes in the chunk.
    pub(super) len: usize,
    /// There were more bytes than room.
    pub(super) cut_off: bool,
    pub(super) auxiliary: Auxiliary,
    pub(super) offload: Offload,
}

/// Completes the frame and hands it to `out`, or drops it and counts why.
pub(super) fn accept(pool: &mut Pool, frame: FrameRef, delivery: Delivery, out: &mut Vec<FrameRef>, counters: &mut PortCounters) {
    match complete(pool, &frame, delivery) {
        Ok(()) => out.push(frame),
        Err(reason) => {
            counters.drops.count(reason);
            pool.free(frame);
        }
    }
}

fn complete(pool: &mut Pool, frame: &FrameRef, delivery: Delivery) -> Result<(), DropReason> {
    // The length is the kernel's, but the room is ours: never trust one over the other.
    if delivery.cut_off || delivery.len > pool.room_mut(frame).len() {
        return Err(DropReason::CutOff);
    }
    pool.set_len(frame, delivery.len);
    let mut offload = delivery.offload;
    if let Some(tag) = delivery.auxiliary.tag {
        if !insert_tag(pool, frame, tag) {
            return Err(DropReason::CutOff);
        }
        offload = behind_tag(offload);
    }
    pool.set_offload(frame, offload);
    Ok(())
}
