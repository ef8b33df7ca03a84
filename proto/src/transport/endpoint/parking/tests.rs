use super::*;
use alloc::collections::{BTreeMap, VecDeque};
use proptest::prelude::*;

fn mac(last: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, last])
}

const fn at(nanos: u64) -> Instant {
    Instant::from_nanos(nanos)
}

#[test]
fn one_is_called_at_a_time_and_the_others_keep_their_order() {
    let mut parking = Parking::new(8);
    for slot in [5, 3, 4] {
        parking.park(slot, mac(1), 2, Some(at(10)));
    }
    assert_eq!((parking.poll_timeout(), parking.pop_due(at(9))), (Some(at(10)), None));
    let lot = parking.pop_due(at(10)).unwrap();
    assert_eq!(parking.call(lot), Some(5));
    assert_eq!(parking.poll_timeout(), None, "until the called one has had its turn");
    assert!(parking.is_called(5) && !parking.is_behind(5, mac(1), 2) && parking.is_behind(6, mac(1), 2));
    assert!(!parking.is_behind(6, mac(1), 3) && !parking.is_behind(6, mac(2), 0), "others are not concerned");
    assert!(parking.ends_turn(5, 2) && !parking.ends_turn(5, 15), "an answer is no turn");
    assert_eq!(parking.leave(5), Some(lot));
    assert_eq!(parking.call(lot), Some(3));
    // Called for nothing: in front again.
    parking.park(3, mac(1), 2, Some(at(20)));
    assert_eq!(parking.poll_timeout(), Some(at(20)));
    assert_eq!([parking.take(mac(1)), parking.take(mac(1)), parking.take(mac(1))], [Some(3), Some(4), None]);
    assert!(parking.is_empty() && parking.poll_timeout().is_none());
}

proptest! {
    /// Against a map of queues: nobody is lost, nobody is there twice, and all keep their order.
    #[test]
    fn parking_agrees_with_a_map_of_queues(steps in proptest::collection::vec((0usize..6, 0u8..3, 0u8..5), 0..200)) {
        let mut parking = Parking::new(6);
        // Per destination: who is called, and who waits.
        let mut model: BTreeMap<u8, (Option<usize>, VecDeque<usize>)> = BTreeMap::new();
        let place = |model: &BTreeMap<u8, (Option<usize>, VecDeque<usize>)>, slot: usize| {
            model.iter().find(|(_, (called, queue))| *called == Some(slot) || queue.contains(&slot)).map(|(dst, _)| *dst)
        };
        for (slot, dst, step) in steps {
            match step {
                0 | 1 => {
                    // A queue pair has one destination.
                    let dst = place(&model, slot).unwrap_or(dst);
                    let (called, queue) = model.entry(dst).or_default();
                    if *called == Some(slot) {
                        *called = None;
                        queue.push_front(slot);
                    } else if !queue.contains(&slot) {
                        queue.push_back(slot);
                    }
                    parking.park(slot, mac(dst), 1, Some(at(1)));
                }
                2 => {
                    if let Some(lot) = parking.pop_due(at(1)) {
                        let called = parking.call(lot).unwrap();
                        let (dst, queue) = model.iter_mut().map(|(dst, (_, queue))| (*dst, queue)).find(|(_, queue)| queue.front() == Some(&called)).unwrap();
                        queue.pop_front();
                        let entry = model.get_mut(&dst).unwrap();
                        prop_assert!(entry.0.is_none(), "one at a time");
                        entry.0 = Some(called);
                    }
                }
                3 => {
                    let next = parking.leave(slot);
                    if let Some(dst) = place(&model, slot) {
                        let entry = model.get_mut(&dst).unwrap();
                        let was_called = entry.0 == Some(slot);
                        entry.0 = entry.0.filter(|called| *called != slot);
                        entry.1.retain(|waiting| *waiting != slot);
                        prop_assert_eq!(next.is_some(), was_called && !entry.1.is_empty());
                        if entry.0.is_none() && entry.1.is_empty() {
                            model.remove(&dst);
                        }
                    }
                    if let Some(lot) = next {
                        parking.set_deadline(lot, at(1));
                    }
                }
                _ => {
                    let expected = model.remove(&dst).map(|(called, queue)| called.into_iter().chain(queue).collect::<Vec<_>>());
                    let taken: Vec<_> = core::iter::from_fn(|| parking.take(mac(dst))).collect();
                    prop_assert_eq!(expected.unwrap_or_default(), taken);
                }
            }
            prop_assert_eq!(parking.is_empty(), model.is_empty());
            let waiting = model.values().any(|(called, queue)| called.is_none() && !queue.is_empty());
            prop_assert_eq!(parking.poll_timeout().is_some(), waiting);
        }
    }
}
