//! The hot path allocates nothing, with and without losses.

use weft_bench::stream::StreamCosts;
use weft_bench::{Cost, HostPort, Stops, Stream, Transit};

#[test]
fn a_stream_of_frames_allocates_nothing_on_either_side() {
    for loss_every in [None, Some(100)] {
        let mut stream = Stream::new(1500, loss_every);
        stream.run(2_000, &mut StreamCosts::default());
        let mut costs = StreamCosts::default();
        stream.run(20_000, &mut costs);
        assert_eq!(stream.retransmitted() > 0, loss_every.is_some());
        for (stage, cost) in [("parse", costs.parse), ("build", costs.build), ("place", costs.place), ("acknowledge", costs.acknowledge)] {
            assert_eq!(cost.allocations, 0, "{stage}, {loss_every:?}");
        }
    }
}

#[test]
fn a_frame_through_the_switch_allocates_nothing() {
    let mut cost = Cost::default();
    Transit::new().run(20_000, &mut cost);
    assert_eq!(cost.allocations, 0);
}

#[test]
fn a_frame_through_a_host_port_with_stop_control_allocates_nothing() {
    for stops in [Stops::Idle, Stops::Busy] {
        let mut cost = Cost::default();
        HostPort::new(stops).run(20_000, &mut cost);
        assert_eq!(cost.allocations, 0, "{stops:?}");
    }
}
