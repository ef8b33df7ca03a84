//! Class of fault: anything that loss recovery can get wrong within a few packets. Every order of delivery, loss,
//! doubling and delay within a budget, for every mode; `WEFT_MODEL=large` explores larger bounds.

use std::time::Instant;

use weft_proto::transport::Recovery;
use weft_tests::model::{Bounds, explore};

const MODES: [Recovery; 4] = [Recovery::Irn, Recovery::IrnStrict, Recovery::SelectiveNoSack, Recovery::GoBackN];

/// Packets, window, and how many may be lost, doubled, late, stalled.
type Shape = (u32, u32, [u8; 4]);

/// Windows of all packets and smaller ones, so that new packets follow those that are lost.
const USUAL: [Shape; 6] =
    [(6, 6, [1, 0, 0, 0]), (4, 4, [2, 0, 0, 0]), (6, 3, [2, 0, 0, 0]), (4, 4, [1, 1, 0, 0]), (5, 3, [1, 0, 1, 0]), (4, 3, [1, 0, 0, 1])];
const LARGE: [Shape; 5] = [(6, 6, [2, 0, 0, 0]), (5, 5, [2, 1, 0, 0]), (6, 3, [3, 1, 0, 0]), (6, 4, [2, 0, 1, 0]), (5, 3, [2, 1, 1, 1])];

#[test]
fn nothing_is_lost_or_delivered_twice_and_no_time_out_is_needed_where_none_is_promised() {
    let large = std::env::var("WEFT_MODEL").is_ok_and(|size| size == "large");
    let shapes = if large { &LARGE[..] } else { &USUAL[..] };
    for recovery in MODES {
        let (mut states, begin) = (0, Instant::now());
        for &(packets, cap, [drops, doubles, holds, stalls]) in shapes {
            let bounds = Bounds { recovery, packets, cap, drops, doubles, holds, stalls };
            let explored = explore(bounds).unwrap_or_else(|wrong| panic!("{wrong}"));
            assert!(explored.ends > 0);
            println!("{bounds:?}: {explored:?}, {:?}", begin.elapsed());
            states += explored.states;
        }
        println!("{recovery:?}: {states} states in {:?}", begin.elapsed());
    }
}
