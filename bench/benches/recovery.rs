//! Prints a table of recovery modes under loss and reordering, in virtual time: the same on every machine.

#![allow(missing_docs)]

use weft_bench::recovery::{Faults, Outcome, Setup, run};
use weft_proto::transport::Recovery;
use weft_proto::{BitRate, Duration};

const MODES: [(&str, Recovery); 4] = [
    ("irn", Recovery::Irn),
    ("irn-strict", Recovery::IrnStrict),
    ("selective-no-sack", Recovery::SelectiveNoSack),
    ("go-back-n", Recovery::GoBackN),
];
const FAULTS: [(&str, Faults); 5] = [
    ("none", Faults { loss_ppm: 0, reorder: 0 }),
    ("0.1 % lost", Faults { loss_ppm: 1_000, reorder: 0 }),
    ("1 % lost", Faults { loss_ppm: 10_000, reorder: 0 }),
    ("5 % lost", Faults { loss_ppm: 50_000, reorder: 0 }),
    ("reordered by up to 8", Faults { loss_ppm: 0, reorder: 8 }),
];

fn main() {
    // `cargo test --benches` runs this with a little input, so that it cannot rot.
    let messages = if std::env::args().any(|arg| arg == "--bench") { 64 } else { 1 };
    let rate = BitRate::new(10_000_000_000).expect("not zero");
    let setup = Setup { rate, delay: Duration::from_nanos(8_700), queue: 64 << 10, messages, seed: 7 };
    println!("{messages} WRITEs of 1 MiB, 8 at a time; 10 Gbit/s, 20 us unloaded round trip, queue of 64 KiB, MTU 1500, bdp_cap auto;");
    println!("faults in both directions, the same seed for every mode\n");
    println!(
        "| mode | fault | goodput, Gbit/s | of lossless | completed in, ms | sent again | needless | by time-out | acks per data frame |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    for (name, recovery) in MODES {
        let mut lossless = None;
        for (label, faults) in FAULTS {
            let outcome = run(recovery, setup, faults);
            let share = outcome.goodput() / *lossless.get_or_insert_with(|| outcome.goodput());
            println!("| {name} | {label} | {}", cells(&outcome, share));
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "for display")]
fn cells(outcome: &Outcome, share: f64) -> String {
    let (sender, again) = (&outcome.sender, outcome.again());
    let percent = |part: u64, whole: u64| 100.0 * part as f64 / whole.max(1) as f64;
    format!(
        "{:.2} | {:.1} % | {:.1} | {:.2} % | {} | {:.2} % | {:.3} |",
        outcome.goodput(),
        100.0 * share,
        outcome.time.as_nanos() as f64 / 1e6,
        percent(again, sender.packets_sent),
        sender.retransmitted_spurious,
        percent(sender.retransmitted_timeout, again),
        outcome.receiver.acks_sent as f64 / (outcome.receiver.packets_received + outcome.receiver.duplicates_received) as f64,
    )
}
