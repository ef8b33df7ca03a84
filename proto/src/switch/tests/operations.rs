//! Random operations on a switch with everything switched on. [`Bench`] checks the balance after each.

use super::*;
use crate::rng::Rng;
use crate::wire::MacControl;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Send { port: u16, src: u8, dst: u8, length: usize, priority: Option<u8> },
    Garbage { port: u16, bytes: Vec<u8> },
    Receive { port: u16, budget: usize },
    Wait(u64),
    Pause { port: u16, enabled: u8, time: u16, pfc: bool },
    Up { port: u16, up: bool },
    Reconfigure { port: u16, like: u16 },
    Control { port: u16, src: u8, fields: [u8; 3] },
    Ask(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let send = (0_u16..4, 0_u8..8, 0_u8..8, 18_usize..1600, prop::option::of(0_u8..8));
    prop_oneof![
        12 => send.prop_map(|(port, src, dst, length, priority)| Step::Send { port, src, dst, length, priority }),
        1 => (0_u16..4, prop::collection::vec(any::<u8>(), 0..40)).prop_map(|(port, bytes)| Step::Garbage { port, bytes }),
        6 => (0_u16..4, 0_usize..8).prop_map(|(port, budget)| Step::Receive { port, budget }),
        4 => (0_u64..300_000).prop_map(Step::Wait),
        2 => (0_u16..4, any::<u8>(), any::<u16>(), any::<bool>()).prop_map(|(port, enabled, time, pfc)| Step::Pause { port, enabled, time, pfc }),
        1 => (0_u16..4, any::<bool>()).prop_map(|(port, up)| Step::Up { port, up }),
        1 => (0_u16..4, 0_u16..4).prop_map(|(port, like)| Step::Reconfigure { port, like }),
        3 => (0_u16..4, 0_u8..8, (prop::sample::select(vec![0_u8, 0, 0, 0xf0, 0x70]), 0_u8..16, any::<u8>(), 0_u8..16))
            .prop_map(|(port, src, (command, priority, timer, rate))| Step::Control { port, src, fields: [command | priority, timer, rate] }),
        1 => (0_u8..8).prop_map(Step::Ask),
    ]
}

fn impairment() -> impl Strategy<Value = Impairment> {
    let some = (0_u32..500_000, 0_u32..500_000, 0_u32..500_000, 0_u32..500_000, 0_u64..300, 0_u64..300);
    prop_oneof![
        Just(Impairment::NONE),
        some.prop_map(|(loss_ppm, duplicate_ppm, corrupt_ppm, reorder_ppm, delay, jitter)| Impairment {
            loss_ppm,
            duplicate_ppm,
            corrupt_ppm,
            reorder_ppm,
            reorder_delay: Duration::from_micros(100),
            delay: Duration::from_micros(delay),
            jitter: Duration::from_micros(jitter),
        }),
    ]
}

fn port() -> impl Strategy<Value = PortConfig> {
    let role = prop_oneof![Just(PortRole::Host), Just(PortRole::Switch), Just(PortRole::Switch)];
    let rate = prop::option::of((1_u64..10_000).prop_map(|mbit| BitRate::new(mbit * 1_000_000).unwrap()));
    let flow = prop_oneof![Just(FlowControl::None), Just(FlowControl::Pause), Just(FlowControl::Pfc)];
    (role, rate, 100_usize..1600, impairment(), impairment(), flow, prop::option::of(any::<u64>())).prop_map(
        |(role, rate, mtu, impair_ingress, impair_egress, flow_control, seed)| PortConfig {
            rate,
            mtu,
            impair_ingress,
            impair_egress,
            flow_control,
            seed,
            ..PortConfig::new(role)
        },
    )
}

/// Station 7 is the broadcast address, which as a source is invalid.
fn address(number: u8) -> MacAddr {
    if number == 7 { MacAddr::BROADCAST } else { station(number) }
}

/// A small pool, so that buffers run out.
const FRAMES: usize = 48;

fn apply(bench: &mut Bench, ports: &[PortConfig], step: &Step) {
    match *step {
        Step::Send { port, src, dst, length, priority } if bench.pool.available() > 0 => {
            let vlan = priority.map(|priority| VlanTag { priority, drop_eligible: false, id: 0 });
            bench.send_frame(PortId(port), &Ethernet { vlan, ..header(address(src), address(dst)) }, length);
        }
        Step::Garbage { port, ref bytes } if bench.pool.available() > 0 => {
            let frame = bench.pool.alloc().unwrap();
            bench.pool.room_mut(&frame)[..bytes.len()].copy_from_slice(bytes);
            bench.pool.set_len(&frame, bytes.len());
            bench.ingest(PortId(port), frame);
        }
        Step::Control { port, src, fields } if bench.pool.available() > 0 => {
            let frame = bench.build(&Ethernet { ethertype: EtherType::STOP, ..header(address(src), station(0)) }, 60);
            bench.pool.bytes_mut(&frame)[14..17].copy_from_slice(&fields);
            bench.ingest(PortId(port), frame);
        }
        Step::Ask(host) => bench.switch.stop_mut().unwrap().stop(bench.now, address(host), |request| request),
        Step::Pause { port, enabled, time, pfc } if bench.pool.available() > 0 => {
            let message = if pfc { MacControl::Pfc { enabled, times: [time; 8] } } else { MacControl::Pause { time } };
            bench.mac_control(PortId(port), &message);
        }
        Step::Send { .. } | Step::Garbage { .. } | Step::Control { .. } | Step::Pause { .. } => {}
        Step::Receive { port, budget } => _ = bench.receive_some(PortId(port), budget),
        Step::Wait(nanos) => bench.wait(Duration::from_nanos(nanos)),
        Step::Up { port, up } => bench.set_up(PortId(port), up),
        Step::Reconfigure { port, like } => bench.switch.reconfigure_port(bench.now, PortId(port), &ports[like as usize]),
    }
}

/// Lets all frames leave, following the deadlines that the switch names.
fn drain(bench: &mut Bench) {
    for _ in 0..10_000 {
        let Some(deadline) = bench.switch.poll_timeout(|_| true) else { return };
        bench.wait(deadline.since(bench.now));
        bench.receive();
    }
    panic!("the switch names deadlines but does nothing: {:?}", bench.switch.totals());
}

proptest! {
    #[test]
    fn frames_are_conserved_and_buffers_come_back_whatever_happens(
        ports in prop::collection::vec(port(), 4),
        classes in 1_u8..=8,
        strict in 0_u8..9,
        xoff in 0_u64..4000,
        xon in 0_u64..4000,
        voq_limit_bytes in 1000_u64..20_000,
        steps in prop::collection::vec(step(), 1..300),
    ) {
        let flow = FlowConfig { xoff, xon, ..FlowConfig::default() };
        let config = SwitchConfig { classes, strict, flow, voq_limit_bytes, frames: FRAMES, mac_table_size: 4, ..SwitchConfig::default() };
        let mut bench = Bench::new(&config, &ports);
        bench.pool = Pool::new(FRAMES, 2048, 32);
        bench.switch.set_stop(Some(stops::stop_config()));
        for step in &steps {
            apply(&mut bench, &ports, step);
        }
        drain(&mut bench);
        prop_assert_eq!((bench.switch.totals().queued, bench.pool.in_use()), (0, 0));
        prop_assert!(bench.switch.fdb(bench.now).count() <= 5);
    }
}

#[test]
fn random_traffic_reaches_the_drop_reasons_of_the_switch_and_no_others() {
    let mut rng = Rng::from_seed(5);
    let impairment = Impairment { loss_ppm: 100_000, duplicate_ppm: 100_000, corrupt_ppm: 100_000, delay: millis(1), ..Impairment::NONE };
    let mut bench = Bench::with(|config, ports| {
        (config.frames, config.voq_limit_bytes) = (FRAMES, 4000);
        (ports[1].impair_ingress, ports[2].impair_egress) = (impairment, impairment);
        (ports[1].mtu, ports[3].role) = (500, PortRole::Host);
    });
    bench.pool = Pool::new(FRAMES, 2048, 32);
    let stations = [MacAddr::ZERO, station(0), station(1), station(2), MacAddr::BROADCAST, MacAddr([0x01, 0x80, 0xc2, 0, 0, 2])];
    for step in 0..20_000_u64 {
        let mut pick = |bound: u64| usize::try_from(rng.below(bound)).unwrap();
        let (port, src, dst, length) = (port_id(pick(4)), stations[pick(6)], stations[pick(6)], 14 + pick(1500));
        let ethertype = if pick(20) == 0 { EtherType::MAC_CONTROL } else { EtherType::TRANSPORT };
        if bench.pool.available() > 0 {
            let frame = bench.build(&Ethernet { ethertype, ..header(src, dst) }, length);
            if pick(20) == 0 {
                bench.pool.set_len(&frame, 10);
            }
            bench.ingest(port, frame);
        }
        match step % 64 {
            0 => bench.set_up(B, step % 128 == 0),
            1..8 => _ = bench.receive_some(port_id(pick(4)), 4),
            8 => bench.wait(Duration::from_micros(700)),
            _ => {}
        }
    }
    // A missing buffer needs an empty pool, which the limits of queues and lines prevent here; it has its own dialogue.
    let reached: BTreeSet<_> = bench.drops().nonzero().map(|(reason, _)| reason).collect();
    let expected = BTreeSet::from([
        DropReason::Truncated,
        DropReason::InvalidSource,
        DropReason::ReservedAddress,
        DropReason::MacControl,
        DropReason::NoOutput,
        DropReason::PortDown,
        DropReason::QueueFull,
        DropReason::ImpairedLoss,
        DropReason::ImpairedFull,
        DropReason::Oversize,
    ]);
    assert_eq!(reached, expected);
}
