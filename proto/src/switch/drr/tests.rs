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

/// Two inputs of four classes each: queue = input * 4 + class.
fn strict(count: usize) -> Bench {
    let mut bench = Bench::new(&[LONGEST; 4], 8);
    bench.drr.configure(vec![LONGEST; 4], count);
    bench
}

impl Bench {
    fn order(&mut self) -> Vec<usize> {
        core::iter::from_fn(|| self.pop()).map(|(queue, _)| queue).collect()
    }
}

#[test]
fn strict_classes_go_first_from_the_highest_and_take_turns_over_the_inputs() {
    let mut bench = strict(2);
    (0..8).for_each(|queue| (0..2).for_each(|_| bench.push(queue, 1500)));
    assert_eq!(bench.order(), [3, 7, 3, 7, 2, 6, 2, 6, 0, 1, 4, 5, 0, 1, 4, 5]);
}

#[test]
fn every_class_may_be_strict_and_more_than_there_are_is_all() {
    for count in [3, 4, 200] {
        let mut bench = strict(count);
        (0..4).for_each(|queue| (0..2).for_each(|_| bench.push(queue, 1500)));
        assert_eq!(bench.order(), [3, 3, 2, 2, 1, 1, 0, 0], "{count} strict classes");
    }
}

#[test]
fn waiting_queues_move_when_the_number_of_strict_classes_changes() {
    let mut bench = strict(0);
    (0..4).for_each(|queue| (0..2).for_each(|_| bench.push(queue, 1500)));
    assert_eq!(bench.pop(), Some((0, 1500)));
    bench.drr.configure(vec![LONGEST; 4], 3);
    assert_eq!([bench.pop(), bench.pop()], [Some((3, 1500)); 2]);
    bench.drr.configure(vec![LONGEST; 4], 0);
    let mut left = bench.order();
    left.sort_unstable();
    assert_eq!(left, [0, 1, 1, 2, 2]);
    assert!(bench.drr.is_empty() && bench.drr.busy() == 0);
}

#[test]
fn a_held_class_is_passed_over_without_ever_being_looked_at_again() {
    let mut bench = strict(1);
    (0..8).for_each(|queue| (0..3).for_each(|_| bench.push(queue, 100)));
    bench.drr.hold(0b1001);
    let looks = core::cell::Cell::new(0);
    for _ in 0..12 {
        let queue = bench
            .drr
            .select(|queue| {
                looks.set(looks.get() + 1);
                bench.queues[queue as usize][0]
            })
            .unwrap() as usize;
        assert!([1, 2].contains(&(queue % 4)));
        bench.queues[queue].pop_front();
        bench.drr.charge(100, bench.queues[queue].is_empty());
    }
    assert_eq!(looks.get(), 12, "held queues cost nothing");
    assert_eq!((bench.pop(), bench.drr.is_empty(), bench.drr.has_parked(), bench.drr.busy()), (None, true, true, 4));
    bench.drr.hold(0b1000);
    assert_eq!(bench.order(), [0, 0, 0, 4, 4, 4]);
    bench.drr.hold(0);
    assert_eq!(bench.order(), [3, 3, 3, 7, 7, 7]);
    assert!(!bench.drr.has_parked());
}

proptest! {
    #[test]
    fn holding_reorders_nothing_within_a_queue_loses_nothing_and_is_strict(
        strict_classes in 0_usize..5,
        steps in prop::collection::vec((0_u8..8, 0_usize..8, 60_u64..=LONGEST), 1..300),
    ) {
        let mut bench = strict(strict_classes);
        let (mut held, mut pushed, mut popped) = (0_u8, 0, 0);
        for (what, queue, bytes) in steps {
            match what {
                0..4 => {
                    bench.push(queue, bytes);
                    pushed += 1;
                }
                4 => {
                    held = u8::try_from(bytes % 16).unwrap();
                    bench.drr.hold(held);
                }
                _ => {
                    let free = |queue: &usize| !bench.queues[*queue].is_empty() && held >> (queue % 4) & 1 == 0;
                    let highest = (0..8).filter(free).map(|queue| queue % 4).max();
                    match bench.pop() {
                        None => prop_assert_eq!(highest, None),
                        Some((queue, _)) => {
                            popped += 1;
                            prop_assert_eq!(held >> (queue % 4) & 1, 0);
                            let shared = 3_usize.saturating_sub(strict_classes);
                            prop_assert_eq!((queue % 4).max(shared), highest.unwrap_or(0).max(shared));
                        }
                    }
                }
            }
            let busy = bench.queues.iter().filter(|queue| !queue.is_empty()).count();
            prop_assert_eq!(bench.drr.busy() as usize, busy);
        }
        bench.drr.hold(0);
        popped += bench.order().len();
        prop_assert_eq!(popped, pushed);
    }
}
