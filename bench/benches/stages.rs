//! Prints what each stage costs. Five rounds, medians; every round warms up first.

#![allow(missing_docs)]

use weft_bench::{Cost, HostPort, Stops, Stream, Transit, stream::StreamCosts};

/// A measured stage: its name, and nanoseconds per frame and allocations in each round.
struct Row(&'static str, Vec<f64>, u64);

fn main() {
    // `cargo test --benches` runs this with a little input, so that it cannot rot.
    let (rounds, frames) = if std::env::args().any(|arg| arg == "--bench") { (5, 200_000) } else { (1, 1_000) };
    println!("{:<34}{:>12}{:>12}{:>12}{:>14}", "stage", "median ns", "min", "max", "allocations");
    for (mtu, loss, label) in [(1500, None, "MTU 1500"), (1500, Some(100), "MTU 1500, 1 % lost"), (9000, None, "MTU 9000")] {
        println!("{label}");
        print_rows(&stream_rows(rounds, frames, mtu, loss));
    }
    println!("8 ports, 512 stations, 1514-byte frames");
    print_rows(&[transit_row(rounds, frames)]);
    println!("a host port, 64 others, 1514-byte frames in and out");
    print_rows(&host_rows(rounds, frames));
}

/// The cases take turns, so that what disturbs one disturbs all.
fn host_rows(rounds: usize, frames: u64) -> Vec<Row> {
    let cases = [Stops::Off, Stops::Idle, Stops::Busy];
    let names = ["  without stop control", "  stop control, nobody stops us", "  one of 64 stops us"];
    let mut rows: Vec<Row> = names.map(|name| Row(name, Vec::new(), 0)).into();
    for _ in 0..rounds {
        for (row, stops) in rows.iter_mut().zip(cases) {
            let mut cost = Cost::default();
            HostPort::new(stops).run(frames, &mut cost);
            row.1.push(cost.nanos_per_frame());
            row.2 += cost.allocations;
        }
    }
    rows
}

fn stream_rows(rounds: usize, frames: u64, mtu: usize, loss: Option<u64>) -> Vec<Row> {
    let mut rows: Vec<Row> =
        ["  parse", "  build", "  place", "  acknowledge (per ack, both ends)"].map(|name| Row(name, Vec::new(), 0)).into();
    for _ in 0..rounds {
        let mut stream = Stream::new(mtu, loss);
        stream.run(frames / 10, &mut StreamCosts::default());
        let mut costs = StreamCosts::default();
        stream.run(frames, &mut costs);
        for (row, cost) in rows.iter_mut().zip([costs.parse, costs.build, costs.place, costs.acknowledge]) {
            row.1.push(cost.nanos_per_frame());
            row.2 += cost.allocations;
        }
    }
    rows
}

fn transit_row(rounds: usize, frames: u64) -> Row {
    let mut row = Row("  ingest and egress", Vec::new(), 0);
    for _ in 0..rounds {
        let mut cost = Cost::default();
        Transit::new().run(frames, &mut cost);
        row.1.push(cost.nanos_per_frame());
        row.2 += cost.allocations;
    }
    row
}

fn print_rows(rows: &[Row]) {
    for Row(name, nanos, allocations) in rows {
        let mut nanos = nanos.clone();
        nanos.sort_by(f64::total_cmp);
        println!("{name:<34}{:>12.0}{:>12.0}{:>12.0}{allocations:>14}", nanos[nanos.len() / 2], nanos[0], nanos[nanos.len() - 1]);
    }
}
