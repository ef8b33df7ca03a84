#![allow(clippy::cast_possible_truncation)] // numbers of tests are small
use std::collections::VecDeque;
use std::thread;

use proptest::prelude::*;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::*;
use crate::layout::CompletionEntry;

#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Number {
    value: u64,
    inverse: u64,
}

impl Entry for Number {}

fn number(value: u64) -> Number {
    Number { value, inverse: !value }
}

fn pair(capacity: u32) -> (Producer<Number>, Consumer<Number>) {
    let (producer, fd) = Producer::create("test", capacity).unwrap();
    (producer, Consumer::map(&fd, capacity).unwrap())
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Push,
    Publish,
    Pop,
    Release,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![4 => Just(Step::Push), 2 => Just(Step::Publish), 4 => Just(Step::Pop), 2 => Just(Step::Release)];
    prop::collection::vec(step, 0..200)
}

/// The naive ring: what is written but not shown, shown, taken but not given back.
#[derive(Default)]
struct Model {
    written: VecDeque<u64>,
    shown: VecDeque<u64>,
    taken: usize,
}

proptest! {
    #[test]
    fn a_ring_behaves_as_a_bounded_queue(exponent in 0u32..4, start: u32, steps in steps()) {
        let capacity = 1 << exponent;
        let (mut producer, mut consumer) = pair(capacity);
        // Begin anywhere, so that the counts also wrap.
        (producer.produced, producer.consumed, consumer.produced, consumer.consumed) = (start, start, start, start);
        producer.publish();
        consumer.release();
        let mut model = Model::default();
        for (value, step) in steps.into_iter().enumerate() {
            let value = value as u64;
            match step {
                Step::Push => {
                    let full = model.written.len() + model.shown.len() + model.taken == capacity as usize;
                    prop_assert_eq!(producer.push(&number(value)), if full { Err(PushError::Full) } else { Ok(()) });
                    if !full {
                        model.written.push_back(value);
                    }
                }
                Step::Publish => {
                    producer.publish();
                    model.shown.append(&mut model.written);
                }
                Step::Pop => {
                    let next = model.shown.pop_front();
                    model.taken += usize::from(next.is_some());
                    prop_assert_eq!(consumer.pop().unwrap(), next.map(number));
                }
                Step::Release => {
                    consumer.release();
                    model.taken = 0;
                }
            }
        }
    }

    #[test]
    fn a_hostile_side_can_only_break_its_own_ring(indices in prop::collection::vec((any::<u32>(), any::<bool>()), 1..50)) {
        let (producer, fd) = Producer::<CompletionEntry>::create("test", 8).unwrap();
        let hostile = Block::map(&fd, ring_len::<CompletionEntry>(8).unwrap() as u64).unwrap();
        attack(producer, Consumer::map(&fd, 8).unwrap(), &hostile, &indices);
    }
}

/// Lets the other side write any indices; both ends must answer with entries or errors, and stay within the ring.
fn attack(mut producer: Producer<CompletionEntry>, mut consumer: Consumer<CompletionEntry>, hostile: &Block, indices: &[(u32, bool)]) {
    for &(index, near) in indices {
        let index = if near { producer.produced.wrapping_add(index % 32).wrapping_sub(16) } else { index };
        hostile.word32(RING_CONSUMER).store(index, Ordering::Release);
        hostile.word32(RING_PRODUCER).store(index, Ordering::Release);
        let claimed_full = producer.produced.wrapping_sub(index) == 8;
        match producer.push(&CompletionEntry::default()) {
            Ok(()) => {}
            Err(PushError::Full) => assert!(claimed_full),
            Err(PushError::Corrupt(_)) => assert!(producer.produced.wrapping_sub(index) > 8),
        }
        let before = consumer.consumed;
        let mut taken = 0;
        while let Ok(Some(_)) = consumer.pop() {
            taken += 1;
            assert!(taken <= 8, "more entries than the ring holds");
        }
        assert_eq!(consumer.consumed, before.wrapping_add(taken));
    }
}

#[test]
fn an_index_that_makes_no_sense_is_noticed_and_costs_nothing() {
    let (mut producer, fd) = Producer::<Number>::create("test", 4).unwrap();
    let mut consumer = Consumer::<Number>::map(&fd, 4).unwrap();
    let hostile = Block::map(&fd, ring_len::<Number>(4).unwrap() as u64).unwrap();
    for index in [5, 6, 1 << 31, u32::MAX] {
        hostile.word32(RING_PRODUCER).store(index, Ordering::Release);
        assert_eq!(consumer.pop(), Err(Corrupt), "{index}");
        assert_eq!(consumer.has_entries(), Err(Corrupt), "{index}");
    }
    for index in [1, 5, 1 << 31, u32::MAX - 4] {
        hostile.word32(RING_CONSUMER).store(index, Ordering::Release);
        assert_eq!(producer.consumed(), Err(Corrupt), "{index}");
    }
    // Sense returns: nothing was lost.
    hostile.word32(RING_CONSUMER).store(0, Ordering::Release);
    producer.push(&number(1)).unwrap();
    producer.publish();
    assert_eq!(consumer.pop(), Ok(Some(number(1))));
}

#[test]
fn capacities_other_than_powers_of_two_are_refused() {
    for capacity in [0, 3, 6, MAX_RING + 1, MAX_RING * 2, u32::MAX] {
        assert_eq!(ring_len::<Number>(capacity), None);
        assert!(Producer::<Number>::create("test", capacity).is_err());
    }
    let (_producer, fd) = Producer::<Number>::create("test", 4).unwrap();
    assert!(matches!(Consumer::<Number>::map(&fd, 1024), Err(ShmError::TooShort { .. })), "a ring longer than its memory");
}

#[test]
fn a_consumer_is_woken_once_per_arming() {
    let (producer, consumer) = pair(4);
    assert!(!producer.take_armed(true));
    consumer.arm(Wake::Any);
    assert!(producer.take_armed(false));
    assert!(!producer.take_armed(true));
}

#[test]
fn a_consumer_that_waits_for_urgent_entries_is_woken_by_nothing_else() {
    let (producer, consumer) = pair(4);
    consumer.arm(Wake::Urgent);
    assert!(!producer.take_armed(false));
    assert!(producer.take_armed(true), "still armed");
    assert!(!producer.take_armed(true), "once");
    consumer.arm(Wake::Urgent);
    consumer.arm(Wake::Any);
    assert!(producer.take_armed(false), "it has changed its mind");
    // Whatever else a hostile consumer writes counts as any.
    consumer.ring.block.word32(RING_ARMED).store(77, Ordering::Relaxed);
    assert!(producer.take_armed(false));
}

#[test]
fn entries_can_be_looked_at_ahead_without_taking_them() {
    let (mut producer, mut consumer) = pair(4);
    (0..4).for_each(|value| producer.push(&number(value)).unwrap());
    assert_eq!(consumer.peek_ahead(0), Ok(None), "not published");
    producer.publish();
    assert_eq!(consumer.peek_ahead(3), Ok(Some(number(3))));
    assert_eq!(consumer.peek_ahead(4), Ok(None));
    assert_eq!(consumer.pop(), Ok(Some(number(0))));
    assert_eq!(consumer.peek_ahead(2), Ok(Some(number(3))));
    assert_eq!(consumer.peek_ahead(3), Ok(None));
    consumer.ring.block.word32(RING_PRODUCER).store(9, Ordering::Relaxed);
    assert_eq!(consumer.peek_ahead(0), Err(Corrupt));
}

#[test]
fn two_threads_pass_every_entry_once_in_order_and_whole() {
    const COUNT: u64 = 200_000;
    let (mut producer, mut consumer) = pair(64);
    let writer = thread::spawn(move || {
        for value in 0..COUNT {
            while producer.push(&number(value)) == Err(PushError::Full) {
                producer.publish();
                thread::yield_now();
            }
            if value % 7 == 0 {
                producer.publish();
            }
        }
        producer.publish();
    });
    let mut next = 0;
    while next < COUNT {
        match consumer.pop().unwrap() {
            Some(entry) => {
                assert_eq!(entry, number(next));
                next += 1;
            }
            None => {
                consumer.release();
                thread::yield_now();
            }
        }
    }
    writer.join().unwrap();
}

#[test]
fn a_consumer_that_arms_and_looks_again_never_oversleeps() {
    const COUNT: u64 = 20_000;
    let (mut producer, mut consumer) = pair(4);
    let (wake, woken) = std::sync::mpsc::channel();
    let writer = thread::spawn(move || {
        for value in 0..COUNT {
            while producer.push(&number(value)) == Err(PushError::Full) {
                thread::yield_now();
            }
            producer.publish();
            if producer.take_armed(false) {
                wake.send(()).unwrap();
            }
        }
    });
    let mut next = 0;
    while next < COUNT {
        while let Some(entry) = consumer.pop().unwrap() {
            assert_eq!(entry, number(next));
            next += 1;
        }
        consumer.release();
        consumer.arm(Wake::Any);
        if next < COUNT && !consumer.has_entries().unwrap() {
            woken.recv().expect("the writer ended while entries were still to come: a wake-up was lost");
        }
    }
    writer.join().unwrap();
}
