//! A real PAUSE frame on a cable stops a port of `weftd`, and one of time zero lets it go.

#[allow(unreachable_pub, reason = "shared by test binaries")]
mod support;

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use serde_json::{Value, json};
use support::network::{create_pair, set_up};
use support::{in_namespace, until};
use weft_daemon::port::{Backend, HEADROOM, Port, PortCounters, PortSpec, Role, TxOutcome, required_chunk};
use weft_proto::wire::{EtherType, Ethernet, MacAddr, MacControl};
use weft_proto::{FrameRef, Pool};

const LEFT: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const RIGHT: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);

/// The far end of a cable.
struct Station {
    port: Port,
    pool: Pool,
    counters: PortCounters,
}

impl Station {
    fn open(interface: &str) -> Self {
        let (name, interface) = (interface.to_owned(), interface.to_owned());
        let spec = PortSpec { name, interface, role: Role::Switch, backend: Backend::Packet, ethertypes: vec![], batch: 64 };
        let pool = Pool::new(256, required_chunk(Role::Switch, 1500), HEADROOM);
        Self { port: Port::open(&spec).unwrap(), pool, counters: PortCounters::default() }
    }

    fn send(&mut self, bytes: &[u8]) {
        let frame = self.pool.alloc().unwrap();
        self.pool.room_mut(&frame)[..bytes.len()].copy_from_slice(bytes);
        self.pool.set_len(&frame, bytes.len());
        let mut queue = VecDeque::from([frame]);
        assert_eq!(self.port.tx(&mut self.pool, &mut queue, &mut self.counters), TxOutcome::Drained);
    }

    fn data(&mut self, src: MacAddr, dst: MacAddr) {
        let mut frame = [0; 60];
        Ethernet { dst, src, vlan: None, ethertype: EtherType::TRANSPORT }.emit(&mut frame).unwrap();
        self.send(&frame);
    }

    /// How many of the stations' frames have come since the last call.
    fn received(&mut self) -> usize {
        let mut out: Vec<FrameRef> = Vec::new();
        let _ = self.port.rx(&mut self.pool, &mut out, 64, &mut self.counters);
        let ours = |frame: &FrameRef| Ethernet::parse(self.pool.bytes(frame)).is_ok_and(|(header, _)| [LEFT, RIGHT].contains(&header.src));
        let count = out.iter().filter(|frame| ours(frame)).count();
        out.into_iter().for_each(|frame| self.pool.free(frame));
        count
    }
}

/// A running daemon; killed with this value.
struct Weftd {
    child: Child,
    control: PathBuf,
}

impl Weftd {
    fn start(folder: &Path) -> Self {
        let (file, control) = (folder.join("s.yaml"), folder.join("s.sock"));
        // At 1 Mbit/s the longest pause lasts 33 s: nothing here ends by itself.
        let port = |side: &str| format!("  - {{ name: {side}, interface: {side}, role: switch, rate: 1Mbit, flow_control: pause }}\n");
        let text = format!(
            "version: 1\nnode: s\ncontrol: {{ socket: {} }}\napplications: {{ socket: {} }}\nmetrics: {{ enabled: false }}\n\
             ports:\n{}{}switch: {{ flow_control: {{ watchdog: 60s }} }}\n",
            control.display(),
            folder.join("s.app").display(),
            port("left"),
            port("right")
        );
        std::fs::write(&file, text).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_weftd")).arg("--config").arg(file).spawn().unwrap();
        let weftd = Self { child, control };
        until("the daemon's socket", || UnixStream::connect(&weftd.control).ok());
        weftd
    }

    /// What the daemon says of a port, once it fits.
    fn port(&self, index: usize, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
        until(what, || {
            let port = self.ask("ports")["items"][index].clone();
            fits(&port).then_some(port)
        })
    }

    fn ask(&self, kind: &str) -> Value {
        let mut stream = UnixStream::connect(&self.control).unwrap();
        writeln!(stream, "{}", json!({"version": 1, "id": 1, "request": {"type": kind}})).unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        serde_json::from_str::<Value>(&line).unwrap()["result"].clone()
    }
}

impl Drop for Weftd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_pause_frame_from_the_cable_stops_a_port_until_it_is_let_go() {
    in_namespace("a_pause_frame_from_the_cable_stops_a_port_until_it_is_let_go", || {
        create_pair("left", "a", None);
        create_pair("right", "b", None);
        set_up(&["left", "a", "right", "b"]);
        let folder = tempfile::tempdir().unwrap();
        let weftd = Weftd::start(folder.path());
        let (mut a, mut b) = (Station::open("a"), Station::open("b"));
        for (index, side) in ["left", "right"].iter().enumerate() {
            weftd.port(index, &format!("{side} is up"), |port| port["up"] == true);
        }
        // Both become known, so that nothing is flooded.
        b.data(RIGHT, LEFT);
        until("a frame to the left", || (a.received() == 1).then_some(()));
        a.data(LEFT, RIGHT);
        until("a frame to the right", || (b.received() == 1).then_some(()));

        b.send(&MacControl::Pause { time: u16::MAX }.emit(RIGHT));
        let port = weftd.port(1, "the PAUSE frame is counted", |port| port["flow"]["received"] == 1);
        assert_eq!(port["flow_control"], "pause");
        let sent = port["counters"]["tx_frames"].as_u64().unwrap();
        (0..5).for_each(|_| a.data(LEFT, RIGHT));
        b.data(RIGHT, LEFT);
        until("the other direction goes on", || (a.received() == 1).then_some(()));
        until("the frames wait", || (weftd.ask("counters")["queued_frames"] == 5).then_some(()));
        let port = weftd.port(1, "its silence is counted", |port| port["flow"]["paused_us"].as_u64() > Some(0));
        assert_eq!((port["counters"]["tx_frames"].as_u64(), b.received()), (Some(sent), 0));

        b.send(&MacControl::Pause { time: 0 }.emit(RIGHT));
        let mut arrived = 0;
        until("the frames that waited", || {
            arrived += b.received();
            (arrived == 5).then_some(())
        });
        let port = weftd.port(1, "both requests are counted", |port| port["flow"]["received"] == 2);
        assert_eq!(port["flow"]["watchdog_trips"], 0);
    });
}
