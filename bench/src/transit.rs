//! Frames through the switch: ingest on one port, egress on another.

use weft_proto::switch::{PortConfig, PortRole, Switch, SwitchConfig};
use weft_proto::wire::{EtherType, Ethernet, MacAddr};
use weft_proto::{Duration, FrameRef, Instant, Pool, PortId, Rng};

use crate::Cost;

const BATCH: u32 = 64;
const FRAME: usize = 1514;

/// A switch with eight ports and 64 stations on each.
#[derive(Debug)]
pub struct Transit {
    now: Instant,
    pool: Pool,
    switch: Switch,
    out: Vec<FrameRef>,
    turn: u32,
}

impl Transit {
    /// A switch that has learnt all its stations.
    pub fn new() -> Self {
        let ports: Vec<_> = (0..8).map(|_| PortConfig::new(PortRole::Switch)).collect();
        let config = SwitchConfig { frames: 1024, ..SwitchConfig::default() };
        let mut transit = Self {
            now: Instant::from_nanos(1),
            pool: Pool::new(1024, 2048, 64),
            switch: Switch::new(&config, &ports, Rng::from_seed(1)),
            out: Vec::with_capacity(BATCH as usize),
            turn: 0,
        };
        transit.run(8 * 64 * 8, &mut Cost::default());
        transit
    }

    /// Moves about `frames` frames, a batch at a time.
    pub fn run(&mut self, frames: u64, cost: &mut Cost) {
        while cost.frames < frames {
            cost.measure(|| self.batch());
            self.now += Duration::from_micros(10);
        }
    }

    fn batch(&mut self) -> u64 {
        for _ in 0..BATCH {
            self.turn = self.turn.wrapping_add(1);
            let Some(frame) = self.frame(self.turn) else { break };
            self.switch.ingest(self.now, &mut self.pool, port_of(self.turn), frame);
        }
        let mut moved = 0;
        for port in 0..8 {
            self.switch.egress(self.now, &mut self.pool, PortId(port), BATCH as usize, &mut self.out);
            moved += self.out.len() as u64;
            self.out.drain(..).for_each(|frame| self.pool.free(frame));
        }
        moved
    }

    fn frame(&mut self, turn: u32) -> Option<FrameRef> {
        let frame = self.pool.alloc()?;
        self.pool.set_len(&frame, FRAME);
        let header = Ethernet {
            dst: station(turn.wrapping_mul(7).wrapping_add(1)),
            src: station(turn),
            vlan: None,
            ethertype: EtherType::TRANSPORT,
        };
        header.emit(self.pool.bytes_mut(&frame));
        Some(frame)
    }
}

impl Default for Transit {
    fn default() -> Self {
        Self::new()
    }
}

fn port_of(turn: u32) -> PortId {
    PortId(u16::try_from(turn % 8).unwrap_or(0))
}

/// Station `turn mod 512`; its port is `turn mod 8`.
fn station(turn: u32) -> MacAddr {
    let [.., high, low] = (turn % 512).to_be_bytes();
    MacAddr([2, 0, 0, 0, high, low])
}
