//! Watching one receiving port: detectors, what must be seen besides, and who contributes.

mod hold;
mod interval;
mod sources;
mod volume;

use interval::{GapDetector, LowDetector};
use sources::Sources;
use volume::VolumeDetector;

use crate::rng::Rng;
use crate::stop::config::{Combine, Criterion, SecondSign, StopConfig, WatchConfig};
use crate::stop::station::Arrival;
use crate::stop::view::WatchView;
use crate::time::{Duration, Instant, earliest};
use crate::units::PortId;
use crate::wire::MacAddr;

/// What the owner of a watch has to do something about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// The port is congested now.
    Congested,
    /// It still is; time to look for those who contribute meanwhile. `renewed`: the signs arose again.
    Persists { renewed: bool },
    /// The signs are over.
    Resolved,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Watch {
    port: PortId,
    combine: Combine,
    second_sign: SecondSign,
    volume: Option<VolumeDetector>,
    gap: Option<GapDetector>,
    delimiter: Option<(LowDetector, Instant)>,
    sources: Sources,
    /// How often the second sign and those who contribute are looked at.
    look_every: Duration,
    look_at: Instant,
    congested_since: Option<Instant>,
    /// Looks in a row without a second sign.
    alone: u32,
    congestions: u64,
}

/// A congested port at which only one host is left that sends, without growing delay, for so many looks in a row is full and no
/// more: whoever was slowed down together with others must not stay so alone. Many, because of those who were stopped nothing
/// is heard while the queue of the last one drains: 32 looks of 8 full frames are 400 kB.
const ALONE_LOOKS: u32 = 32;

impl Watch {
    pub(super) fn new(port: PortId, config: &StopConfig, watch: &WatchConfig, rng: &mut Rng) -> Self {
        let criteria = [watch.volume.map(|volume| volume.detector), watch.gap.map(|gap| gap.detector), watch.delimiter];
        let detect = criteria.into_iter().flatten().map(|detector| detector.detect);
        let arise = |criterion: Criterion| criterion.period.saturating_mul(u64::from(criterion.stages.max(1)));
        // Within this time the signs arise, so those who make them are heard in it.
        let look_every = detect.map(arise).max().unwrap_or(Duration::from_millis(1));
        Self {
            port,
            combine: watch.combine,
            second_sign: watch.second_sign,
            volume: watch.volume.as_ref().map(VolumeDetector::new),
            gap: watch.gap.as_ref().map(|gap| GapDetector::new(gap, config.line_rate)),
            delimiter: watch.delimiter.as_ref().map(|delimiter| (LowDetector::new(delimiter), Instant::ZERO)),
            sources: Sources::new(config.table_size as usize, look_every, rng),
            look_every,
            look_at: Instant::ZERO,
            congested_since: None,
            alone: 0,
            congestions: 0,
        }
    }

    /// A frame came in.
    pub(super) fn handle_frame(&mut self, arrival: &Arrival) -> Option<Change> {
        let Arrival { at, source, bytes, for_us, .. } = *arrival;
        if let Some(volume) = &mut self.volume {
            volume.handle_frame(at, bytes);
        }
        if let Some(gap) = &mut self.gap {
            gap.handle_frame(at, bytes);
        }
        if let (Some((delimiter, last)), Some(octets)) = (&mut self.delimiter, arrival.preamble) {
            let before = core::mem::replace(last, at);
            delimiter.observe(if before == Instant::ZERO { at } else { before }, at, i64::from(octets));
        }
        if for_us {
            self.sources.note(at, source, bytes, arrival.sent);
        }
        self.look(at)
    }

    /// Nothing more came in until `now`.
    pub(super) fn handle_quiet(&mut self, now: Instant) -> Option<Change> {
        if let Some(volume) = &mut self.volume {
            volume.handle_quiet(now);
        }
        if let Some(gap) = &mut self.gap {
            gap.handle_quiet(now);
        }
        if let Some((delimiter, last)) = &mut self.delimiter
            && delimiter.sign()
        {
            // Silence is the longest of all delimiters.
            delimiter.observe(*last, now, i64::MAX);
        }
        self.sources.advance(now);
        self.look(now)
    }

    /// When [`Self::handle_quiet`] might change something, if nothing comes in.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let volume = self.volume.as_ref().and_then(VolumeDetector::poll_timeout);
        let gap = self.gap.as_ref().and_then(GapDetector::poll_timeout);
        let delimiter = self.delimiter.as_ref().and_then(|(delimiter, last)| delimiter.ends_at(*last));
        earliest(earliest(volume, gap), delimiter)
    }

    /// Those who contribute.
    pub(super) fn contributing(&self) -> impl Iterator<Item = MacAddr> + '_ {
        self.sources.contributing()
    }

    /// Times that the port became congested.
    pub(super) const fn congestions(&self) -> u64 {
        self.congestions
    }

    pub(super) fn view(&self) -> WatchView {
        WatchView {
            port: self.port,
            congested_since: self.congested_since,
            signs: self.signs(),
            sources: u32::try_from(self.contributing().count()).unwrap_or(u32::MAX),
            congestions: self.congestions,
        }
    }

    fn signs(&self) -> [Option<bool>; 3] {
        [
            self.volume.as_ref().map(VolumeDetector::sign),
            self.gap.as_ref().map(GapDetector::sign),
            self.delimiter.as_ref().map(|(delimiter, _)| delimiter.sign()),
        ]
    }

    fn is_full(&self) -> bool {
        let signs = self.signs();
        let any = signs.contains(&Some(true));
        match self.combine {
            Combine::Any => any,
            Combine::All => any && !signs.contains(&Some(false)),
        }
    }

    fn look(&mut self, at: Instant) -> Option<Change> {
        let full = self.is_full();
        match self.congested_since {
            None if full && at >= self.look_at => {
                self.look_at = at + self.look_every;
                self.has_second_sign().then(|| {
                    self.congested_since = Some(at);
                    self.alone = 0;
                    self.congestions += 1;
                    Change::Congested
                })
            }
            None => None,
            Some(_) if !full => {
                self.congested_since = None;
                self.look_at = at;
                Some(Change::Resolved)
            }
            Some(_) if at >= self.look_at => {
                self.look_at = at + self.look_every;
                self.alone = if self.has_second_sign() { 0 } else { self.alone + 1 };
                if self.alone >= ALONE_LOOKS {
                    self.congested_since = None;
                    return Some(Change::Resolved);
                }
                let renewed = self.volume.as_mut().is_some_and(VolumeDetector::take_renewed);
                Some(Change::Persists { renewed })
            }
            Some(_) => None,
        }
    }

    fn has_second_sign(&self) -> bool {
        let SecondSign { sources, delay } = self.second_sign;
        let several = sources && self.contributing().nth(1).is_some();
        let slower = delay.is_some_and(|delay| self.sources.growth() >= delay);
        !sources && delay.is_none() || several || slower
    }
}
