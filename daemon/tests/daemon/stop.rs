//! Stop control of a running daemon: frames as bytes on one end of a cable, the daemon's word about them on the other.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use weft_daemon::port::{Backend, HEADROOM, Port, PortCounters, PortSpec, Role, TxOutcome, required_chunk};
use weft_proto::Pool;
use weft_proto::wire::{EtherType, Ethernet, MacAddr, StopKey, StopMessage};

use crate::support::{Namespace, Weftd, eventually};
use crate::transfer;

const A: MacAddr = MacAddr([2, 0, 0, 0, 0, 0x0a]);
const B: MacAddr = MacAddr([2, 0, 0, 0, 0, 0x0b]);
const C: MacAddr = MacAddr([2, 0, 0, 0, 0, 0x0c]);
/// Frames for [`sender_program`], in hexadecimal digits.
const FRAMES: &str = "WEFT_TEST_FRAMES";
/// It sends them again and again, if this is set.
const FLOOD: &str = "WEFT_TEST_FLOOD";
/// An end to it, whatever becomes of the test.
const FLOOD_LIMIT: Duration = Duration::from_secs(60);

#[test]
#[ignore = "a program for the other tests to run inside a namespace"]
fn sender_program() {
    let Ok(frames) = std::env::var(FRAMES) else { return };
    let (name, interface, ethertypes) = ("vb".to_owned(), "vb".to_owned(), vec![0xfffe]);
    let spec = PortSpec { name, interface, role: Role::Host, backend: Backend::Packet, ethertypes, batch: 1 };
    let mut pool = Pool::new(1, required_chunk(Role::Host, 1500), HEADROOM);
    let mut port = Port::open(&spec).unwrap();
    let frames: Vec<Vec<u8>> = frames.split_ascii_whitespace().map(bytes_of).collect();
    let (start, flood) = (Instant::now(), std::env::var_os(FLOOD).is_some());
    loop {
        for bytes in &frames {
            let frame = pool.alloc().unwrap();
            pool.room_mut(&frame)[..bytes.len()].copy_from_slice(bytes);
            pool.set_len(&frame, bytes.len());
            let mut queue = [frame].into();
            // A kernel without room takes it later.
            while port.tx(&mut pool, &mut queue, &mut PortCounters::default()) != TxOutcome::Drained {
                assert!(start.elapsed() < FLOOD_LIMIT);
            }
        }
        if !flood || start.elapsed() > FLOOD_LIMIT {
            return;
        }
    }
}

fn bytes_of(digits: &str) -> Vec<u8> {
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
}

/// The program that sends frames out of `vb`.
fn sender(namespace: &Namespace, frames: &[Vec<u8>]) -> Command {
    let digits = |frame: &Vec<u8>| frame.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let mut program = namespace.command(std::env::current_exe().unwrap());
    program.args(["stop::sender_program", "--exact", "--ignored"]);
    program.env(FRAMES, frames.iter().map(digits).collect::<Vec<_>>().join(" "));
    program
}

/// Sends frames out of `vb`, the end of the cable where no daemon has to be.
fn send(namespace: &Namespace, frames: &[Vec<u8>]) {
    let output = sender(namespace, frames).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

/// A stop packet as the source draws it, from its bytes.
fn raw(dst: MacAddr, src: MacAddr, fields: [u8; 3], len: usize) -> Vec<u8> {
    let mut frame = [dst.0.as_slice(), &src.0, &[0xff, 0x10], &fields].concat();
    frame.resize(14 + len, 0);
    frame
}

/// Everything below priority 15 stops for `timer` ticks.
fn stop_from(src: MacAddr, timer: u8) -> Vec<u8> {
    raw(A, src, [0x0f, timer, 0], 46)
}

/// A host `a` with stop control as said here.
fn host(namespace: &Namespace, stop: &str) -> Weftd {
    configure(namespace, stop);
    namespace.start("a")
}

fn configure(namespace: &Namespace, stop: &str) {
    let more = format!("metrics: {{ listen: \"127.0.0.1:9471\" }}\n{stop}");
    namespace.configure("a", "  - { name: eth0, interface: va, role: host }", &more);
}

fn request(weftd: &Weftd, request: Value) -> Value {
    weftd.line(&json!({"version": 1, "id": 1, "request": request}).to_string())
}

fn events(weftd: &Weftd) -> Vec<Value> {
    request(weftd, json!({"type": "stop_events", "since": 0}))["result"]["events"].as_array().unwrap().clone()
}

/// The event of that kind, once it has happened.
fn event(weftd: &Weftd, kind: &str) -> Value {
    let found = eventually(|| events(weftd).into_iter().find(|event| event["event"] == kind));
    found.unwrap_or_else(|| panic!("no {kind} among {:?}", events(weftd)))
}

fn refused(weftd: &Weftd, reason: &str) -> u64 {
    weftd.ask("stop_show")["refused"][reason].as_u64().unwrap_or(0)
}

#[test]
fn a_stop_frame_is_obeyed_its_sender_named_and_free_again_when_its_timer_ran_out() {
    let namespace = Namespace::with_cable();
    let weftd = host(&namespace, "stop: { tick: 1ms, detect: off, obey: { longest: 60s } }");
    let held = eventually(|| {
        send(&namespace, &[stop_from(B, 255)]);
        let asker = weftd.ask("stop_show")["askers"]["items"][0].clone();
        (asker["standing"] == "stopped").then_some(asker)
    });
    let held = held.expect("a stop of 255 ms is seen");
    assert_eq!((&held["name"], &held["mac"], &held["below"]), (&json!("b"), &json!("02:00:00:00:00:0b"), &json!(15)), "{held}");
    assert!(held["remaining_us"].as_u64().unwrap() <= 255_000, "{held}");
    let released = event(&weftd, "released");
    assert_eq!((&released["cause"], &released["name"]), (&json!("expired"), &json!("b")), "{released}");
    let obeyed = event(&weftd, "obeyed");
    assert_eq!((&obeyed["for_us"], &obeyed["share_permille"]), (&json!(255_000), &json!(0)), "{obeyed}");
    let span = released["unix_ns"].as_u64().unwrap() - obeyed["unix_ns"].as_u64().unwrap();
    assert!(span >= 254_000_000, "{span} ns: the timer is kept");
    weftd.stop();
}

#[test]
fn a_cancel_frame_ends_a_stop_at_once() {
    let namespace = Namespace::with_cable();
    let weftd = host(&namespace, "stop: { tick: 1ms, obey: { longest: 60s } }");
    send(&namespace, &[stop_from(B, 255), raw(A, B, [0xf0, 0, 0], 46)]);
    assert_eq!(event(&weftd, "released")["cause"], "cancelled");
    assert_eq!(weftd.ask("stop_show")["counters"]["cancels_received"], 1);
    weftd.stop();
}

#[test]
fn forged_and_malformed_frames_change_nothing_and_are_counted_by_reason() {
    let namespace = Namespace::with_cable();
    let (file, key) = (namespace.path("stop.key"), StopKey([0x11; 16]));
    fs::write(&file, "11".repeat(16)).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let weftd = host(&namespace, &format!("stop: {{ key_file: {}, obey: {{ accept: [b] }} }}", file.display()));
    let header = Ethernet { dst: A, src: B, vlan: None, ethertype: EtherType::STOP };
    let mut sealed = vec![0; 60];
    let message = StopMessage::Stop { priority: 15, timer: 1, rate: 0 };
    assert_eq!(message.emit_frame(&mut sealed, &header, Some((&key, 1))), Some(60));
    let (short, unknown) = (raw(A, B, [0x0f, 9, 0], 100), raw(A, B, [0x5f, 9, 0], 46));
    let group = raw(MacAddr([0x03, 0, 0, 0, 0, 1]), B, [0x0f, 9, 0], 46);
    send(&namespace, &[stop_from(C, 9), stop_from(B, 9), short, unknown, group, sealed.clone(), sealed]);
    let replayed = eventually(|| (refused(&weftd, "stop_replay") == 1).then_some(()));
    assert!(replayed.is_some(), "{}", weftd.ask("stop_show"));
    for reason in ["stop_stranger", "stop_bad_tag", "bad_length", "unknown_command", "not_for_us"] {
        assert_eq!(refused(&weftd, reason), 1, "{reason}");
    }
    let shown = weftd.ask("stop_show");
    assert_eq!(
        (&shown["counters"]["obeyed"], &shown["counters"]["stops_received"]),
        (&json!(1), &json!(1)),
        "only the sealed one: {shown}"
    );
    let metrics = eventually(|| {
        let text = namespace.http(9471, "/metrics");
        text.contains("weft_stop_refused_packets_total{reason=\"stop_replay\"} 1").then_some(text)
    });
    let metrics = metrics.unwrap();
    for line in ["weft_stop_stops_total{outcome=\"obeyed\"} 1", "weft_stop_congested{port=\"eth0\"} 0"] {
        assert!(metrics.lines().any(|found| found == line), "{line}: {metrics}");
    }
    assert!(!format!("{}{}", weftd.ask("config"), namespace.log("a")).contains(&"11".repeat(16)), "the key is nowhere to be read");
    weftd.stop();
}

#[test]
fn a_host_that_stops_this_one_for_too_long_is_obeyed_no_more_and_the_operator_told() {
    let namespace = Namespace::with_cable();
    let weftd = host(&namespace, "stop: { detect: off, obey: { longest: 1ms, timer: 50, forgive_after: 1ms } }");
    send(&namespace, &[stop_from(B, 255)]);
    assert_eq!(event(&weftd, "runaway")["name"], "b");
    assert_eq!(event(&weftd, "forgiven")["name"], "b");
    let told = eventually(|| namespace.log("a").contains("asked this node to stop for longer").then_some(()));
    assert!(told.is_some(), "{}", namespace.log("a"));
    // Each has the worker look for alarms again.
    (0..3).for_each(|_| drop(weftd.ask("status")));
    let warnings = namespace.log("a").lines().filter(|line| line.contains("to stop for longer") && line.contains("host=b")).count();
    assert_eq!(warnings, 1, "once: {}", namespace.log("a"));
    weftd.stop();
}

#[test]
fn data_flows_however_many_forged_packets_come_as_fast_as_the_cable_takes_them() {
    let namespace = Namespace::with_cable();
    let a = host(&namespace, "stop: { detect: off, obey: { longest: 20ms } }");
    let b = namespace.host("b");
    let len = 1 << 20;
    let (mut near, far) = transfer::connect(&a, &b, len);
    near.memory.copy_in(0, &transfer::pattern(len)).unwrap();
    // In the receiver's own name, in many others, and without sense.
    let stranger = |number: u8| MacAddr([2, 0, 0, 0, 1, number]);
    let mut frames: Vec<_> = (0..200).map(|number| stop_from(stranger(number), 255)).collect();
    frames.extend((0..20).map(|_| stop_from(B, 255)));
    frames.extend([raw(A, B, [0x5f, 9, 0], 46), raw(A, B, [0x0f, 9, 0], 100), raw(A, B, [0x7a, 9, 0], 46)]);
    let mut flood = sender(&namespace, &frames).env(FLOOD, "").stdout(Stdio::null()).spawn().unwrap();
    event(&a, "runaway");
    transfer::write_all(&mut near, &far, len, 16);
    assert!(flood.try_wait().unwrap().is_none(), "the flood has lasted");
    flood.kill().unwrap();
    flood.wait().unwrap();
    let mut arrived = vec![0; len];
    far.memory.copy_out(0, &mut arrived).unwrap();
    assert!(arrived == transfer::pattern(len));
    assert!(refused(&a, "stop_budget") > 1_000, "{}", a.ask("stop_show"));
    a.stop();
    b.stop();
}

#[test]
fn hosts_are_asked_and_told_by_hand() {
    let namespace = Namespace::with_cable();
    let asking = host(&namespace, "stop: { tick: 1ms, detect: off }");
    let ports = "  - { name: eth0, interface: vb, role: host }";
    namespace.configure("b", ports, "metrics: { enabled: false }\nstop: { tick: 1ms, obey: { longest: 60s } }");
    let asked = namespace.start("b");
    let sent = request(&asking, json!({"type": "stop_send", "host": "b", "timer": 255, "rate": 8}));
    let wanted = json!({"mac": "02:00:00:00:00:0b", "name": "b", "priority": 15, "timer": 255, "rate": 8});
    assert_eq!(sent["result"], wanted, "{sent}");
    let obeyed = event(&asked, "obeyed");
    assert_eq!((&obeyed["name"], &obeyed["share_permille"]), (&json!("a"), &json!(500)), "{obeyed}");
    // The stop may be over by now; then there is nothing to cancel.
    let cancelled = eventually(|| {
        request(&asking, json!({"type": "stop_send", "host": "02:00:00:00:00:0b", "timer": 255}));
        let answer = request(&asking, json!({"type": "stop_cancel", "host": "b"}));
        answer.get("result").cloned()
    });
    assert_eq!(cancelled, Some(json!({"mac": "02:00:00:00:00:0b", "name": "b"})));
    let told = eventually(|| events(&asked).into_iter().find(|event| event["cause"] == "cancelled"));
    assert!(told.is_some(), "{:?}", events(&asked));
    let again = request(&asking, json!({"type": "stop_cancel", "host": "b"}));
    assert!(again["error"]["message"].as_str().unwrap().contains("b is not asked to stop"), "{again}");
    asking.stop();
    asked.stop();
}

#[test]
fn what_cannot_be_asked_is_refused_with_what_to_do() {
    let namespace = Namespace::with_cable();
    let weftd = host(&namespace, "");
    let error = |asked: Value| request(&weftd, asked)["error"].to_string();
    for asked in [json!({"type": "stop_show"}), json!({"type": "stop_send", "host": "nobody"}), json!({"type": "stop_events"})] {
        let found = error(asked);
        assert!(found.contains("stop control is off on this node") && found.contains("weftctl reload"), "{found}");
    }
    configure(&namespace, "stop: {}");
    let reloaded = request(&weftd, json!({"type": "reload"}));
    assert!(reloaded["result"]["changes"].to_string().contains("stop.ethertype: (absent) -> 0xff10"), "{reloaded}");
    let send_to = |host: &str| error(json!({"type": "stop_send", "host": host}));
    assert!(send_to("nobody").contains("neither a name in hosts"), "{}", send_to("nobody"));
    assert!(send_to("a").contains("a is this node itself"), "{}", send_to("a"));
    let rate = error(json!({"type": "stop_send", "host": "b", "rate": 16}));
    assert!(rate.contains("rate 16 is out of range") && rate.contains("0 to 15"), "{rate}");
    weftd.stop();
}

#[test]
fn a_reload_turns_stop_control_on_and_off_and_forgets_who_stopped_whom() {
    let namespace = Namespace::with_cable();
    let weftd = host(&namespace, "");
    configure(&namespace, "stop: { tick: 1ms, obey: { longest: 60s } }");
    weftd.ask("reload");
    send(&namespace, &[stop_from(B, 255)]);
    event(&weftd, "obeyed");
    weftd.ask("reload");
    assert_eq!(weftd.ask("stop_show")["askers"]["total"], 1, "a reload without a change forgets nothing");
    configure(&namespace, "stop: { tick: 20us }");
    weftd.ask("reload");
    assert_eq!(weftd.ask("stop_show")["askers"]["total"], 0);
    configure(&namespace, "");
    weftd.ask("reload");
    assert!(weftd.refusal("stop_show").to_string().contains("stop control is off"));
    weftd.stop();
}

#[test]
fn a_key_that_everybody_may_read_keeps_the_daemon_from_starting_and_a_reload_from_happening() {
    let namespace = Namespace::with_cable();
    let file = namespace.path("stop.key");
    fs::write(&file, "11".repeat(16)).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    configure(&namespace, &format!("stop: {{ key_file: {} }}", file.display()));
    let output = namespace.weftd(&namespace.path("a.yaml")).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && error.contains("run `chmod o-rwx"), "{error}");
    let weftd = host(&namespace, "");
    configure(&namespace, &format!("stop: {{ key_file: {} }}", file.display()));
    let refusal = weftd.refusal("reload").to_string();
    assert!(refusal.contains("run `chmod o-rwx") && refusal.contains("nothing has changed"), "{refusal}");
    weftd.stop();
}

#[test]
fn a_burst_that_fills_the_link_is_noticed_and_over_when_it_is_silent() {
    let namespace = Namespace::with_cable();
    // A slow link on paper, so that one sender's frames fill it on any machine, and no gap between them is a silence.
    let stop = "stop: { obey: off, detect: { volume: { detect: { bytes: 1kB, period: 1ms, stages: 1 }, resolve: { bytes: 500, period: 200ms, stages: 1 } }, second_sign: { sources: false, delay: off } } }";
    let weftd = host(&namespace, stop);
    // Of the transport's EtherType, from a host that has no connection here.
    let mut frame = raw(A, B, [0, 0, 0], 46);
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    // As many as take several periods; where the machine pauses at the wrong time, again.
    let congested = eventually(|| {
        send(&namespace, &vec![frame.clone(); 800]);
        events(&weftd).into_iter().find(|event| event["event"] == "congested" && event["sources"] == 1)
    });
    assert_eq!(congested.as_ref().map(|event| &event["port"]), Some(&json!("eth0")), "{:?}", events(&weftd));
    assert_eq!(event(&weftd, "asked")["name"], "b");
    assert_eq!(event(&weftd, "resolved")["port"], "eth0");
    assert_eq!(event(&weftd, "cancelled")["name"], "b");
    let port = weftd.ask("stop_show")["ports"][0].clone();
    assert_eq!((&port["port"], &port["volume"], &port["gap"]), (&json!("eth0"), &json!(false), &Value::Null), "{port}");
    weftd.stop();
}
