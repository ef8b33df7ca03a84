//! Prints what each congestion control algorithm does, as tables in Markdown. Virtual time: the same on every machine.

#![allow(missing_docs)]

use weft_bench::fabric::{Fabric, Outcome, Setup};
use weft_proto::Duration;
use weft_proto::transport::congestion::Algorithm;

const ALGORITHMS: [(&str, Algorithm); 6] = [
    ("none", Algorithm::None),
    ("timely", Algorithm::Timely),
    ("dcqcn", Algorithm::Dcqcn),
    ("aimd", Algorithm::Aimd),
    ("dctcp", Algorithm::Dctcp),
    ("swift", Algorithm::Swift),
];

type Scene = (&'static str, fn(Algorithm) -> Setup);

const SCENES: [Scene; 7] = [
    ("4 senders to one receiver", |algorithm| Setup::new(algorithm, 4)),
    ("16 senders to one receiver", |algorithm| Setup::new(algorithm, 16)),
    ("64 senders to one receiver", |algorithm| Setup::new(algorithm, 64)),
    ("Two flows, the second 20 ms later", |algorithm| Setup { stagger: Duration::from_millis(20), ..Setup::new(algorithm, 2) }),
    ("One flow alone", |algorithm| Setup::new(algorithm, 1)),
    ("One flow alone on a cable that loses 1 %", |algorithm| Setup { loss_ppm: 10_000, ..Setup::new(algorithm, 1) }),
    ("One flow alone, its receiver without a processor for 1 ms of every 10", |algorithm| Setup {
        stall: Some((Duration::from_millis(10), Duration::from_millis(1))),
        ..Setup::new(algorithm, 1)
    }),
];

fn main() {
    // `cargo test --benches` runs this with a little input, so that it cannot rot.
    let full = std::env::args().any(|arg| arg == "--bench");
    for (title, setup) in SCENES {
        println!("\n{title}:\n");
        println!(
            "| algorithm | goodput, Gbit/s | fairness | message p50, us | p99, us | drops | sent again | marked | queue mean, kB | most, kB |"
        );
        println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |");
        for (name, algorithm) in ALGORITHMS {
            let mut setup = setup(algorithm);
            if !full {
                setup.span = Duration::from_millis(1);
            }
            row(name, &Fabric::new(setup).run());
        }
    }
}

#[allow(clippy::cast_precision_loss)]
fn row(name: &str, outcome: &Outcome) {
    let failed = if outcome.failures > 0 { format!(" ({} failed)", outcome.failures) } else { String::new() };
    println!(
        "| {name}{failed} | {:.2} | {:.3} | {} | {} | {} | {} | {} | {:.0} | {:.0} |",
        outcome.goodput / 1e9,
        outcome.fairness,
        outcome.completion(500),
        outcome.completion(990),
        outcome.drops,
        outcome.retransmissions(),
        outcome.marked,
        outcome.queue.0 / 1e3,
        outcome.queue.1 as f64 / 1e3,
    );
}
