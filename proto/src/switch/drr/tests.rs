use super::*;
use alloc::collections::VecDeque;
use proptest::prelude::*;

const LONGEST: u64 = 1518;

/// Queues of frame lengths with the scheduler under test in front.
struct Bench {
    drr: Drr,
    queues: Vec<VecDeque<u64>>,
}

impl Bench {
    fn new(quanta: &[u64], queues: usize) -> Self {
        Self { drr: Drr::new(u32::try_from(queues).unwrap(), quanta.to_vec()), queues: vec![VecDeque::new(); queues] }
    }

    fn push(&mut self, queue: usize, bytes: u64) {
        if self.queues[queue].is_empty() {
            self.drr.handle_backlog(u32::try_from(queue).unwrap());
        }
        self.queues[queue].push_back(bytes);
    }

    fn pop(&mut self) -> Option<(usize, u64)> {
        let queue = self.drr.select(|queue| self.queues[queue as usize][0])? as usize;
        let bytes = self.queues[queue].pop_front().unwrap();
        self.drr.charge(bytes, self.queues[queue].is_empty());
        Some((queue, bytes))
    }
}

/// Deficit round robin as the paper tells it, a list of active queues and a counter each.
struct Model {
    quanta: Vec<u64>,
    queues: Vec<VecDeque<u64>>,
    deficits: Vec<u64>,
    active: VecDeque<usize>,
    in_turn: bool,
}

impl Model {
    fn push(&mut self, queue: usize, bytes: u64) {
        self.queues[queue].push_back(bytes);
        if !self.active.contains(&queue) {
            self.deficits[queue] = 0;
            self.active.push_back(queue);
        }
    }

    fn pop(&mut self) -> Option<(usize, u64)> {
        loop {
            let queue = *self.active.front()?;
            if !self.in_turn {
                self.deficits[queue] += self.quanta[queue % self.quanta.len()];
                self.in_turn = true;
            }
            let bytes = self.queues[queue][0];
            if bytes > self.deficits[queue] {
                self.active.rotate_left(1);
                self.in_turn = false;
                continue;
            }
            self.deficits[queue] -= bytes;
            self.queues[queue].pop_front();
            if self.queues[queue].is_empty() {
                self.active.pop_front();
                self.in_turn = false;
            }
            return Some((queue, bytes));
        }
    }
}

proptest! {
    #[test]
    fn backlogged_queues_stay_within_a_quantum_and_a_frame_of_their_fluid_share(
        weights in prop::collection::vec(1_u64..8, 2..8),
        quantum in LONGEST..4000,
        sizes in prop::collection::vec(60..=LONGEST, 1..64),
    ) {
        let quanta: Vec<_> = weights.iter().map(|weight| weight * quantum).collect();
        let mut bench = Bench::new(&quanta, weights.len());
        let mut served = vec![0_i128; weights.len()];
        for queue in 0..weights.len() {
            bench.push(queue, sizes[queue % sizes.len()]);
        }
        let whole: u64 = weights.iter().sum();
        for step in 0..600 {
            let head = bench.drr.select(|queue| bench.queues[queue as usize][0]).unwrap() as usize;
            bench.push(head, sizes[(step * 7 + head) % sizes.len()]);
            let (queue, bytes) = bench.pop().unwrap();
            prop_assert_eq!(queue, head);
            served[queue] += i128::from(bytes);
            let total: i128 = served.iter().sum();
            for (queue, &weight) in weights.iter().enumerate() {
                let distance = (served[queue] * i128::from(whole) - total * i128::from(weight)).unsigned_abs();
                let bound = u128::from(weight * whole * (quantum + LONGEST));
                prop_assert!(distance <= bound, "queue {} is {} / {} bytes from its share", queue, distance, whole);
            }
        }
    }

    #[test]
    fn any_arrivals_leave_in_the_order_of_the_naive_model_and_work_never_waits(
        quanta in prop::collection::vec(LONGEST..6000, 1..4),
        steps in prop::collection::vec(prop::option::of((0_usize..6, 14_u64..=3000)), 1..300),
    ) {
        let mut bench = Bench::new(&quanta, 6);
        let queues = vec![VecDeque::new(); 6];
        let mut model = Model { quanta, queues, deficits: vec![0; 6], active: VecDeque::new(), in_turn: false };
        for step in steps {
            if let Some((queue, bytes)) = step {
                bench.push(queue, bytes);
                model.push(queue, bytes);
            } else {
                let work = bench.queues.iter().any(|queue| !queue.is_empty());
                let popped = bench.pop();
                prop_assert_eq!(popped.is_some(), work);
                prop_assert_eq!(popped, model.pop());
            }
            prop_assert_eq!(bench.drr.is_empty(), bench.queues.iter().all(VecDeque::is_empty));
        }
    }
}

#[test]
fn a_super_frame_saves_up_for_its_turn_without_stopping_the_others() {
    let mut bench = Bench::new(&[LONGEST], 2);
    bench.push(0, 60_000);
    for _ in 0..100 {
        bench.push(1, 1500);
    }
    let order: Vec<_> = core::iter::from_fn(|| bench.pop()).collect();
    let turn = order.iter().position(|&(queue, _)| queue == 0).unwrap();
    assert_eq!(order.len(), 101);
    assert_eq!(turn, 39, "60,000 bytes are 39.5 quanta");
}

#[test]
fn an_emptied_queue_forfeits_its_deficit_so_idling_earns_nothing() {
    let mut bench = Bench::new(&[LONGEST], 2);
    for _ in 0..50 {
        bench.push(0, 60);
        assert_eq!(bench.pop(), Some((0, 60)));
    }
    for queue in [0, 1] {
        (0..4).for_each(|_| bench.push(queue, 1500));
    }
    let order: Vec<_> = core::iter::from_fn(|| bench.pop()).map(|(queue, _)| queue).collect();
    assert_eq!(order, [0, 1, 0, 1, 0, 1, 0, 1]);
}

#[test]
fn cleared_queues_come_back_in_order() {
    let mut bench = Bench::new(&[LONGEST], 3);
    (0..3).for_each(|queue| bench.push(queue, 100));
    bench.drr.clear();
    bench.queues.iter_mut().for_each(VecDeque::clear);
    assert!(bench.drr.is_empty());
    assert_eq!(bench.pop(), None);
    bench.push(2, 100);
    bench.push(0, 100);
    assert_eq!([bench.pop(), bench.pop(), bench.pop()], [Some((2, 100)), Some((0, 100)), None]);
}
