#![allow(clippy::cast_possible_truncation)]

use super::*;
use crate::rng::Rng;
use alloc::collections::BTreeMap;
use proptest::prelude::*;

const AGEING: Duration = Duration::from_secs(300);

fn station(number: u32) -> MacAddr {
    let [a, b, c, d] = number.to_be_bytes();
    MacAddr([2, 0, a, b, c, d])
}

fn at(seconds: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(seconds)
}

fn table(limit: usize) -> Fdb {
    Fdb::new(limit, AGEING, 4, &mut Rng::from_seed(1))
}

#[derive(Clone, Debug)]
enum Step {
    Learn(u32, u16, u16),
    Static(u32, u16),
    Forget(u16),
    Wait(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (0_u32..20, 0_u16..2, 0_u16..4).prop_map(|(mac, vlan, port)| Step::Learn(mac, vlan, port)),
        1 => (0_u32..20, 0_u16..4).prop_map(|(mac, port)| Step::Static(mac, port)),
        1 => (0_u16..4).prop_map(Step::Forget),
        3 => (0_u64..200).prop_map(Step::Wait),
    ];
    prop::collection::vec(step, 1..400)
}

/// Address and VLAN to (port, last heard of; `None` = static, in every VLAN).
type Model = BTreeMap<(u32, u16), (u16, Option<u64>)>;

fn known(model: &Model, mac: u32, vlan: u16) -> Option<(u16, Option<u64>)> {
    let fixed = model.get(&(mac, 0)).filter(|(_, seen)| seen.is_none());
    fixed.or_else(|| model.get(&(mac, vlan))).copied()
}

fn apply(step: &Step, fdb: &mut Fdb, model: &mut Model, clock: &mut u64) {
    match *step {
        Step::Learn(mac, vlan, port) => {
            fdb.learn(at(*clock), (vlan, station(mac)), PortId(port));
            if !matches!(known(model, mac, vlan), Some((_, None))) {
                model.insert((mac, vlan), (port, Some(*clock)));
            }
        }
        Step::Static(mac, port) => {
            fdb.set_static(station(mac), PortId(port)).unwrap();
            model.remove(&(mac, 1));
            model.insert((mac, 0), (port, None));
        }
        Step::Forget(port) => {
            fdb.forget_port(PortId(port));
            model.retain(|_, &mut (at, seen)| at != port || seen.is_none());
        }
        Step::Wait(seconds) => *clock += seconds,
    }
    model.retain(|_, &mut (_, seen)| seen.is_none_or(|seen| *clock - seen <= 300));
}

proptest! {
    #[test]
    fn the_table_knows_what_a_naive_map_knows(seed: u64, steps in steps()) {
        // 128 slots for up to 40 addresses: runs of neighbours form, and no limit is reached.
        let mut fdb = Fdb::new(64, AGEING, 4, &mut Rng::from_seed(seed));
        let (mut model, mut clock) = (Model::new(), 0);
        for step in steps {
            apply(&step, &mut fdb, &mut model, &mut clock);
            for (mac, vlan) in (0..20).flat_map(|mac| [(mac, 0), (mac, 1)]) {
                let expected = known(&model, mac, vlan).map(|(port, _)| PortId(port));
                prop_assert_eq!(fdb.lookup(at(clock), (vlan, station(mac))), expected, "{:?} after {:?}", (mac, vlan), step);
            }
            prop_assert_eq!(fdb.iter(at(clock)).count(), model.len());
            let learned = fdb.slots.iter().flatten().filter(|entry| !entry.is_static).count();
            prop_assert_eq!((learned, learned), (fdb.learned_total, fdb.learned.iter().sum()));
        }
    }
}

#[test]
fn a_flood_of_invented_addresses_evicts_nobody_and_leaves_room_for_other_ports() {
    let mut fdb = table(1000);
    fdb.set_static(station(1), PortId(0)).unwrap();
    fdb.learn(at(0), (0, station(2)), PortId(0));
    for invented in 0..100_000 {
        fdb.learn(at(1), (0, station(1_000_000 + invented)), PortId(3));
    }
    assert!(fdb.learned_total <= 1000);
    assert_eq!(fdb.lookup(at(1), (0, station(1))), Some(PortId(0)));
    assert_eq!(fdb.lookup(at(1), (0, station(2))), Some(PortId(0)));
    assert!((850..900).contains(&fdb.learned[3]), "{}", fdb.learned[3]);
    fdb.learn(at(1), (0, station(3)), PortId(1));
    assert_eq!(fdb.lookup(at(1), (0, station(3))), Some(PortId(1)));
    assert!(fdb.counters().refused > 99_000);
}

#[test]
fn after_a_flood_has_aged_its_places_are_used_again() {
    let mut fdb = table(1000);
    (0..10_000).for_each(|invented| fdb.learn(at(0), (0, station(invented)), PortId(3)));
    let before = fdb.counters().learned;
    (0..2_000).for_each(|real| fdb.learn(at(301), (0, station(1_000_000 + real)), PortId(2)));
    assert!(fdb.counters().learned - before > 850, "{:?}", fdb.counters());
    assert!(fdb.counters().aged > 850);
}

#[test]
fn a_static_entry_neither_moves_nor_ages_and_replaces_a_learned_one() {
    let mut fdb = table(10);
    fdb.learn(at(0), (0, station(1)), PortId(0));
    fdb.set_static(station(1), PortId(1)).unwrap();
    assert_eq!(fdb.learned_total, 0);
    fdb.learn(at(1), (0, station(1)), PortId(2));
    assert_eq!(fdb.lookup(at(100_000), (0, station(1))), Some(PortId(1)));
    assert_eq!(fdb.counters().moved, 0);
}

#[test]
fn a_station_moves_with_its_first_frame_elsewhere() {
    let mut fdb = table(10);
    fdb.learn(at(0), (0, station(1)), PortId(0));
    fdb.learn(at(1), (0, station(1)), PortId(2));
    assert_eq!(fdb.lookup(at(1), (0, station(1))), Some(PortId(2)));
    assert_eq!((fdb.learned[0], fdb.learned[2], fdb.counters().moved), (0, 1, 1));
}

#[test]
fn too_many_static_entries_are_refused_and_the_table_still_works() {
    let mut fdb = table(10);
    let set = (0..1000).take_while(|&mac| fdb.set_static(station(mac), PortId(0)).is_ok()).count() as u32;
    assert!((64..=128).contains(&set), "{set} of 128 slots");
    fdb.learn(at(0), (0, station(5000)), PortId(1));
    fdb.forget_port(PortId(1));
    (0..set).for_each(|mac| assert_eq!(fdb.lookup(at(0), (0, station(mac))), Some(PortId(0))));
}

#[test]
fn time_that_steps_back_ages_nobody() {
    let mut fdb = table(10);
    fdb.learn(at(1000), (0, station(1)), PortId(0));
    assert_eq!(fdb.lookup(at(1), (0, station(1))), Some(PortId(0)));
}
