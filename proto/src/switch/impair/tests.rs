use super::*;
use alloc::vec::Vec;

const FRAMES: usize = 10_000;
const LENGTH: usize = 64;
/// Room for a test's frames twice over, as a line takes no more than are free.
const POOL: usize = 4 * FRAMES;

/// A link with its drop counts and everything that came out, as (instant, bytes).
struct Link {
    pool: Pool,
    impairer: Impairer,
    drops: DropCounts,
}

impl Link {
    fn new(config: Impairment, seed: u64) -> Self {
        let impairer = Impairer::new(config, Rng::from_seed(seed), POOL);
        Self { pool: Pool::new(POOL, LENGTH, 0), impairer, drops: DropCounts::default() }
    }

    /// Sends frame `number`, whose payload is its number followed by zeros.
    fn send(&mut self, now: Instant, number: usize) {
        let frame = self.pool.alloc().unwrap();
        let room = self.pool.room_mut(&frame);
        room.fill(0);
        room[14..18].copy_from_slice(&u32::try_from(number).unwrap().to_be_bytes());
        self.pool.set_len(&frame, LENGTH);
        self.impairer.handle_frame(now, &mut self.pool, frame, &mut self.drops);
    }

    fn receive(&mut self) -> Vec<(Instant, Vec<u8>)> {
        let mut received = Vec::new();
        while let Some(release) = self.impairer.line().release() {
            let frame = self.impairer.line_mut().pop().unwrap();
            received.push((release, self.pool.bytes(&frame).to_vec()));
            self.pool.free(frame);
        }
        assert_eq!(self.pool.in_use(), 0, "every frame came out or was freed");
        received
    }

    /// Sends a frame each microsecond and returns what came out.
    fn run(&mut self) -> Vec<(Instant, Vec<u8>)> {
        (0..FRAMES).for_each(|number| self.send(micros(number as u64), number));
        self.receive()
    }
}

fn micros(micros: u64) -> Instant {
    Instant::ZERO + Duration::from_micros(micros)
}

fn number(bytes: &[u8]) -> usize {
    u32::from_be_bytes([bytes[14], bytes[15], bytes[16], bytes[17]]) as usize
}

fn numbers(received: &[(Instant, Vec<u8>)]) -> Vec<usize> {
    received.iter().map(|(_, bytes)| number(bytes)).collect()
}

/// Within five standard deviations of a binomial count (here at 10,000 frames).
fn assert_share(count: u64, ppm: u32) {
    let share = f64::from(ppm) / 1e6;
    let expected = FRAMES as f64 * share;
    let slack = 5.0 * (expected * (1.0 - share)).sqrt();
    assert!((count as f64 - expected).abs() <= slack, "{count} instead of {expected} frames");
}

#[test]
fn loss_takes_its_share_and_keeps_the_rest_in_order() {
    let mut link = Link::new(Impairment { loss_ppm: 10_000, ..Impairment::NONE }, 1);
    let received = link.run();
    let lost = link.drops.of(DropReason::ImpairedLoss);
    assert_share(lost, 10_000);
    assert_eq!(received.len() as u64 + lost, FRAMES as u64);
    assert!(numbers(&received).is_sorted());
}

#[test]
fn certain_loss_loses_everything() {
    let mut link = Link::new(Impairment { loss_ppm: 1_000_000, ..Impairment::NONE }, 1);
    assert_eq!(link.run().len(), 0);
    assert_eq!(link.drops.of(DropReason::ImpairedLoss), FRAMES as u64);
}

#[test]
fn duplicates_follow_their_original() {
    let mut link = Link::new(Impairment { duplicate_ppm: 20_000, ..Impairment::NONE }, 2);
    let received = numbers(&link.run());
    let doubled = received.windows(2).filter(|pair| pair[0] == pair[1]).count() as u64;
    assert_share(doubled, 20_000);
    assert_eq!(doubled, link.impairer.counters().duplicated);
    assert!(received.is_sorted());
}

#[test]
fn corruption_flips_exactly_one_bit_behind_the_header() {
    let mut link = Link::new(Impairment { corrupt_ppm: 50_000, ..Impairment::NONE }, 3);
    let received = link.run();
    let mut damaged = 0;
    for (expected, (_, bytes)) in received.iter().enumerate() {
        let mut original = [0; LENGTH];
        original[14..18].copy_from_slice(&u32::try_from(expected).unwrap().to_be_bytes());
        let flipped: u32 = bytes.iter().zip(original).map(|(a, b)| (a ^ b).count_ones()).sum();
        assert!(flipped <= 1);
        assert_eq!(bytes[..14], original[..14]);
        damaged += u64::from(flipped);
    }
    assert_share(damaged, 50_000);
    assert_eq!(damaged, link.impairer.counters().corrupted);
}

#[test]
fn a_corrupted_duplicate_leaves_the_other_copy_alone() {
    let config = Impairment { duplicate_ppm: 1_000_000, corrupt_ppm: 500_000, ..Impairment::NONE };
    let mut link = Link::new(config, 4);
    (0..100).for_each(|_| link.send(Instant::ZERO, 0));
    let received = link.receive();
    let clean = received.iter().filter(|(_, bytes)| bytes.iter().all(|&byte| byte == 0)).count() as u64;
    assert_eq!(received.len(), 200);
    assert_eq!(clean, 200 - link.impairer.counters().corrupted);
    assert!((60..140).contains(&clean), "{clean}");
}

#[test]
fn a_shared_frame_without_a_free_buffer_for_its_damage_is_dropped() {
    let mut link = Link::new(Impairment { corrupt_ppm: 1_000_000, ..Impairment::NONE }, 5);
    link.pool = Pool::new(1, LENGTH, 0);
    let frame = link.pool.alloc().unwrap();
    link.pool.set_len(&frame, LENGTH);
    let shared = link.pool.share(&frame);
    link.impairer.handle_frame(Instant::ZERO, &mut link.pool, shared, &mut link.drops);
    assert_eq!(link.drops.of(DropReason::NoBuffer), 1);
    assert!(!link.pool.is_shared(&frame));
    link.pool.free(frame);
}

#[test]
fn damage_is_not_hidden_behind_an_unfinished_checksum() {
    let mut link = Link::new(Impairment { corrupt_ppm: 1_000_000, ..Impairment::NONE }, 6);
    let frame = link.pool.alloc().unwrap();
    link.pool.set_len(&frame, LENGTH);
    link.pool.set_offload(&frame, Offload { flags: 1, checksum_start: 34, checksum_offset: 16, ..Offload::default() });
    link.impairer.handle_frame(Instant::ZERO, &mut link.pool, frame, &mut link.drops);
    let frame = link.impairer.line_mut().pop().unwrap();
    assert_eq!(link.pool.offload(&frame).flags, 0, "the receiver checks the sum, which is wrong");
    link.pool.set_offload(&frame, Offload { gso_type: 1, ..Offload::default() });
    link.impairer.handle_frame(Instant::ZERO, &mut link.pool, frame, &mut link.drops);
    assert_eq!(link.drops.of(DropReason::ImpairedLoss), 1, "a damaged super-frame is lost");
    assert_eq!(link.pool.in_use(), 0);
}

#[test]
fn a_frame_of_a_header_alone_passes_corruption_unharmed() {
    let mut link = Link::new(Impairment { corrupt_ppm: 1_000_000, ..Impairment::NONE }, 6);
    let frame = link.pool.alloc().unwrap();
    link.pool.set_len(&frame, 14);
    link.impairer.handle_frame(Instant::ZERO, &mut link.pool, frame, &mut link.drops);
    assert_eq!((link.receive().len(), link.impairer.counters().corrupted), (1, 0));
}

#[test]
fn delay_shifts_every_frame_by_the_same_time() {
    let mut link = Link::new(Impairment { delay: Duration::from_micros(50), ..Impairment::NONE }, 7);
    let received = link.run();
    assert_eq!(received.len(), FRAMES);
    assert!(received.iter().enumerate().all(|(sent, (at, bytes))| *at == micros(sent as u64 + 50) && number(bytes) == sent));
}

#[test]
fn jitter_spreads_over_its_range_and_keeps_the_order() {
    let config = Impairment { delay: Duration::from_micros(50), jitter: Duration::from_micros(20), ..Impairment::NONE };
    let received = Link::new(config, 8).run();
    assert!(numbers(&received).is_sorted());
    let delays: Vec<_> = received.iter().enumerate().map(|(sent, (at, _))| at.since(micros(sent as u64)).as_nanos()).collect();
    assert!(delays.iter().all(|&delay| (50_000..=70_000).contains(&delay)));
    assert!(delays.iter().min() < Some(&52_000) && delays.iter().max() > Some(&68_000));
}

#[test]
fn reordered_frames_are_overtaken_and_only_they() {
    let config = Impairment { reorder_ppm: 10_000, reorder_delay: Duration::from_micros(100), ..Impairment::NONE };
    let mut link = Link::new(config, 9);
    let received = link.run();
    let late: Vec<_> = received.iter().filter(|(at, bytes)| *at == micros(number(bytes) as u64 + 100)).collect();
    let on_time: Vec<_> = received.iter().filter(|(at, bytes)| *at == micros(number(bytes) as u64)).collect();
    assert_share(late.len() as u64, 10_000);
    assert_eq!(late.len() + on_time.len(), FRAMES);
    assert_eq!(late.len() as u64, link.impairer.counters().reordered);
    assert!(!numbers(&received).is_sorted());
}

#[test]
fn the_same_seed_gives_the_same_link_and_another_seed_another() {
    let config = Impairment {
        loss_ppm: 10_000,
        duplicate_ppm: 10_000,
        corrupt_ppm: 10_000,
        reorder_ppm: 10_000,
        reorder_delay: Duration::from_micros(100),
        delay: Duration::from_micros(10),
        jitter: Duration::from_micros(5),
    };
    let runs: Vec<_> = [1, 1, 2].into_iter().map(|seed| Link::new(config, seed).run()).collect();
    assert_eq!(runs[0], runs[1]);
    assert_ne!(runs[0], runs[2]);
}

#[test]
fn a_line_leaves_half_of_the_buffers_to_others() {
    let mut link = Link::new(Impairment { delay: Duration::from_secs(1), ..Impairment::NONE }, 10);
    link.pool = Pool::new(100, LENGTH, 0);
    (0..80).for_each(|number| link.send(Instant::ZERO, number));
    assert_eq!(link.drops.of(DropReason::ImpairedFull), 30);
    assert_eq!(link.receive().len(), 50);
}

#[test]
fn settings_may_end_while_frames_wait_and_nobody_overtakes_them() {
    let mut link = Link::new(Impairment { delay: Duration::from_micros(50), ..Impairment::NONE }, 11);
    link.send(micros(0), 0);
    link.impairer.reconfigure(Impairment::NONE, Rng::from_seed(1), POOL);
    assert!(!link.impairer.is_transparent());
    link.send(micros(1), 1);
    assert_eq!(numbers(&link.receive()), [0, 1]);
    assert!(link.impairer.is_transparent());
}
