//! VLANs: who belongs to which, and what is learned where.

use super::*;

fn in_vlan(id: u16, src: MacAddr, dst: MacAddr) -> Ethernet {
    Ethernet { vlan: Some(VlanTag { priority: 0, drop_eligible: false, id }), ..header(src, dst) }
}

#[test]
fn frames_of_a_foreign_vlan_are_neither_taken_nor_flooded_nor_forwarded() {
    let mut bench = Bench::with(|_, ports| ports[1].vlans = Vlans::of(&[10]));
    // Towards the port: floods go around it, also those without a VLAN.
    bench.send_frame(B, &in_vlan(20, station(2), MacAddr::BROADCAST), 100);
    assert_eq!(bench.receive(), [1, 0, 0, 1]);
    bench.send(B, station(2), MacAddr::BROADCAST);
    assert_eq!(bench.receive(), [1, 0, 0, 1]);
    bench.send_frame(B, &in_vlan(10, station(2), MacAddr::BROADCAST), 100);
    assert_eq!(bench.receive(), [1, 1, 0, 1]);
    // From it: its own VLAN only, and nothing is learned from others.
    bench.send_frame(A, &in_vlan(20, station(1), station(0)), 100);
    bench.send(A, station(1), station(0));
    bench.assert_drops(&[(DropReason::VlanNotMember, 2)]);
    bench.send_frame(A, &in_vlan(10, station(1), station(0)), 100);
    assert_eq!(bench.receive(), [1, 0, 0, 0]);
    // A known station behind it is out of reach of a VLAN that it lost.
    bench.switch.reconfigure_port(bench.now, A, &PortConfig { vlans: Vlans::of(&[30]), ..PortConfig::new(PortRole::Switch) });
    bench.send_frame(B, &in_vlan(10, station(2), station(1)), 100);
    bench.assert_drops(&[(DropReason::VlanNotMember, 3)]);
}

#[test]
fn a_station_may_be_behind_different_ports_in_different_vlans() {
    let mut bench = Bench::with(|_, _| {});
    bench.send_frame(A, &in_vlan(10, station(1), station(0)), 100);
    bench.send_frame(B, &in_vlan(20, station(1), station(0)), 100);
    assert_eq!(bench.receive(), [2, 0, 0, 0], "the local station is known in every VLAN");
    bench.send_frame(C, &in_vlan(10, station(3), station(1)), 100);
    assert_eq!(bench.receive(), [0, 1, 0, 0]);
    bench.send_frame(C, &in_vlan(20, station(3), station(1)), 100);
    assert_eq!(bench.receive(), [0, 0, 1, 0]);
    assert_eq!(bench.switch.fdb_counters().moved, 0);
    // And a static address is nobody else's, whatever the VLAN.
    bench.send_frame(C, &in_vlan(10, station(0), station(1)), 100);
    bench.receive();
    bench.send_frame(A, &in_vlan(10, station(1), station(0)), 100);
    assert_eq!(bench.receive(), [1, 0, 0, 0]);
}
