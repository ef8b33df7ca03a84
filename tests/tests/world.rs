//! Whole worlds from seeds: fresh ones in every run (`WEFT_WORLDS` says how many), and those that once failed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use weft_proto::Duration;
use weft_tests::world::{Summary, World};

/// Fresh seeds per run.
const FRESH: usize = 200;

/// Seeds of worlds that found a mistake, and what it was.
const REGRESSIONS: &[(u64, &str)] = &[
    (226, "a closed queue pair still took writes"),
    (376, "a queue pair that had been disconnected still took writes"),
    (364, "time spent behind a gap was taken for a round trip, so time-outs grew without need"),
    (17_745_107_007_127_591_727, "all buffers in delay lines: the host waits and does not spin"),
    (7_873_742_951_355_651_242, "a READ waited for ever for a peer that was gone"),
    (6_665_614_472_652_993_189, "a READ waited for ever for a peer that was gone"),
    (12_015_435_609_500_755_761, "a READ waited for ever for a peer that was gone"),
    (16_125_098_289_757_743_264, "what lay behind a refused atomic was acknowledged with the last word"),
    (1_363_267_477_562_851_813, "each drain began the wait for credit anew"),
    (2_513_998_268_346_688_659, "each drain began the wait for credit anew"),
    (13_039_209_723_468_343_925, "each drain began the wait for credit anew"),
    (15_115_436_264_798_262_643, "each drain began the wait for credit anew"),
    (5_548_019_534_891_814_994, "a message of a host's earlier life in the same second ended connections of the new one"),
    (16_989_760_849_958_953_836, "a late goodbye closed the next connection with the same number"),
];

/// Runs a world and turns every way of failing into one text with all that is needed to look at it again.
fn run(seed: u64) -> Result<Summary, String> {
    let world = Mutex::new(World::new(seed));
    let outcome = catch_unwind(AssertUnwindSafe(|| world.lock().unwrap_or_else(|e| e.into_inner()).run()));
    let outcome = outcome.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned().or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_string()));
        Err(format!("panic: {}", text.unwrap_or_default()))
    });
    outcome.map_err(|broken| {
        let world = world.lock().unwrap_or_else(|e| e.into_inner());
        format!("{broken}\nagain with: WEFT_SEED={seed} cargo test -p weft-tests world\n{:#?}", world.scenario())
    })
}

/// Runs worlds on all processors and sums up; panics with the first failure.
fn run_all(seeds: &[u64]) -> Summary {
    let (next, sum, failure) = (AtomicUsize::new(0), Mutex::new(Summary::default()), Mutex::new(None));
    let worker = || {
        while let Some(&seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed)) {
            match run(seed) {
                Ok(summary) => add(&mut sum.lock().unwrap(), &summary),
                Err(broken) => {
                    failure.lock().unwrap().get_or_insert(broken);
                    return;
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(worker);
        }
    });
    if let Some(broken) = failure.into_inner().unwrap() {
        panic!("{broken}");
    }
    sum.into_inner().unwrap()
}

fn add(sum: &mut Summary, other: &Summary) {
    sum.flows += other.flows;
    sum.complete += other.complete;
    sum.messages += other.messages;
    sum.retransmissions += other.retransmissions;
    sum.wraps += other.wraps;
    sum.failures += other.failures;
    sum.steps += other.steps;
    sum.stopped = sum.stopped + other.stopped;
}

/// A number that nobody chose.
fn entropy() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::hash::RandomState::new().build_hasher().finish()
}

#[test]
fn the_world_keeps_its_promises_for_fresh_seeds() {
    if let Some(seed) = std::env::var("WEFT_SEED").ok().map(|text| text.parse().expect("WEFT_SEED is a decimal number")) {
        println!("{:#?}", World::new(seed).scenario());
        println!("{:#?}", run_all(&[seed]));
        return;
    }
    let count = std::env::var("WEFT_WORLDS").ok().map_or(FRESH, |text| text.parse().expect("WEFT_WORLDS is a number"));
    let seeds: Vec<u64> = (0..count).map(|_| entropy()).collect();
    println!("first seed {}", seeds[0]);
    let sum = run_all(&seeds);
    println!("{sum:#?}");
    // Worlds in which nothing happens would keep any promise.
    assert!(sum.complete * 2 > sum.flows, "most connections work: {sum:?}");
    assert!(sum.retransmissions > 1000 && sum.failures > 100 && sum.messages > 5000, "faults happen: {sum:?}");
    assert!(sum.wraps > 0, "sequence numbers wrap: {sum:?}");
    assert!(sum.stopped > Duration::from_millis(50), "stops hold something back: {sum:?}");
}

#[test]
fn the_world_keeps_its_promises_where_it_once_did_not() {
    for &(seed, what) in REGRESSIONS {
        if let Err(broken) = run(seed) {
            panic!("{what}: {broken}");
        }
    }
}

#[test]
fn the_world_of_a_seed_is_the_same_every_time() {
    let runs = [(); 2].map(|()| {
        let mut world = World::new(3);
        let summary = world.run().unwrap();
        (format!("{summary:?}"), world.now())
    });
    assert_eq!(runs[0], runs[1]);
}
