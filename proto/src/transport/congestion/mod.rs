//! Congestion control: how much of its share of the network a queue pair may use.
//!
//! IRN's own bound, [`bdp_cap`](crate::transport::EndpointConfig::bdp_cap), keeps one queue pair from having more in
//! flight than its path holds. It does not keep many queue pairs from meeting at one port. What does is one of these
//! laws, each in a file of its own:
//!
//! | algorithm | signal | controls |
//! | --- | --- | --- |
//! | [`Algorithm::Swift`] | round trips | window, below one packet by pacing |
//! | [`Algorithm::Timely`] | round trips | rate |
//! | [`Algorithm::Dctcp`] | packets marked by switches | window |
//! | [`Algorithm::Dcqcn`] | marks and notifications | rate |
//! | [`Algorithm::Aimd`] | losses | window |
//!
//! A [`Controller`] is told what happens and says how wide the window is and how far packets are apart. A [`Gate`]
//! around it answers the question that streams have: may a packet leave now?

mod aimd;
mod cwnd;
mod dcqcn;
mod dctcp;
mod gate;
mod notifier;
mod swift;
mod timely;
mod units;

pub use gate::{Counts, Gate};
pub use notifier::Notifier;
pub use units::{Share, Window};

use crate::time::{Duration, Instant};
use crate::units::BitRate;
use aimd::Aimd;
use dcqcn::Dcqcn;
use dctcp::Dctcp;
use swift::Swift;
use timely::Timely;

/// Round trips are taken to be at least this: one tick of a [`Timestamp`](crate::time::Timestamp), below which there is no measurement.
const SHORTEST: Duration = Duration::from_nanos(256);
/// Round trips are taken to be at most this, so that nonsense in an acknowledgement has bounded effect.
const LONGEST: Duration = Duration::from_secs(1);
/// The round trip before the first sample: that of two busy daemons.
const FIRST: Duration = Duration::from_millis(1);

/// A congestion control algorithm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// None: the window of IRN alone.
    #[default]
    None,
    /// TIMELY.
    Timely,
    /// DCQCN.
    Dcqcn,
    /// TCP's additive increase and multiplicative decrease.
    Aimd,
    /// DCTCP.
    Dctcp,
    /// Swift.
    Swift,
}

/// Parameters of all algorithms. [`Settings::new`] has the defaults with their sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Which one.
    pub algorithm: Algorithm,
    /// Highest rate, with which the rate-based ones start.
    pub link_rate: BitRate,
    /// Lowest rate of the rate-based ones.
    pub min_rate: BitRate,
    /// Packets with which the window-based ones start.
    pub first_window: u32,
    /// How far the pacer may be behind, and hence its longest burst as time.
    pub burst: Duration,
    /// Swift: queueing delay on top of the smallest round trip that counts as congestion.
    pub queueing_delay: Duration,
    /// Swift: most that the target grows for small windows.
    pub flow_scaling: Duration,
    /// TIMELY: queueing delay up to which the rate always grows.
    pub timely_low: Duration,
    /// TIMELY: queueing delay from which the rate always falls.
    pub timely_high: Duration,
    /// TIMELY: increase per round trip.
    pub timely_step: BitRate,
    /// Shortest time between two notifications of a receiver, and between two decreases of DCQCN.
    pub notification_interval: Duration,
    /// DCQCN: period of the timers.
    pub dcqcn_timer: Duration,
    /// DCQCN: bytes after which the rate rises.
    pub dcqcn_bytes: u64,
    /// DCQCN: additive increase.
    pub dcqcn_step: BitRate,
    /// DCQCN: hyper increase.
    pub dcqcn_hyper_step: BitRate,
}

impl Settings {
    /// An algorithm with the usual parameters, on a link of this rate.
    pub const fn new(algorithm: Algorithm, link_rate: BitRate) -> Self {
        Self {
            algorithm,
            link_rate,
            // A full frame per 1.2 ms, one busy round trip; the papers' 100 Mbit/s times 64 senders would fill a port of 6.4 Gbit/s.
            min_rate: BitRate::megabits(10),
            // RFC 6928.
            first_window: 10,
            // The kernel's usual timer slack (prctl(2), PR_SET_TIMERSLACK).
            burst: Duration::from_micros(50),
            // Four idle round trips of two daemons on AF_PACKET; 250 kB at 10 Gbit/s, a quarter of a virtual output queue.
            queueing_delay: Duration::from_micros(200),
            // Half of that; the paper leaves it open ("fs_range").
            flow_scaling: Duration::from_micros(100),
            // The paper's 50 us are 2.5 of its round trips of 20 us; ours are 50 us at least. As Swift's.
            timely_low: Duration::from_micros(200),
            // The round trip of two busy daemons. The paper has ten times the low one.
            timely_high: Duration::from_millis(1),
            // As eRPC: 5 MB/s.
            timely_step: BitRate::megabits(40),
            // These four: Zhu et al. 2015, section 5 and 6.
            notification_interval: Duration::from_micros(50),
            dcqcn_timer: Duration::from_micros(55),
            dcqcn_bytes: 10_000_000,
            dcqcn_step: BitRate::megabits(40),
            // Ten times the step, as NVIDIA's defaults of 5 and 50 Mbit/s.
            dcqcn_hyper_step: BitRate::megabits(400),
        }
    }

    fn first_window(&self) -> Window {
        Window::packets(self.first_window)
    }
}

/// What an acknowledgement says about the path.
#[derive(Clone, Copy, Debug)]
pub struct Report {
    /// When it arrived.
    pub now: Instant,
    /// Packets newly known to have arrived.
    pub delivered: u32,
    /// Packets still in flight and not known to have arrived.
    pub outstanding: u32,
    /// Packets newly known to have arrived marked by a switch.
    pub marked: u32,
    /// The round trip that it measures.
    pub rtt: Option<Duration>,
}

/// How a queue pair is held back, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// The window, if it has one.
    pub window: Option<Window>,
    /// The rate, if it has one.
    pub rate: Option<BitRate>,
}

#[derive(Clone, Copy, Debug)]
enum Law {
    None,
    Timely(Timely),
    Dcqcn(Dcqcn),
    Aimd(Aimd),
    Dctcp(Dctcp),
    Swift(Swift),
}

/// The congestion controller of one queue pair.
#[derive(Clone, Copy, Debug)]
pub struct Controller {
    law: Law,
    /// The last round trip measured.
    rtt: Duration,
}

impl Controller {
    /// A controller for a queue pair with at most `cap` packets in flight.
    pub fn new(settings: &Settings, cap: u32) -> Self {
        let cap = Window::packets(cap);
        let law = match settings.algorithm {
            Algorithm::None => Law::None,
            Algorithm::Timely => Law::Timely(Timely::new(settings)),
            Algorithm::Dcqcn => Law::Dcqcn(Dcqcn::new(settings)),
            Algorithm::Aimd => Law::Aimd(Aimd::new(settings, cap)),
            Algorithm::Dctcp => Law::Dctcp(Dctcp::new(settings, cap)),
            Algorithm::Swift => Law::Swift(Swift::new(settings, cap)),
        };
        Self { law, rtt: FIRST }
    }

    /// True if it holds nothing back, ever.
    pub const fn is_open(&self) -> bool {
        matches!(self.law, Law::None)
    }

    // ---- events; each returns true if it made us slower

    /// An acknowledgement arrived.
    pub fn on_ack(&mut self, mut report: Report) -> bool {
        report.rtt = report.rtt.map(|rtt| rtt.clamp(SHORTEST, LONGEST));
        self.rtt = report.rtt.unwrap_or(self.rtt);
        match &mut self.law {
            Law::None => false,
            Law::Timely(timely) => timely.on_ack(&report),
            // Marks count also if the notification that told of them was lost.
            Law::Dcqcn(dcqcn) => report.marked > 0 && dcqcn.on_notification(report.now),
            Law::Aimd(aimd) => {
                aimd.on_ack(&report);
                false
            }
            Law::Dctcp(dctcp) => dctcp.on_ack(&report, self.rtt),
            Law::Swift(swift) => swift.on_ack(&report),
        }
    }

    /// A packet was lost. Counts at most once per round trip; for the rate-based algorithms, which were made for networks
    /// without losses, not at all.
    pub fn on_loss(&mut self, now: Instant) -> bool {
        match &mut self.law {
            Law::None | Law::Timely(_) | Law::Dcqcn(_) => false,
            Law::Aimd(aimd) => aimd.on_loss(now, self.rtt),
            Law::Dctcp(dctcp) => dctcp.on_loss(now, self.rtt),
            Law::Swift(swift) => swift.on_loss(now, self.rtt),
        }
    }

    /// Nothing was heard for the retransmission time-out.
    pub fn on_timeout(&mut self, now: Instant) -> bool {
        match &mut self.law {
            Law::None => return false,
            Law::Timely(timely) => return timely.on_timeout(now, self.rtt),
            Law::Dcqcn(dcqcn) => return dcqcn.on_notification(now),
            Law::Aimd(aimd) => aimd.on_timeout(now),
            Law::Dctcp(dctcp) => dctcp.on_timeout(now),
            Law::Swift(swift) => swift.on_timeout(now, self.rtt),
        }
        true
    }

    /// The peer sent a congestion notification.
    pub fn on_notification(&mut self, now: Instant) -> bool {
        if let Law::Dcqcn(dcqcn) = &mut self.law { dcqcn.on_notification(now) } else { false }
    }

    /// A packet of `bytes` bytes leaves, for the first time or `again`. Returns the time until the next may.
    pub fn on_sent(&mut self, now: Instant, bytes: u64, again: bool) -> Duration {
        if let Law::Dcqcn(dcqcn) = &mut self.law {
            dcqcn.on_sent(now, bytes);
        }
        match (self.window(), self.rate()) {
            (Some(window), _) if again || window < Window::ONE => window.spacing(self.rtt),
            (None, Some(rate)) => rate.time_for(bytes),
            _ => Duration::ZERO,
        }
    }

    // ---- outputs

    /// How many packets may be outstanding; `None` = the algorithm does not bound them.
    pub const fn window(&self) -> Option<Window> {
        match &self.law {
            Law::None | Law::Timely(_) | Law::Dcqcn(_) => None,
            Law::Aimd(aimd) => Some(aimd.cwnd.get()),
            Law::Dctcp(dctcp) => Some(dctcp.cwnd.get()),
            Law::Swift(swift) => Some(swift.cwnd.get()),
        }
    }

    /// The rate at which packets leave; `None` = the algorithm does not bound it.
    pub fn rate(&self) -> Option<BitRate> {
        match &self.law {
            Law::Timely(timely) => timely.rate.get(),
            Law::Dcqcn(dcqcn) => dcqcn.rate.get(),
            _ => None,
        }
    }

    /// Longest time between packets that the window as it is now can ask for.
    fn longest_spacing(&self) -> Duration {
        self.window().map_or(Duration::MAX, |window| window.spacing(self.rtt))
    }

    fn algorithm(&self) -> Algorithm {
        match &self.law {
            Law::None => Algorithm::None,
            Law::Timely(_) => Algorithm::Timely,
            Law::Dcqcn(_) => Algorithm::Dcqcn,
            Law::Aimd(_) => Algorithm::Aimd,
            Law::Dctcp(_) => Algorithm::Dctcp,
            Law::Swift(_) => Algorithm::Swift,
        }
    }

    fn view(&self) -> Option<View> {
        (!self.is_open()).then(|| View { algorithm: self.algorithm(), window: self.window(), rate: self.rate() })
    }
}

#[cfg(test)]
mod tests;
