use super::*;

fn counters_of_ports() -> PortCounters {
    PortCounters { rx_frames: 7, rx_bytes: 2048, drops: Drops::from([("bad_icrc".to_owned(), 3)]), ..PortCounters::default() }
}

#[test]
fn numbers_stand_under_each_other_and_lines_end_without_blanks() {
    let entry = |mac: &str, age_seconds| FdbEntry { mac: mac.to_owned(), port: "p0".to_owned(), age_seconds };
    let text = lines(&addresses(&[entry("02:00:00:00:00:01", 5), entry("02:00:00:00:00:02", 30)]));
    let expected = ["MAC                PORT   AGE", "02:00:00:00:00:01  p0     5 s", "02:00:00:00:00:02  p0    30 s"];
    assert_eq!(text.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn a_port_shows_its_drops_and_faults_by_name_and_a_dead_link_in_capitals() {
    let port = PortInfo {
        name: "p0".to_owned(),
        interface: "eth0".to_owned(),
        role: "switch".to_owned(),
        backend: "packet".to_owned(),
        up: false,
        mac: None,
        mtu: 1500,
        rate_bps: Some(2_000_000_000),
        counters: counters_of_ports(),
        flow_control: "pause".to_owned(),
        flow: FlowCounters { sent: 5, paused_us: 81, ..FlowCounters::default() },
        impaired_ingress: ImpairCounters { lost: 4, reordered: 9, ..ImpairCounters::default() },
        impaired_egress: ImpairCounters::default(),
    };
    let text = lines(&ports(&[port]));
    for word in ["DOWN", "2Gbit", "2.00 KiB", "bad_icrc 3", "lost 4, reordered 9", "pause: sent 5, paused_us 81"] {
        assert!(text.contains(word), "{word}: {text}");
    }
}

#[test]
fn counters_name_every_counter_of_the_transport() {
    let transport = QpCounters { retransmitted_fast: 11, ..QpCounters::default() };
    let flow = FlowCounters { watchdog_trips: 2, ..FlowCounters::default() };
    let all = Counters { ports: counters_of_ports(), transport, flow, ..Counters::default() };
    let text = counters(&all);
    let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
    assert_eq!(value("transport.retransmitted_fast "), Some(11));
    assert_eq!(value("ports.drops.bad_icrc "), Some(3));
    assert_eq!(value("switch.flow_control.watchdog_trips "), Some(2));
    assert_eq!(value("transport.timeouts "), Some(0));
}

#[test]
fn a_node_without_a_host_port_says_so() {
    let text = status(&Status {
        node: "s".to_owned(),
        version: "0.1.0".to_owned(),
        uptime_seconds: 61,
        pid: 7,
        config_file: "/etc/weft.yaml".to_owned(),
        ports: Vec::new(),
        endpoint_mac: None,
        incarnation: None,
        qps: 0,
        applications: 0,
    });
    assert!(text.contains("no host port") && text.contains("up 1 min 1 s"), "{text}");
}
