//! Prints what a queue pair costs beside others. The ratios are of medians in one run: the cases take turns, so that
//! what else happens on the machine hits them alike.

#![allow(missing_docs)]

use weft_bench::{Cost, Crowd};
use weft_proto::Duration;

/// Long enough that no sign of life is due while something else is measured.
const QUIET: Duration = Duration::from_secs(3600);
/// Time of a full frame at 100 Gbit/s.
const FRAME_AT_100G: Duration = Duration::from_nanos(123);
/// Time of a frame so short that also 1,000 queue pairs acknowledge by count and not by time.
const FRAME_IN_NO_TIME: Duration = Duration::from_nanos(1);

/// How much to do: less under `cargo test --benches`, so that this cannot rot.
struct Size {
    rounds: usize,
    frames: u64,
    idle: usize,
    busy: usize,
}

fn main() {
    let full = Size { rounds: 9, frames: 200_000, idle: 10_000, busy: 1_000 };
    let small = Size { rounds: 1, frames: 1_000, idle: 100, busy: 10 };
    let size = if std::env::args().any(|arg| arg == "--bench") { full } else { small };
    print_connecting(&size);
    print_idle(&size);
    println!("per data frame, both ends, MTU 1500, acknowledgements by count");
    print_beside(&size, FRAME_IN_NO_TIME);
    println!("the same with the clock of a 100 Gbit/s link, where acknowledgements of many queue pairs come by time");
    print_beside(&size, FRAME_AT_100G);
}

fn print_connecting(size: &Size) {
    for count in [size.idle / 10, size.idle] {
        let mut crowd = None;
        let mut cost = Cost::default();
        let held = allocation_counter::measure(|| {
            let mut fresh = Crowd::new(65_534, QUIET);
            cost.measure(|| {
                fresh.connect(count);
                count as u64
            });
            crowd = Some(fresh);
        });
        let empty = allocation_counter::measure(|| drop(std::hint::black_box(Crowd::new(65_534, QUIET)))).bytes_max;
        let bytes = u64::try_from(held.bytes_current).unwrap_or(0).saturating_sub(empty) / (2 * count as u64);
        println!("connect {count} queue pairs: {:.1} us each, {bytes} bytes each at each end", cost.nanos_per_frame() / 1e3);
    }
}

fn print_idle(size: &Size) {
    let mut crowd = Crowd::new(65_534, Duration::from_secs(1));
    crowd.connect(size.idle);
    crowd.idle(Duration::from_secs(2), &mut Cost::default());
    let mut cost = Cost::default();
    let burst = crowd.idle(Duration::from_secs(10), &mut cost);
    println!(
        "{} idle queue pairs, a sign of life per second: {:.2} % of a processor for both ends, {:.0} ns per frame, at most {burst} frames at one instant",
        size.idle,
        cost.nanos as f64 / 1e9 / 10.0 * 100.0,
        cost.nanos_per_frame(),
    );
}

fn print_beside(size: &Size, frame_time: Duration) {
    let mut cases =
        [("one alone", 1, 1), ("beside idle ones", 1, size.idle), ("all busy", size.busy, size.busy)].map(|(name, busy, count)| {
            let mut crowd = Crowd::new(65_534, QUIET);
            crowd.connect(count);
            crowd.set_frame_time(frame_time);
            crowd.run(busy, size.frames / 10, &mut Cost::default());
            (name, busy, count, crowd, Vec::new())
        });
    for _ in 0..size.rounds {
        for (_, busy, _, crowd, nanos) in &mut cases {
            let mut cost = Cost::default();
            crowd.run(*busy, size.frames, &mut cost);
            nanos.push(cost.nanos_per_frame());
        }
    }
    let mut alone = None;
    for (name, busy, count, crowd, nanos) in &mut cases {
        nanos.sort_by(f64::total_cmp);
        let median = nanos[nanos.len() / 2];
        let ratio = median / *alone.get_or_insert(median);
        let (acks, data) = crowd.acknowledgements();
        println!(
            "  {name:<18}{count:>7} connected{busy:>7} busy{median:>8.0} ns [{:.0}, {:.0}]  ratio {ratio:.2}  {:.3} acknowledgements per frame",
            nanos[0],
            nanos[nanos.len() - 1],
            acks as f64 / data as f64
        );
    }
}
