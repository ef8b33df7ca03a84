use super::*;
use alloc::collections::VecDeque;
use proptest::prelude::*;

fn frame(pool: &mut Pool, bytes: usize) -> FrameRef {
    let frame = pool.alloc().unwrap();
    pool.set_len(&frame, bytes);
    frame
}

/// Fills a queue with frames of `bytes` until it refuses, and returns how many it took.
fn fill(pool: &mut Pool, queues: &mut Queues, queue: usize, bytes: usize) -> usize {
    for taken in 0.. {
        let frame = frame(pool, bytes);
        if let Err(frame) = queues.push(pool, queue, frame) {
            pool.free(frame);
            return taken;
        }
    }
    unreachable!("the pool is finite")
}

#[test]
fn a_queue_holds_its_limit_of_bytes_and_not_one_more() {
    let mut pool = Pool::new(64, 256, 0);
    let mut queues = Queues::new(2, 2, 64, 1000);
    assert_eq!(fill(&mut pool, &mut queues, 0, 100), 10);
    assert_eq!(queues.counters(0).refused, crate::switch::Traffic { frames: 1, bytes: 100 });
    assert_eq!(fill(&mut pool, &mut queues, 1, 250), 4, "the other queue has its own limit");
}

#[test]
fn one_stuck_queue_takes_half_of_the_buffers_and_two_a_third_each() {
    let mut pool = Pool::new(90, 64, 0);
    let mut queues = Queues::new(3, 3, 90, u64::MAX);
    let first = fill(&mut pool, &mut queues, 0, 60);
    assert_eq!(first, 45);
    let mut pool = Pool::new(90, 64, 0);
    let mut queues = Queues::new(3, 3, 90, u64::MAX);
    for _ in 0..60 {
        for queue in [0, 1] {
            let frame = frame(&mut pool, 60);
            if let Err(frame) = queues.push(&pool, queue, frame) {
                pool.free(frame);
            }
        }
    }
    for queue in [0, 1] {
        assert!(queues.counters(queue).queued.frames.abs_diff(30) <= 1, "{:?}", queues.counters(queue).queued);
    }
    assert!(fill(&mut pool, &mut queues, 2, 60) > 10);
}

#[test]
fn shared_frames_are_limited_by_the_entries_that_they_take() {
    let mut pool = Pool::new(64, 64, 0);
    let mut queues = Queues::new(1, 1, 8, u64::MAX);
    let original = frame(&mut pool, 60);
    let mut taken = 0;
    loop {
        let copy = pool.share(&original);
        match queues.push(&pool, 0, copy) {
            Ok(_) => taken += 1,
            Err(copy) => break pool.free(copy),
        }
    }
    assert_eq!(taken, 4 + 1, "as many as are still free, rounded up");
    while let Some((frame, _)) = queues.pop(0) {
        pool.free(frame);
    }
    pool.free(original);
    assert_eq!((pool.in_use(), queues.len()), (0, 0));
}

#[test]
fn without_a_free_entry_even_an_empty_queue_refuses() {
    let mut pool = Pool::new(8, 64, 0);
    let mut queues = Queues::new(2, 2, 1, u64::MAX);
    assert_eq!(fill(&mut pool, &mut queues, 0, 60), 1);
    assert_eq!(fill(&mut pool, &mut queues, 1, 60), 0);
}

proptest! {
    #[test]
    fn queues_are_first_in_first_out_and_lose_no_entry(steps in prop::collection::vec((0_usize..3, prop::option::of(60_usize..200)), 1..300)) {
        let mut pool = Pool::new(64, 256, 0);
        let mut queues = Queues::new(3, 3, 16, 1500);
        let mut model: [VecDeque<usize>; 3] = Default::default();
        for (queue, push) in steps {
            if let Some(bytes) = push {
                let frame = frame(&mut pool, bytes);
                match queues.push(&pool, queue, frame) {
                    Ok(was_empty) => {
                        prop_assert_eq!(was_empty, model[queue].is_empty());
                        model[queue].push_back(bytes);
                    }
                    Err(frame) => pool.free(frame),
                }
            } else {
                let popped = queues.pop(queue);
                prop_assert_eq!(popped.as_ref().map(|&(_, bytes)| bytes), model[queue].pop_front().map(|bytes| bytes as u64));
                if let Some((frame, _)) = popped {
                    pool.free(frame);
                }
            }
            let waiting = model.iter().map(VecDeque::len).sum::<usize>();
            prop_assert_eq!((queues.len(), pool.in_use()), (waiting, waiting));
            for (queue, frames) in model.iter().enumerate() {
                prop_assert_eq!(queues.head_bytes(queue), frames.front().map_or(0, |&bytes| bytes as u64));
                let counters = queues.counters(queue);
                prop_assert_eq!(counters.queued.bytes, frames.iter().sum::<usize>() as u64);
                prop_assert_eq!(counters.enqueued.frames, counters.dequeued.frames + frames.len() as u64);
            }
        }
    }
}
