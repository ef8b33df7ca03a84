//! Hosts of a world that ask each other to stop, slow down, and go on.
//!
//! Drawn from a generator of their own, so that everything else in the world of a seed is as it would be without them.

use weft_proto::stop::config::{ObeyConfig, Presets, PriorityRule, RateRule};
use weft_proto::stop::{PRIORITIES, Station, StopConfig};
use weft_proto::wire::{EtherType, Ethernet, StopMessage};
use weft_proto::{Duration, Instant, Rng};

use crate::scenario::{Scenario, one_of, span};
use crate::world::World;

const ETHERTYPE: EtherType = EtherType(0xff10);
const TICK: Duration = Duration::from_micros(100);
/// Longest stop of data, in ticks.
const LONG: u64 = 40;
/// Longest stop of everything: a peer that gets no answer counts its retries meanwhile, and must not run out of them.
const SHORT: u64 = 2;

/// Who says what to whom, and when.
#[derive(Clone, Copy, Debug)]
struct Said {
    at: Instant,
    from: usize,
    to: usize,
    message: StopMessage,
}

/// What is going to be said.
#[derive(Debug)]
pub(crate) struct Stops {
    rng: Rng,
    rule: PriorityRule,
    planned: Vec<Said>,
}

impl Stops {
    pub(crate) fn draw(scenario: &Scenario, start: Instant) -> Self {
        let mut rng = Rng::from_seed(scenario.seed ^ 0x5709_5709_5709_5709);
        let rule = one_of(&mut rng, &[PriorityRule::Packet, PriorityRule::Packet, PriorityRule::Selector, PriorityRule::None]);
        let mut stops = Self { rng, rule, planned: Vec::new() };
        for _ in 0..one_of(&mut stops.rng, &[0, 5, 40]) {
            let at = start + span(&mut stops.rng, Duration::ZERO, scenario.faults_end);
            let [from, to] = [0; 2].map(|_| stops.below(scenario.hosts as u64)).map(usize::from);
            let message = stops.message();
            stops.planned.extend((from != to).then_some(Said { at, from, to, message }));
        }
        stops
    }

    fn below(&mut self, bound: u64) -> u8 {
        u8::try_from(self.rng.below(bound)).unwrap_or(0)
    }

    fn message(&mut self) -> StopMessage {
        if self.below(4) == 0 {
            return StopMessage::Cancel;
        }
        let priority = self.below(u64::from(PRIORITIES));
        let everything = match self.rule {
            PriorityRule::None => true,
            PriorityRule::Selector => priority >> 2 == 3,
            PriorityRule::Packet | PriorityRule::Local => false,
        };
        let timer = 1 + self.below(if everything { SHORT } else { LONG });
        StopMessage::Stop { priority, timer, rate: one_of(&mut self.rng, &[0, 0, 1, 8]) }
    }

    /// The priority of a new queue pair.
    pub(crate) fn priority(&mut self) -> Option<u8> {
        (self.below(4) > 0).then(|| self.below(u64::from(PRIORITIES)))
    }

    /// When something is said next.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.planned.iter().map(|said| said.at).min()
    }

    /// Nobody says anything any more.
    pub(crate) fn end(&mut self) {
        self.planned.clear();
    }

    /// Stop control of a host.
    pub(crate) fn station(&mut self, scenario: &Scenario, host: usize) -> Station {
        let obey = ObeyConfig {
            priority_rule: self.rule,
            presets: Presets { timer: 1, priority: 8 },
            resume_jitter: one_of(&mut self.rng, &[Duration::ZERO, Duration::from_micros(20)]),
            longest: Duration::from_millis(5),
            budget_permille: 500,
            forgive_after: Duration::from_millis(1),
            ..ObeyConfig::new()
        };
        let config = StopConfig {
            ethertype: ETHERTYPE,
            tick: TICK,
            rate_rule: one_of(&mut self.rng, &[RateRule::Absolute, RateRule::Function, RateRule::Halving]),
            table_size: 4,
            obey: Some(obey),
            ..StopConfig::new(Scenario::mac(host), scenario.cable_rate)
        };
        Station::new(config, &[], self.rng.fork())
    }
}

impl World {
    /// Lets be said what is due.
    pub(crate) fn say_stops(&mut self) {
        let now = self.now;
        for said in self.stops.planned.extract_if(.., |said| said.at <= now) {
            let header = Ethernet { dst: Scenario::mac(said.to), src: Scenario::mac(said.from), vlan: None, ethertype: ETHERTYPE };
            // One that is refused, because its sender has asked for too much, changes nothing.
            let _ = self.hosts[said.to].station.handle_control(now, now, &header, &said.message.emit());
        }
    }
}
