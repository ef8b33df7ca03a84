//! How many frames the local transport may build now without losing one in a queue of ours.
//!
//! Where the next frame goes is known only once it is built. So the room counted is that of the outputs that the
//! transport uses at the moment. While it uses several, the one with the most room decides: one that is stuck then loses
//! frames of its own (counted as `queue_full`, and sent again later) but does not hold up those to all others.

use weft_proto::switch::Switch;
use weft_proto::wire::eth::{ETH_HEADER, VLAN_HEADER};
use weft_proto::{Duration, Instant, Pool, PortId};

/// An output is in use for so long after a frame of ours waited for it: several breaths, but far less than a time-out of
/// the transport.
const IN_USE: Duration = Duration::from_millis(1);

/// One over this of the buffers are left to those who receive, however many frames wait for whatever reason.
const RESERVE_PARTS: usize = 4;

/// An output that is up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Output {
    pub(super) id: PortId,
    /// Bytes.
    pub(super) mtu: usize,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Budget {
    /// Bytes that a queue of the switch may hold.
    pub(super) voq_limit: u64,
    /// When a frame of ours last waited for each output.
    used_at: Vec<Option<Instant>>,
}

impl Budget {
    pub(super) fn new(voq_limit: u64, outputs: usize) -> Self {
        Self { voq_limit, used_at: vec![None; outputs] }
    }

    /// Notes which outputs frames of `local` wait for, after they were built and before they leave.
    pub(super) fn note_use(&mut self, now: Instant, switch: &Switch, local: PortId) {
        for (index, used_at) in (0..).zip(&mut self.used_at) {
            if switch.queued_from(local, PortId(index)).frames > 0 {
                *used_at = Some(now);
            }
        }
    }

    /// Frames that `local` may build now.
    pub(super) fn frames(
        &self,
        now: Instant,
        pool: &Pool,
        switch: &Switch,
        local: PortId,
        outputs: impl Iterator<Item = Output> + Clone,
    ) -> usize {
        let room = |output| self.room(pool, switch, local, output);
        let used = outputs.clone().filter(|output| self.is_used(now, output.id)).map(room).max();
        let room = used.or_else(|| outputs.map(room).max()).unwrap_or(u64::MAX);
        // What stop control has set aside is in no queue, so it has a limit of its own here.
        let reserve = (pool.available() + pool.in_use()) / RESERVE_PARTS;
        usize::try_from(room).unwrap_or(usize::MAX).min(pool.available() / 2).min(pool.available().saturating_sub(reserve))
    }

    fn is_used(&self, now: Instant, output: PortId) -> bool {
        self.used_at.get(output.index()).copied().flatten().is_some_and(|used_at| now.since(used_at) < IN_USE)
    }

    /// Frames that the queue to one output still admits. It may hold as many as are free besides (see the switch's queues),
    /// so each frame counts twice; that also leaves half of the buffers to those who receive.
    fn room(&self, pool: &Pool, switch: &Switch, local: PortId, output: Output) -> u64 {
        // The transport uses one class.
        let queued = switch.queued_from(local, output.id);
        let longest = (output.mtu + ETH_HEADER + VLAN_HEADER) as u64;
        let by_bytes = self.voq_limit.saturating_sub(queued.bytes) / longest;
        let by_frames = (pool.available() as u64).saturating_sub(queued.frames) / 2;
        by_bytes.min(by_frames)
    }
}

#[cfg(test)]
mod tests {
    use weft_proto::Rng;
    use weft_proto::switch::{PortConfig, PortRole, SwitchConfig};
    use weft_proto::wire::{EtherType, Ethernet, MacAddr};

    use super::*;

    const LOCAL: PortId = PortId(2);
    const OUTPUTS: [Output; 2] = [Output { id: PortId(0), mtu: 982 }, Output { id: PortId(1), mtu: 982 }];

    /// Two host ports and a local transport; queues hold ten frames of a thousand bytes.
    struct Desk {
        pool: Pool,
        switch: Switch,
        budget: Budget,
    }

    fn mac(last: u8) -> MacAddr {
        MacAddr([2, 0, 0, 0, 0, last])
    }

    impl Desk {
        fn new() -> Self {
            let config = SwitchConfig { frames: 256, voq_limit_bytes: 10_000, ..SwitchConfig::default() };
            let ports = [PortRole::Host, PortRole::Host, PortRole::Local].map(PortConfig::new);
            let mut switch = Switch::new(&config, &ports, Rng::from_seed(1));
            for (station, port) in [(0, 0), (1, 1)] {
                switch.set_static(mac(station), PortId(port)).unwrap();
            }
            Self { pool: Pool::new(256, 2048, 0), switch, budget: Budget::new(10_000, 2) }
        }

        fn send(&mut self, now: Instant, station: u8, frames: usize) {
            for _ in 0..frames {
                let frame = self.pool.alloc().unwrap();
                let header = Ethernet { dst: mac(station), src: mac(9), vlan: None, ethertype: EtherType::TRANSPORT };
                header.emit(self.pool.room_mut(&frame)).unwrap();
                self.pool.set_len(&frame, 1000);
                self.switch.ingest(now, &mut self.pool, LOCAL, frame);
            }
            self.budget.note_use(now, &self.switch, LOCAL);
        }

        fn drain(&mut self, now: Instant, output: u16) {
            let mut out = Vec::new();
            self.switch.egress(now, &mut self.pool, PortId(output), 100, &mut out);
            out.into_iter().for_each(|frame| self.pool.free(frame));
        }

        fn frames(&self, now: Instant) -> usize {
            self.budget.frames(now, &self.pool, &self.switch, LOCAL, OUTPUTS.into_iter())
        }
    }

    #[test]
    fn the_only_output_in_use_is_never_overfilled() {
        let mut desk = Desk::new();
        let now = Instant::from_nanos(1);
        assert_eq!(desk.frames(now), 10, "the queue's limit");
        desk.send(now, 0, 7);
        assert_eq!(desk.frames(now), 3, "the idle output has more room, but nobody uses it");
        desk.send(now, 0, 3);
        assert_eq!((desk.frames(now), desk.switch.totals().dropped), (0, 0));
    }

    #[test]
    fn a_full_output_does_not_stall_another_one_in_use() {
        let mut desk = Desk::new();
        let now = Instant::from_nanos(1);
        desk.send(now, 1, 1);
        desk.drain(now, 1);
        desk.send(now, 0, 10);
        assert_eq!(desk.frames(now), 10);
        assert_eq!(desk.frames(now + IN_USE), 10, "no output was used lately");
        desk.send(now + IN_USE, 0, 0);
        assert_eq!(desk.frames(now + IN_USE), 0, "only the full one is still used");
    }

    #[test]
    fn half_of_the_free_buffers_stay_for_those_who_receive() {
        let mut desk = Desk::new();
        desk.budget.voq_limit = 1 << 30;
        assert_eq!(desk.frames(Instant::ZERO), 128);
        let no_output = desk.budget.frames(Instant::ZERO, &desk.pool, &desk.switch, LOCAL, std::iter::empty());
        assert_eq!(no_output, 128, "frames to nobody are dropped by the switch and cost nothing");
    }

    #[test]
    fn a_quarter_of_the_buffers_stays_for_them_whoever_holds_the_others() {
        let mut desk = Desk::new();
        desk.budget.voq_limit = 1 << 30;
        let set_aside: Vec<_> = (0..180).map(|_| desk.pool.alloc().unwrap()).collect();
        assert_eq!(desk.frames(Instant::ZERO), 12);
        let more: Vec<_> = (0..20).map(|_| desk.pool.alloc().unwrap()).collect();
        assert_eq!(desk.frames(Instant::ZERO), 0);
        set_aside.into_iter().chain(more).for_each(|frame| desk.pool.free(frame));
    }
}
