//! Frames through a host port, in and out, with and without stop control.

use weft_proto::stop::config::{Counting, Criterion, Detector, ObeyConfig, WatchConfig};
use weft_proto::stop::{CONTROL_PRIORITY, StopConfig};
use weft_proto::switch::{PortConfig, PortRole, Switch, SwitchConfig};
use weft_proto::wire::{EtherType, Ethernet, MacAddr, StopMessage};
use weft_proto::{BitRate, Duration, FrameRef, Instant, Pool, PortId, Rng};

use crate::Cost;

const LOCAL: PortId = PortId(0);
const LINK: PortId = PortId(1);
const BATCH: u32 = 64;
const FRAME: usize = 1514;
const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0xff, 0xff]);

/// What stop control has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stops {
    /// It is off.
    Off,
    /// It watches; nobody stops anybody.
    Idle,
    /// One of 64 hosts stops us all the time, by a packet per batch; the others are sent to.
    Busy,
}

/// A host that receives from 64 others as much as it sends to them.
#[derive(Debug)]
pub struct HostPort {
    stops: Stops,
    now: Instant,
    pool: Pool,
    switch: Switch,
    out: Vec<FrameRef>,
    turn: u32,
}

impl HostPort {
    /// A host that has heard all others.
    ///
    /// # Panics
    /// If an empty table has no room for one address.
    pub fn new(stops: Stops) -> Self {
        let config = SwitchConfig { frames: 1024, ..SwitchConfig::default() };
        let ports = [PortRole::Local, PortRole::Host].map(PortConfig::new);
        let mut switch = Switch::new(&config, &ports, Rng::from_seed(1));
        switch.set_static(MAC, LOCAL).expect("an empty table");
        switch.set_stop((stops != Stops::Off).then(stop_config));
        let (pool, out) = (Pool::new(1024, 2048, 64), Vec::with_capacity(2 * BATCH as usize));
        let mut host = Self { stops, now: Instant::from_nanos(1_000_000_000), pool, switch, out, turn: 0 };
        host.run(64 * 64, &mut Cost::default());
        host
    }

    /// Moves about `frames` frames, a batch at a time.
    pub fn run(&mut self, frames: u64, cost: &mut Cost) {
        while cost.frames < frames {
            cost.measure(|| self.batch());
            // Half of what a link of 100 Gbit/s carries.
            self.now += Duration::from_micros(16);
        }
    }

    fn batch(&mut self) -> u64 {
        if self.stops == Stops::Busy {
            self.receive_stop();
        }
        for _ in 0..BATCH {
            self.turn = self.turn.wrapping_add(1);
            self.pass(LINK, station(self.turn), MAC);
            self.pass(LOCAL, MAC, station(1 + self.turn % 63));
        }
        self.switch.handle_timeout(self.now, &mut self.pool);
        self.switch.handle_quiet(self.now, LINK);
        for port in [LOCAL, LINK] {
            self.switch.egress(self.now, &mut self.pool, port, BATCH as usize, &mut self.out);
        }
        let moved = self.out.len() as u64;
        self.out.drain(..).for_each(|frame| self.pool.free(frame));
        moved
    }

    fn pass(&mut self, port: PortId, src: MacAddr, dst: MacAddr) {
        let Some(frame) = self.pool.alloc() else { return };
        self.pool.set_len(&frame, FRAME);
        let header = Ethernet { dst, src, vlan: None, ethertype: EtherType::TRANSPORT };
        header.emit(self.pool.bytes_mut(&frame));
        self.switch.ingest(self.now, &mut self.pool, port, frame);
    }

    fn receive_stop(&mut self) {
        let Some(frame) = self.pool.alloc() else { return };
        let header = Ethernet { dst: MAC, src: station(0), vlan: None, ethertype: EtherType::STOP };
        let message = StopMessage::Stop { priority: CONTROL_PRIORITY, timer: 200, rate: 0 };
        let len = message.emit_frame(self.pool.room_mut(&frame), &header, None).unwrap_or(0);
        self.pool.set_len(&frame, len);
        self.switch.ingest(self.now, &mut self.pool, LINK, frame);
    }
}

fn station(turn: u32) -> MacAddr {
    let [.., low] = (turn % 64).to_be_bytes();
    MacAddr([2, 0, 0, 0, 0, low])
}

/// As a daemon on a link of 100 Gbit/s has it, but for the limits, which nobody reaches.
fn stop_config() -> StopConfig {
    let criterion = |threshold| Criterion { threshold, period: Duration::from_micros(200), stages: 2 };
    let detector = Detector { detect: criterion(2_000_000), resolve: criterion(1_000_000) };
    StopConfig {
        obey: Some(ObeyConfig { longest: Duration::from_secs(3600), budget_permille: 1000, ..ObeyConfig::new() }),
        watch: Some(WatchConfig::of_volume(detector, Counting::Wire)),
        ..StopConfig::new(MAC, BitRate::megabits(100_000))
    }
}
