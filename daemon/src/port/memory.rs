//! Two ends in one process: what one sends, the other receives. For tests and benches without a kernel.

use std::collections::VecDeque;
use std::sync::Arc;

use crossbeam::queue::ArrayQueue;
use weft_proto::pool::Offload;
use weft_proto::{FrameRef, Pool};

use super::ancillary::Auxiliary;
use super::intake::{self, Delivery};
use super::{PortCounters, RxOutcome, TxOutcome};

/// MTU of both ends.
pub(super) const MTU: u32 = 9000;

/// A frame on its way.
type Parcel = (Vec<u8>, Offload);

/// One direction: parcels under way, and empty ones to be used again, so that nothing is allocated per frame.
#[derive(Debug)]
struct Wire {
    full: ArrayQueue<Parcel>,
    empty: ArrayQueue<Parcel>,
}

/// One end.
#[derive(Debug)]
pub(super) struct Memory {
    incoming: Arc<Wire>,
    outgoing: Arc<Wire>,
}

/// Two ends with room for `depth` frames in each direction.
pub(super) fn pair(depth: usize) -> (Memory, Memory) {
    let wire = || Arc::new(Wire { full: ArrayQueue::new(depth.max(1)), empty: ArrayQueue::new(depth.max(1)) });
    let (there, back) = (wire(), wire());
    let near = Memory { incoming: Arc::clone(&back), outgoing: Arc::clone(&there) };
    (near, Memory { incoming: there, outgoing: back })
}

impl Memory {
    pub(super) fn rx(&self, pool: &mut Pool, out: &mut Vec<FrameRef>, budget: usize, counters: &mut PortCounters) -> RxOutcome {
        for _ in 0..budget {
            let Some(frame) = pool.alloc() else { return RxOutcome::NoBuffer };
            let Some(parcel) = self.incoming.full.pop() else {
                pool.free(frame);
                return RxOutcome::Empty;
            };
            let delivery = copy_in(&parcel, pool.room_mut(&frame));
            intake::accept(pool, frame, delivery, out, counters);
            // If there is no room for it, it is one more than can be under way.
            let _ = self.incoming.empty.push(parcel);
        }
        RxOutcome::More
    }

    pub(super) fn tx(&self, pool: &mut Pool, queue: &mut VecDeque<FrameRef>, counters: &mut PortCounters) -> TxOutcome {
        while let Some(frame) = queue.front() {
            let (mut bytes, _) = self.outgoing.empty.pop().unwrap_or_default();
            bytes.clear();
            bytes.extend_from_slice(pool.bytes(frame));
            if let Err(parcel) = self.outgoing.full.push((bytes, pool.offload(frame))) {
                let _ = self.outgoing.empty.push(parcel);
                counters.tx_refusals += 1;
                return TxOutcome::Blocked;
            }
            queue.drain(..1).for_each(|frame| pool.free(frame));
        }
        TxOutcome::Drained
    }
}

fn copy_in((bytes, offload): &Parcel, room: &mut [u8]) -> Delivery {
    let fits = bytes.len().min(room.len());
    room[..fits].copy_from_slice(&bytes[..fits]);
    Delivery { len: fits, cut_off: fits < bytes.len(), auxiliary: Auxiliary::default(), offload: *offload }
}
