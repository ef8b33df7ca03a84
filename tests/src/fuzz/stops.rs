//! A station of stop control that anything is said to.

use weft_proto::stop::config::{
    AskConfig, Combine, Counting, Criterion, Detector, Gap, ObeyConfig, Presets, PriorityRule, RateRule, Request, WatchConfig,
};
use weft_proto::stop::{Arrival, Obedience, Stage, Standing, Station, StopConfig, StopCounters, Verdict};
use weft_proto::wire::{EtherType, Ethernet, MacAddr, StopKey};
use weft_proto::{BitRate, Duration, Instant, PortId, Rng};

const PORT: PortId = PortId(0);
const TABLE: u32 = 4;
const TICK: Duration = Duration::from_micros(10);
const LONGEST: Duration = Duration::from_millis(5);

/// The last octet tells hosts apart; number 0 is the station's own address, 7 a group.
const fn host(number: u8) -> MacAddr {
    if number == 7 { MacAddr::BROADCAST } else { MacAddr([2, 0, 0, 0, 0, number]) }
}

/// Records of an operation, an operand, and bytes: control packets, arrivals, silence, time, commands. `data` begins with the rules.
pub fn stop_dialogue(data: &[u8]) {
    let Some((&rules, data)) = data.split_first() else { return };
    let mut station = Station::new(config(rules), &[PORT], Rng::from_seed(1));
    let mut now = Instant::from_nanos(1_000_000_000);
    let mut frame = [0; 64];
    for (steer, bytes) in super::records(data).take(512) {
        let operand = steer >> 3;
        match steer & 7 {
            0..3 => _ = station.handle_control(now, now, &header(operand), bytes),
            3 => observe(&mut station, now, operand, bytes),
            4 => now += Duration::from_micros(u64::from(operand) * 20),
            5 => station.handle_quiet(now, PORT),
            6 => station.stop(now, host(operand & 7), |_| Request { priority: operand & 15, timer: operand, rate: operand & 3 }),
            _ => _ = station.cancel(now, host(operand & 7)),
        }
        station.handle_timeout(now);
        let packets = (0..100).take_while(|_| station.poll_transmit(now, &mut frame).is_some()).count();
        assert!(packets <= TABLE as usize, "{packets} control packets at once");
        check(&station, now);
    }
}

fn header(operand: u8) -> Ethernet {
    Ethernet {
        dst: host(if operand & 8 == 0 { 0 } else { operand >> 1 & 7 }),
        src: host(operand & 7),
        vlan: None,
        ethertype: EtherType::STOP,
    }
}

fn observe(station: &mut Station, now: Instant, operand: u8, bytes: &[u8]) {
    let step = u64::from(bytes.first().copied().unwrap_or(1)) * 1_000;
    for frame in 0..bytes.len().min(32) as u64 {
        let at = Instant::from_nanos(now.as_nanos() - 100_000 + frame * step);
        let source = host(operand & 7);
        station.observe(PORT, &Arrival { at, source, bytes: 1514, for_us: operand & 8 == 0, preamble: None, sent: None });
    }
}

/// No hold outlasts its timer, whoever is not held may be sent to, and each hold that began has ended or lasts.
fn check(station: &Station, now: Instant) {
    let Some(obedience) = station.obedience() else { return };
    let mut held = 0;
    for view in obedience.views(now) {
        if let Standing::Held { until, .. } = view.standing {
            held += 1;
            assert!(until.since(now) <= TICK.saturating_mul(255), "{view:?}");
        }
        if matches!(view.standing, Standing::Free | Standing::Ignored { .. }) {
            assert_eq!(obedience.verdict(now, view.host, 0, Stage::Depart), Verdict::Open);
        }
    }
    assert!(obedience.views(now).count() <= TABLE as usize && station.asked().count() <= TABLE as usize);
    assert!(held > 0 || obedience.views(now).any(|view| view.standing != Standing::Free) || Obedience::is_idle(obedience));
    let StopCounters { obeyed, expired, cancelled, capped, .. } = station.counters();
    assert_eq!(obeyed, expired + cancelled + capped + held);
}

fn config(rules: u8) -> StopConfig {
    let criterion = |threshold| Criterion { threshold, period: Duration::from_micros(100), stages: 2 };
    let detector = Detector { detect: criterion(1_000), resolve: criterion(500) };
    let gaps = Detector { detect: criterion(5), resolve: criterion(13) };
    let usual = StopConfig::new(host(0), BitRate::megabits(100));
    StopConfig {
        priority: (rules & 1 != 0).then_some(7),
        key: (rules & 0x80 != 0).then_some(StopKey([1; 16])),
        tick: TICK,
        rate_rule: [RateRule::Absolute, RateRule::Function, RateRule::Halving, RateRule::Absolute][usize::from(rules >> 1 & 3)],
        table_size: TABLE,
        ask: AskConfig { request: Request { priority: 15, timer: 20, rate: 1 }, preset_timer: 20, ..usual.ask },
        obey: Some(ObeyConfig {
            priority_rule: [PriorityRule::Packet, PriorityRule::Selector, PriorityRule::Local, PriorityRule::None]
                [usize::from(rules >> 3 & 3)],
            presets: Presets { timer: 20, priority: 15 },
            resume_jitter: Duration::from_micros(u64::from(rules >> 5 & 1) * 100),
            longest: LONGEST,
            budget_permille: 900,
            forgive_after: Duration::from_millis(2),
            ..ObeyConfig::new()
        }),
        watch: Some(WatchConfig {
            gap: (rules & 0x40 != 0).then_some(Gap { detector: gaps, resolution: Duration::from_micros(50) }),
            combine: if rules & 0x20 == 0 { Combine::Any } else { Combine::All },
            ..WatchConfig::of_volume(detector, Counting::Wire)
        }),
        ..usual
    }
}
