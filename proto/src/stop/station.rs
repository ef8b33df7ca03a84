//! Stop control of one host: what its ports receive, whom it asks, whom it obeys.

use alloc::vec::Vec;

use crate::drops::{DropCounts, DropReason};
use crate::rng::Rng;
use crate::stop::ask::{Asking, Cause, Packet};
use crate::stop::config::{Request, StopConfig, Targets};
use crate::stop::journal::Journal;
use crate::stop::obey::Obedience;
use crate::stop::view::{AskedView, StopCounters, StopEvent, WatchView};
use crate::stop::watch::{Change, Watch};
use crate::time::{Instant, Timestamp, earliest};
use crate::units::PortId;
use crate::wire::stop::sequence_of;
use crate::wire::{Ethernet, MacAddr, StopMessage, VlanTag};

/// A frame as a watch sees it.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// When it arrived, as exactly as is known.
    pub at: Instant,
    /// Who sent it.
    pub source: MacAddr,
    /// Its bytes without FCS.
    pub bytes: u64,
    /// It is addressed to this host, so that its source can be asked to stop.
    pub for_us: bool,
    /// Octets of its preamble, where the link reports them.
    pub preamble: Option<u8>,
    /// What the sender's clock showed, for packets of the transport, if anybody [reads](Station::reads_clocks) it.
    pub sent: Option<Timestamp>,
}

/// See the module.
#[derive(Debug)]
pub struct Station {
    config: StopConfig,
    watches: Vec<Option<Watch>>,
    asking: Asking,
    obedience: Option<Obedience>,
    journal: Journal,
    refused: DropCounts,
    sequence: u64,
}

impl Station {
    /// Stop control for a host whose ports `watched` receive what is meant for it.
    pub fn new(config: StopConfig, watched: &[PortId], mut rng: Rng) -> Self {
        let ports = watched.iter().map(|port| port.index() + 1).max().unwrap_or(0);
        let mut watches: Vec<_> = (0..ports).map(|_| None).collect();
        if let Some(watch) = &config.watch {
            for port in watched {
                watches[port.index()] = Some(Watch::new(*port, &config, watch, &mut rng));
            }
        }
        let obedience = config.obey.as_ref().map(|obey| Obedience::new(&config, obey, rng.fork()));
        Self {
            watches,
            asking: Asking::new(&config, &mut rng),
            obedience,
            journal: Journal::new(),
            refused: DropCounts::default(),
            // A restarted host goes on above the numbers of its earlier life, if it sends fewer than 2^20 packets a millisecond.
            sequence: config.started << 20,
            config,
        }
    }

    /// What it was told.
    pub const fn config(&self) -> &StopConfig {
        &self.config
    }

    // ---- frames in

    /// True if it matters what the clocks of senders showed.
    pub fn reads_clocks(&self) -> bool {
        self.config.watch.is_some_and(|watch| watch.second_sign.delay.is_some())
    }

    /// True if frames that come in through a port are watched.
    pub fn is_watched(&self, port: PortId) -> bool {
        self.watches.get(port.index()).is_some_and(Option::is_some)
    }

    /// A frame came in through a port.
    pub fn observe(&mut self, port: PortId, arrival: &Arrival) {
        let Some(Some(watch)) = self.watches.get_mut(port.index()) else { return };
        if let Some(change) = watch.handle_frame(arrival) {
            self.handle_change(arrival.at, port, change);
        }
    }

    /// Nothing more came in through a port until `now`.
    pub fn handle_quiet(&mut self, now: Instant, port: PortId) {
        let Some(Some(watch)) = self.watches.get_mut(port.index()) else { return };
        if let Some(change) = watch.handle_quiet(now) {
            self.handle_change(now, port, change);
        }
    }

    /// True if a frame is a control packet for this host.
    pub fn is_control(&self, header: &Ethernet) -> bool {
        header.ethertype == self.config.ethertype && (header.dst == self.config.mac || header.dst.is_group())
    }

    /// A control packet came in at `arrived`.
    ///
    /// # Errors
    /// Why it changed nothing; it is counted.
    pub fn handle_control(&mut self, now: Instant, arrived: Instant, header: &Ethernet, payload: &[u8]) -> Result<(), DropReason> {
        let outcome = self.take_control(now, arrived, header, payload);
        outcome.inspect_err(|&reason| self.refused.count(reason))
    }

    fn take_control(&mut self, now: Instant, arrived: Instant, header: &Ethernet, payload: &[u8]) -> Result<(), DropReason> {
        if header.dst.is_group() {
            return Err(DropReason::NotForUs);
        }
        let message = StopMessage::parse(payload)?;
        let host = header.src;
        let obedience = self.obedience.as_mut().ok_or(DropReason::StopStranger)?;
        if !host.is_station() || host == self.config.mac || !obedience.accepts(host) {
            return Err(DropReason::StopStranger);
        }
        let sequence = self.config.key.as_ref().map(|key| sequence_of(key, header, payload)).transpose()?;
        if sequence.is_some_and(|sequence| !obedience.is_fresh(host, sequence)) {
            return Err(DropReason::StopReplay);
        }
        match message {
            StopMessage::Stop { priority, timer, rate } => {
                self.journal.counts.stops_received += 1;
                obedience.handle_stop(now, arrived, host, Request { priority, timer, rate }, sequence, &mut self.journal)
            }
            StopMessage::Cancel => {
                self.journal.counts.cancels_received += 1;
                obedience.handle_cancel(now, host, sequence, &mut self.journal);
                Ok(())
            }
        }
    }

    // ---- time

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.asking.handle_timeout(now);
        if let Some(obedience) = &mut self.obedience {
            obedience.handle_timeout(now, &mut self.journal);
        }
    }

    /// When [`Self::handle_timeout`], or [`Self::handle_quiet`] of a port, wants to be called next.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let watches = self.watches.iter().flatten().fold(None, |due, watch| earliest(due, watch.poll_timeout()));
        let obedience = self.obedience.as_ref().and_then(Obedience::poll_timeout);
        earliest(earliest(watches, obedience), self.asking.poll_timeout())
    }

    // ---- frames out

    /// What may be sent to whom; `None` if this host obeys nobody.
    pub const fn obedience(&self) -> Option<&Obedience> {
        self.obedience.as_ref()
    }

    /// The same, to book what is sent.
    pub const fn obedience_mut(&mut self) -> Option<&mut Obedience> {
        self.obedience.as_mut()
    }

    /// True if [`Self::poll_transmit`] has a packet.
    pub fn wants_transmit(&self) -> bool {
        self.asking.has_packet()
    }

    /// For whom the next control packet is.
    pub fn next_host(&self) -> Option<MacAddr> {
        self.asking.next_host()
    }

    /// Writes the next control packet and returns its length; `None` if there is none.
    pub fn poll_transmit(&mut self, now: Instant, out: &mut [u8]) -> Option<usize> {
        let Packet { host, message } = self.asking.poll_packet(now, &mut self.journal)?;
        let vlan = self.config.priority.map(|priority| VlanTag { priority, drop_eligible: false, id: 0 });
        let header = Ethernet { dst: host, src: self.config.mac, vlan, ethertype: self.config.ethertype };
        self.sequence += 1;
        message.emit_frame(out, &header, self.config.key.as_ref().map(|key| (key, self.sequence)))
    }

    // ---- commands

    /// Asks a host to stop or slow down, once, by hand. What the configuration says for it where `request` does not.
    pub fn stop(&mut self, now: Instant, host: MacAddr, request: impl FnOnce(Request) -> Request) {
        let request = request(self.asking.request_for(host));
        self.asking.ask(now, host, request, Cause::Hand, &mut self.journal);
    }

    /// Tells a host by hand that it may send again; false if it was not asked to stop.
    pub fn cancel(&mut self, now: Instant, host: MacAddr) -> bool {
        self.asking.cancel(now, host, &mut self.journal)
    }

    // ---- for people

    /// What was counted.
    pub fn counters(&self) -> StopCounters {
        let congestions = self.watches.iter().flatten().map(Watch::congestions).sum();
        StopCounters { congestions, ..self.journal.counts }
    }

    /// Control packets that changed nothing, by reason.
    pub const fn refused(&self) -> &DropCounts {
        &self.refused
    }

    /// Hosts that we ask at the moment.
    pub fn asked(&self) -> impl Iterator<Item = AskedView> + '_ {
        self.asking.views()
    }

    /// How the watched ports stand.
    pub fn watches(&self) -> impl Iterator<Item = WatchView> + '_ {
        self.watches.iter().flatten().map(Watch::view)
    }

    /// The last events.
    pub const fn journal(&self) -> &Journal {
        &self.journal
    }

    // ---- inside

    fn handle_change(&mut self, now: Instant, port: PortId, change: Change) {
        match change {
            Change::Congested => {
                let sources = self.ask_contributing(now, port);
                self.journal.note(now, StopEvent::Congested { port, sources });
            }
            Change::Persists { renewed } => {
                self.ask_contributing(now, port);
                if renewed {
                    self.asking.ask_again(port);
                }
            }
            Change::Resolved => {
                self.asking.cancel_all_of(now, port, &mut self.journal);
                self.journal.note(now, StopEvent::Resolved { port });
            }
        }
    }

    /// Asks those who contribute and have not been asked; returns how many contribute.
    fn ask_contributing(&mut self, now: Instant, port: PortId) -> u32 {
        let Self { watches, asking, journal, config, .. } = self;
        let Some(Some(watch)) = watches.get(port.index()) else { return 0 };
        let mut ask = |host: MacAddr| {
            if !asking.is_asked(host) {
                let request = asking.request_for(host);
                asking.ask(now, host, request, Cause::Sign(port), journal);
            }
        };
        match &config.ask.targets {
            Targets::Contributing => watch.contributing().for_each(&mut ask),
            Targets::Listed(hosts) => hosts.iter().copied().for_each(&mut ask),
        }
        u32::try_from(watch.contributing().count()).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests;
