//! A whole station: from frames to control packets, and from control packets to verdicts.

use super::*;
use crate::stop::config::{Accept, Counting, Criterion, Detector, ObeyConfig, RateRule, SecondSign, WatchConfig};
use crate::stop::fixtures::{config, obey_config};
use crate::stop::{Stage, Verdict};
use crate::time::Duration;
use crate::wire::{EtherType, StopKey};

const PORT: PortId = PortId(0);
/// A full frame on the wire of 100 Mbit/s.
const FRAME: u64 = 1514;
const FRAME_NANOS: u64 = 123_040;

fn host(number: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, number])
}

const US: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);

/// 80 and 40 % of 100 Mbit/s in periods of 1 ms, two each.
fn watch_config() -> WatchConfig {
    let criterion = |threshold| Criterion { threshold, period: Duration::from_millis(1), stages: 2 };
    let detector = Detector { detect: criterion(10_000), resolve: criterion(5_000) };
    let second_sign = SecondSign { sources: true, delay: Some(Duration::from_millis(2)) };
    WatchConfig { second_sign, ..WatchConfig::of_volume(detector, Counting::Wire) }
}

fn station_of(change: impl FnOnce(&mut StopConfig)) -> Station {
    let mut config = config(RateRule::Absolute);
    config.obey = Some(obey_config());
    config.watch = Some(watch_config());
    change(&mut config);
    Station::new(config, &[PORT], Rng::from_seed(1))
}

fn station() -> Station {
    station_of(|_| {})
}

fn arrival(nanos: u64, source: MacAddr) -> Arrival {
    Arrival { at: Instant::from_nanos(nanos), source, bytes: FRAME, for_us: true, preamble: None, sent: None }
}

/// Full frames back to back from `from` on, by each of the sources in turn.
fn fill(station: &mut Station, from: u64, frames: u64, sources: &[MacAddr]) -> u64 {
    for frame in 0..frames {
        let source = sources[usize::try_from(frame).unwrap() % sources.len()];
        station.observe(PORT, &arrival(from + frame * FRAME_NANOS, source));
    }
    from + frames * FRAME_NANOS
}

/// Control packets that wait: to whom, and whether to stop.
fn packets(station: &mut Station, nanos: u64) -> Vec<(MacAddr, bool)> {
    let mut frame = [0; 64];
    let mut packets = Vec::new();
    while let Some(len) = station.poll_transmit(Instant::from_nanos(nanos), &mut frame) {
        let (header, payload) = Ethernet::parse(&frame[..len]).unwrap();
        assert_eq!((header.src, header.ethertype, len), (US, EtherType::STOP, 60));
        packets.push((header.dst, matches!(StopMessage::parse(payload), Ok(StopMessage::Stop { .. }))));
    }
    packets.sort();
    packets
}

#[test]
fn two_senders_that_fill_the_link_are_asked_to_stop_and_told_when_it_is_over() {
    let mut station = station();
    let end = fill(&mut station, 1_000_000_000, 40, &[host(1), host(2)]);
    assert_eq!(packets(&mut station, end), [(host(1), true), (host(2), true)]);
    let mut silent = 0;
    while let Some(due) = station.poll_timeout().filter(|_| silent == 0 && !station.wants_transmit()) {
        station.handle_timeout(due);
        station.handle_quiet(due, PORT);
        if station.watches().all(|watch| watch.congested_since.is_none()) {
            silent = due.as_nanos() - end;
        }
    }
    station.handle_quiet(Instant::from_nanos(end + 5_000_000), PORT);
    let told = packets(&mut station, end + 5_000_000);
    assert_eq!(told, [(host(1), false), (host(2), false)]);
}

#[test]
fn one_sender_at_line_rate_is_left_alone() {
    let mut station = station();
    let end = fill(&mut station, 1_000_000_000, 1_000, &[host(1)]);
    assert_eq!(packets(&mut station, end), []);
    // Acknowledgements of others do not change that.
    for frame in 0..1_000 {
        let at = end + frame * FRAME_NANOS;
        station.observe(PORT, &arrival(at, host(1)));
        if frame % 16 == 0 {
            station.observe(PORT, &Arrival { bytes: 90, ..arrival(at + 1, host(2)) });
        }
    }
    assert_eq!(packets(&mut station, end + 1_000 * FRAME_NANOS), []);
}

#[test]
fn the_last_sender_left_is_told_that_it_is_over_although_it_fills_the_link() {
    let mut station = station();
    let end = fill(&mut station, 1_000_000_000, 40, &[host(1), host(2)]);
    assert_eq!(packets(&mut station, end), [(host(1), true), (host(2), true)]);
    let end = fill(&mut station, end, 400, &[host(1)]);
    assert_eq!(packets(&mut station, end), [], "the queue of those who stopped may be draining");
    let end = fill(&mut station, end, 300, &[host(1)]);
    let told = packets(&mut station, end);
    assert!(told.contains(&(host(1), false)) && told.contains(&(host(2), false)), "{told:?}");
    let end = fill(&mut station, end, 400, &[host(1)]);
    assert_eq!(packets(&mut station, end), []);
}

#[test]
fn one_sender_whose_packets_take_longer_and_longer_is_asked() {
    let mut station = station();
    for frame in 0..100 {
        let at = 1_000_000_000 + frame * FRAME_NANOS;
        let sent = Some(Timestamp::of(Instant::from_nanos(at - frame * 50_000)));
        station.observe(PORT, &Arrival { sent, ..arrival(at, host(1)) });
    }
    assert_eq!(packets(&mut station, 1_020_000_000), [(host(1), true)]);
}

#[test]
fn without_a_second_sign_a_full_link_is_enough() {
    let mut station = station_of(|config| {
        config.watch = Some(WatchConfig { second_sign: SecondSign { sources: false, delay: None }, ..watch_config() });
    });
    let end = fill(&mut station, 1_000_000_000, 40, &[host(1)]);
    assert_eq!(packets(&mut station, end), [(host(1), true)]);
}

#[test]
fn frames_for_others_fill_the_link_but_their_senders_are_not_asked() {
    let mut station = station();
    for frame in 0..60 {
        let at = 1_000_000_000 + frame * FRAME_NANOS;
        let source = host(u8::try_from(frame % 3).unwrap() + 1);
        station.observe(PORT, &Arrival { for_us: source != host(3), ..arrival(at, source) });
    }
    assert_eq!(packets(&mut station, 1_010_000_000), [(host(1), true), (host(2), true)]);
}

#[test]
fn who_joins_while_the_signs_last_is_asked_too() {
    let mut station = station();
    let end = fill(&mut station, 1_000_000_000, 40, &[host(1), host(2)]);
    packets(&mut station, end);
    let end = fill(&mut station, end, 60, &[host(1), host(3)]);
    assert!(packets(&mut station, end).contains(&(host(3), true)));
}

#[test]
fn a_list_of_targets_replaces_those_who_contribute() {
    let mut station = station_of(|config| config.ask.targets = Targets::Listed(Vec::from([host(5)])));
    let end = fill(&mut station, 1_000_000_000, 40, &[host(1), host(2)]);
    assert_eq!(packets(&mut station, end), [(host(5), true)]);
}

const STOP: StopMessage = StopMessage::Stop { priority: 15, timer: 10, rate: 0 };

fn header(src: MacAddr, dst: MacAddr) -> Ethernet {
    Ethernet { dst, src, vlan: None, ethertype: EtherType::STOP }
}

fn handle(station: &mut Station, header: &Ethernet, payload: &[u8]) -> Result<(), DropReason> {
    assert!(station.is_control(header));
    let now = Instant::from_nanos(1_000_000_000);
    station.handle_control(now, now, header, payload)
}

fn is_stopped(station: &Station, dst: MacAddr) -> bool {
    let verdict = |obedience: &Obedience| obedience.verdict(Instant::from_nanos(1_000_000_001), dst, 0, Stage::Build);
    station.obedience().is_some_and(|obedience| verdict(obedience) != Verdict::Open)
}

#[test]
fn what_is_no_proper_control_packet_of_somebody_else_changes_nothing_and_is_counted() {
    let mut station = station();
    let mut unknown = STOP.emit();
    unknown[0] = 0x70;
    let group = MacAddr([1, 0x80, 0xc2, 0, 0, 0x20]);
    let cases: [(Ethernet, &[u8], DropReason); 7] = [
        (header(host(1), US), &unknown, DropReason::UnknownCommand),
        (header(host(1), US), &STOP.emit()[..45], DropReason::BadLength),
        (header(host(1), US), &[0; 1500], DropReason::BadLength),
        (header(host(1), group), &STOP.emit(), DropReason::NotForUs),
        (header(host(1), MacAddr::BROADCAST), &STOP.emit(), DropReason::NotForUs),
        (header(group, US), &STOP.emit(), DropReason::StopStranger),
        (header(US, US), &STOP.emit(), DropReason::StopStranger),
    ];
    for (header, payload, reason) in cases {
        assert_eq!(handle(&mut station, &header, payload), Err(reason), "{header:?}");
    }
    assert_eq!(station.refused().total(), 7);
    assert!(station.obedience().is_some_and(Obedience::is_idle));
    assert!(!station.is_control(&header(host(1), host(2))), "for somebody else");
}

#[test]
fn with_a_list_only_those_on_it_are_obeyed() {
    let mut station = station_of(|config| {
        config.obey = Some(ObeyConfig { accept: Accept::Listed(Vec::from([host(1)])), ..obey_config() });
    });
    assert_eq!(handle(&mut station, &header(host(2), US), &STOP.emit()), Err(DropReason::StopStranger));
    assert_eq!(handle(&mut station, &header(host(1), US), &STOP.emit()), Ok(()));
    assert_eq!([is_stopped(&station, host(1)), is_stopped(&station, host(2))], [true, false]);
}

#[test]
fn with_a_key_packets_are_believed_once_and_in_order() {
    let key = StopKey([3; 16]);
    let with_key = |mac: MacAddr, started: u64| {
        station_of(|config| {
            config.key = Some(key);
            config.mac = mac;
            config.started = started;
        })
    };
    let mut asker = with_key(host(1), 5);
    let mut obeyer = with_key(US, 1);
    let make = |asker: &mut Station, cancel: bool| {
        let now = Instant::from_nanos(1_000_000_000);
        if cancel {
            assert!(asker.cancel(now, US))
        } else {
            asker.stop(now, US, |request| request)
        }
        let mut frame = [0; 64];
        let len = asker.poll_transmit(now, &mut frame).unwrap();
        (Ethernet::parse(&frame).unwrap().0, Vec::from(&frame[14..len]))
    };
    let (head, stop) = make(&mut asker, false);
    let (_, cancel) = make(&mut asker, true);
    assert_eq!(handle(&mut obeyer, &head, &stop), Ok(()));
    assert_eq!(handle(&mut obeyer, &head, &stop), Err(DropReason::StopReplay));
    assert_eq!(handle(&mut obeyer, &head, &cancel), Ok(()));
    assert_eq!(handle(&mut obeyer, &head, &stop), Err(DropReason::StopReplay), "older than the cancel packet");
    assert_eq!(handle(&mut obeyer, &head, &cancel), Err(DropReason::StopReplay));
    assert_eq!(handle(&mut obeyer, &head, &STOP.emit()), Err(DropReason::StopBadTag));
    let (_, later) = make(&mut with_key(host(1), 6), false);
    assert_eq!(handle(&mut obeyer, &head, &later), Ok(()), "of its next life");
    // Who has no key reads the packet all the same.
    assert_eq!(handle(&mut station(), &head, &stop), Ok(()));
}

#[test]
fn who_obeys_nobody_says_so() {
    let mut station = station_of(|config| config.obey = None);
    assert_eq!(handle(&mut station, &header(host(1), US), &STOP.emit()), Err(DropReason::StopStranger));
    assert!(station.obedience().is_none());
}
