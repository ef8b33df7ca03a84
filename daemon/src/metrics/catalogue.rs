//! Every metric of the daemon: one table of names, kinds, labels, help texts and where the number comes from.
//!
//! Names follow the Prometheus conventions: prefix `weft_`, base units (bytes, seconds), `_total` for counters.
//! `docs/metrics.md` is this table as a page; a test keeps the two equal.

use weft_proto::stop::{StopCounters, WatchView};
use weft_proto::transport::{MAX_PEERS, PeerTotals, QpCounters};
use weft_proto::wire::MacAddr;
use weft_proto::{DropReason, Duration};

use crate::snapshot::{PortSnapshot, Snapshot, TransportSnapshot};

/// What a number may do between two scrapes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grow, until the daemon restarts.
    Counter,
    /// Grow and shrink.
    Gauge,
}

/// One family of metrics.
#[derive(Debug)]
pub struct Family {
    /// Name with prefix, unit and suffix.
    pub name: &'static str,
    /// Counter or gauge.
    pub kind: Kind,
    /// Names of the labels.
    pub labels: &'static [&'static str],
    /// One sentence for people.
    pub help: &'static str,
    /// Takes the samples out of a snapshot.
    pub(super) sample: fn(&Snapshot, &mut Samples),
}

/// Samples of one family: values of its labels, and the number.
#[derive(Debug, Default)]
pub(super) struct Samples(pub(super) Vec<(Vec<String>, f64)>);

impl Samples {
    /// Counters are exact up to 2^53 in the format's floating point numbers: 285 years at a million a second.
    #[allow(clippy::cast_precision_loss)]
    fn add(&mut self, labels: &[&str], value: u64) {
        self.0.push((labels.iter().map(|&label| label.to_owned()).collect(), value as f64));
    }

    /// Seconds, as the format wants times.
    #[allow(clippy::cast_precision_loss)]
    fn add_seconds(&mut self, labels: &[&str], span: Duration) {
        self.0.push((labels.iter().map(|&label| label.to_owned()).collect(), span.as_nanos() as f64 / 1e9));
    }

    fn per_peer(&mut self, snapshot: &Snapshot, value: fn(&PeerTotals) -> u64) {
        for totals in &snapshot.peers {
            self.add(&[&peer_label(snapshot, totals)], value(totals));
        }
    }

    fn per_peer_and<const N: usize>(&mut self, snapshot: &Snapshot, values: fn(&QpCounters) -> [(&'static str, u64); N]) {
        for totals in &snapshot.peers {
            let peer = peer_label(snapshot, totals);
            for (label, value) in values(&totals.counters) {
                self.add(&[&peer, label], value);
            }
        }
    }

    fn per_port(&mut self, snapshot: &Snapshot, value: fn(&PortSnapshot) -> u64) {
        for port in &snapshot.ports {
            self.add(&[&port.name], value(port));
        }
    }

    /// Every reason from the start, at zero: a rate over a series that appears with its first drop misses that drop.
    fn per_reason(&mut self, first: &[&str], drops: impl Fn(DropReason) -> u64) {
        for &reason in DropReason::ALL {
            let labels: Vec<&str> = first.iter().copied().chain([reason.label()]).collect();
            self.add(&labels, drops(reason));
        }
    }

    fn stop(&mut self, snapshot: &Snapshot, value: fn(&StopCounters) -> u64) {
        if let Some(stop) = &snapshot.stop {
            self.add(&[], value(&stop.counters));
        }
    }

    fn stop_by_label<const N: usize>(&mut self, snapshot: &Snapshot, values: fn(&StopCounters) -> [(&'static str, u64); N]) {
        for (label, value) in snapshot.stop.iter().flat_map(|stop| values(&stop.counters)) {
            self.add(&[label], value);
        }
    }

    fn per_watched_port(&mut self, snapshot: &Snapshot, value: fn(&WatchView) -> u64) {
        for view in snapshot.stop.iter().flat_map(|stop| &stop.watches) {
            if let Some(port) = snapshot.ports.get(view.port.index()) {
                self.add(&[&port.name], value(view));
            }
        }
    }

    fn transport(&mut self, snapshot: &Snapshot, value: fn(&TransportSnapshot) -> u64) {
        if let Some(transport) = &snapshot.transport {
            self.add(&[], value(transport));
        }
    }

    fn by_label<const N: usize>(&mut self, snapshot: &Snapshot, values: fn(&TransportSnapshot) -> [(&'static str, u64); N]) {
        for (label, value) in snapshot.transport.iter().flat_map(values) {
            self.add(&[label], value);
        }
    }
}

/// Why a stop control packet changes nothing.
const STOP_REASONS: [DropReason; 8] = [
    DropReason::NotForUs,
    DropReason::BadLength,
    DropReason::UnknownCommand,
    DropReason::StopStranger,
    DropReason::StopBadTag,
    DropReason::StopReplay,
    DropReason::StopBudget,
    DropReason::StopTableFull,
];

/// Hosts that are told apart no longer, or never were.
const OTHER: &str = "other";

/// What a host is called: its name in the configuration, or its address.
fn peer_label(snapshot: &Snapshot, totals: &PeerTotals) -> String {
    totals.peer.map_or_else(|| OTHER.to_owned(), |mac| host_label(snapshot, mac))
}

fn host_label(snapshot: &Snapshot, mac: MacAddr) -> String {
    snapshot.hosts.get(&mac).filter(|name| *name != OTHER).cloned().unwrap_or_else(|| mac.to_string())
}

const fn counter(name: &'static str, labels: &'static [&'static str], help: &'static str, sample: fn(&Snapshot, &mut Samples)) -> Family {
    Family { name, kind: Kind::Counter, labels, help, sample }
}

const fn gauge(name: &'static str, labels: &'static [&'static str], help: &'static str, sample: fn(&Snapshot, &mut Samples)) -> Family {
    Family { name, kind: Kind::Gauge, labels, help, sample }
}

/// The catalogue, in the order of the page.
pub static CATALOGUE: &[Family] = &[
    gauge("weft_build_info", &["version"], "Always 1; the label says which version runs.", |_, out| {
        out.add(&[env!("CARGO_PKG_VERSION")], 1);
    }),
    gauge("weft_port_up", &["port"], "1 if the port's interface exists and has a carrier.", |s, out| {
        out.per_port(s, |p| u64::from(p.up));
    }),
    counter("weft_port_received_frames_total", &["port"], "Frames taken in from the port.", |s, out| {
        out.per_port(s, |p| p.counters.received.frames);
    }),
    counter("weft_port_received_bytes_total", &["port"], "Bytes taken in from the port, Ethernet header included.", |s, out| {
        out.per_port(s, |p| p.counters.received.bytes);
    }),
    counter("weft_port_sent_frames_total", &["port"], "Frames handed to the port.", |s, out| {
        out.per_port(s, |p| p.counters.sent.frames);
    }),
    counter("weft_port_sent_bytes_total", &["port"], "Bytes handed to the port, Ethernet header included.", |s, out| {
        out.per_port(s, |p| p.counters.sent.bytes);
    }),
    counter("weft_port_dropped_frames_total", &["port", "reason"], "Frames dropped at the port, by reason.", |s, out| {
        s.ports.iter().for_each(|p| out.per_reason(&[&p.name], |reason| p.drops(reason)));
    }),
    counter(
        "weft_port_kernel_dropped_frames_total",
        &["port"],
        "Frames that the kernel dropped because they were not fetched in time.",
        |s, out| {
            out.per_port(s, |p| p.kernel_drops);
        },
    ),
    counter(
        "weft_port_send_refusals_total",
        &["port"],
        "Times that the kernel had no room for a frame, which was tried again later.",
        |s, out| {
            out.per_port(s, |p| p.send_refusals);
        },
    ),
    counter("weft_port_reopens_total", &["port"], "Times that the port was opened anew, on an interface that came again.", |s, out| {
        out.per_port(s, |p| p.reopens);
    }),
    counter(
        "weft_port_flow_control_frames_total",
        &["port", "direction"],
        "Frames of flow control (PAUSE, PFC); ignored ones were received, but the watchdog had tripped.",
        |s, out| {
            for port in &s.ports {
                let flow = &port.counters.flow;
                for (direction, frames) in [("sent", flow.sent), ("received", flow.received), ("ignored", flow.ignored)] {
                    out.add(&[&port.name, direction], frames);
                }
            }
        },
    ),
    counter(
        "weft_port_paused_seconds_total",
        &["port"],
        "How long nothing was sent at the request of the link's other end; with PFC, of at least one priority.",
        |s, out| {
            s.ports.iter().for_each(|p| out.add_seconds(&[&p.name], p.counters.flow.paused));
        },
    ),
    counter("weft_port_pause_watchdog_trips_total", &["port"], "Pauses without a break that the watchdog put an end to.", |s, out| {
        out.per_port(s, |p| p.counters.flow.watchdog_trips);
    }),
    gauge("weft_queue_frames", &["port"], "Frames waiting in the switch to leave through the port.", |s, out| {
        out.per_port(s, |p| p.queued.frames);
    }),
    gauge("weft_queue_bytes", &["port"], "Bytes waiting in the switch to leave through the port.", |s, out| {
        out.per_port(s, |p| p.queued.bytes);
    }),
    counter("weft_switch_address_events_total", &["event"], "What happened to learned addresses: refused ones found no room.", |s, out| {
        for (event, count) in
            [("learned", s.addresses.learned), ("moved", s.addresses.moved), ("aged", s.addresses.aged), ("refused", s.addresses.refused)]
        {
            out.add(&[event], count);
        }
    }),
    gauge("weft_transport_queue_pairs", &[], "Queue pairs that exist.", |s, out| out.transport(s, |t| t.queue_pairs)),
    gauge("weft_transport_regions", &[], "Memory regions that are registered.", |s, out| out.transport(s, |t| t.regions)),
    counter(
        "weft_transport_sent_frames_total",
        &[],
        "Frames that the transport built: requests, retransmissions, answers, connection messages.",
        |s, out| {
            out.transport(s, |t| t.frames_sent);
        },
    ),
    counter("weft_transport_received_frames_total", &[], "Frames that came in for the transport, before any check.", |s, out| {
        out.transport(s, |t| t.frames_received);
    }),
    counter("weft_transport_packets_total", &["direction"], "Request packets sent for the first time, and received.", |s, out| {
        out.by_label(s, |t| [("sent", t.counters.packets_sent), ("received", t.counters.packets_received)]);
    }),
    counter(
        "weft_transport_payload_bytes_total",
        &["direction"],
        "Payload bytes sent for the first time, and placed in memory.",
        |s, out| {
            out.by_label(s, |t| [("sent", t.counters.bytes_sent), ("received", t.counters.bytes_received)]);
        },
    ),
    counter("weft_transport_messages_total", &["direction"], "Messages completed as the sender, and as the receiver.", |s, out| {
        out.by_label(s, |t| [("sent", t.counters.messages_sent), ("received", t.counters.messages_received)]);
    }),
    counter("weft_transport_retransmissions_total", &["cause"], "Packets sent again, by what made us do it.", |s, out| {
        out.by_label(s, |t| {
            [
                ("loss", t.counters.retransmitted_fast),
                ("timeout", t.counters.retransmitted_timeout),
                ("probe", t.counters.retransmitted_probe),
            ]
        });
    }),
    counter(
        "weft_transport_spurious_retransmissions_total",
        &[],
        "Retransmissions that the receiver turned out to have had already.",
        |s, out| {
            out.transport(s, |t| t.counters.retransmitted_spurious);
        },
    ),
    counter("weft_transport_timeouts_total", &[], "Retransmission time-outs that fired.", |s, out| {
        out.transport(s, |t| t.counters.timeouts);
    }),
    counter("weft_transport_duplicates_total", &[], "Packets that arrived a second time.", |s, out| {
        out.transport(s, |t| t.counters.duplicates_received);
    }),
    counter("weft_transport_out_of_order_total", &[], "Packets that arrived behind a gap.", |s, out| {
        out.transport(s, |t| t.counters.early_received);
    }),
    counter("weft_transport_acknowledgements_total", &["direction"], "Acknowledgements, negative ones included.", |s, out| {
        out.by_label(s, |t| [("sent", t.counters.acks_sent), ("received", t.counters.acks_received)]);
    }),
    counter(
        "weft_transport_negative_acknowledgements_total",
        &["direction"],
        "Negative acknowledgements: a gap, not ready, or refused.",
        |s, out| {
            out.by_label(s, |t| [("sent", t.counters.naks_sent), ("received", t.counters.naks_received)]);
        },
    ),
    counter("weft_transport_receiver_not_ready_total", &[], "Receiver-not-ready answers received.", |s, out| {
        out.transport(s, |t| t.counters.rnr_received);
    }),
    counter("weft_transport_keepalives_total", &[], "Signs of life asked of an idle peer.", |s, out| {
        out.transport(s, |t| t.counters.keepalives_sent);
    }),
    counter(
        "weft_transport_connections_total",
        &["outcome"],
        "Connections that came to stand, did not, ended, or ended because the peer restarted.",
        |s, out| {
            out.by_label(s, |t| {
                let c = &t.connections;
                [("established", c.established), ("failed", c.failed), ("closed", c.closed), ("peer_restarted", c.peer_restarts)]
            });
        },
    ),
    counter(
        "weft_transport_connection_messages_total",
        &["kind"],
        "Connection messages sent, sent again for want of an answer, and received.",
        |s, out| {
            out.by_label(s, |t| {
                let c = &t.connections;
                [("sent", c.messages_sent), ("resent", c.messages_resent), ("received", c.messages_received)]
            });
        },
    ),
    gauge("weft_peer_queue_pairs", &["peer"], "Queue pairs connected to the host.", |s, out| {
        out.per_peer(s, |p| p.queue_pairs.into());
    }),
    counter("weft_peer_connections_total", &["peer"], "Queue pairs that were ever connected to the host.", |s, out| {
        out.per_peer(s, |p| p.connections);
    }),
    gauge("weft_peer_round_trip_seconds", &["peer"], "Smallest smoothed round trip of the queue pairs connected to the host.", |s, out| {
        for (totals, rtt) in s.peers.iter().filter_map(|totals| Some((totals, totals.rtt?))) {
            out.add_seconds(&[&peer_label(s, totals)], rtt);
        }
    }),
    counter("weft_peer_packets_total", &["peer", "direction"], "Request packets sent for the first time, and received.", |s, out| {
        out.per_peer_and(s, |c| [("sent", c.packets_sent), ("received", c.packets_received)]);
    }),
    counter(
        "weft_peer_payload_bytes_total",
        &["peer", "direction"],
        "Payload bytes sent for the first time, and placed in memory.",
        |s, out| {
            out.per_peer_and(s, |c| [("sent", c.bytes_sent), ("received", c.bytes_received)]);
        },
    ),
    counter("weft_peer_messages_total", &["peer", "direction"], "Messages completed as the sender, and as the receiver.", |s, out| {
        out.per_peer_and(s, |c| [("sent", c.messages_sent), ("received", c.messages_received)]);
    }),
    counter("weft_peer_retransmissions_total", &["peer", "cause"], "Packets sent again, by what made us do it.", |s, out| {
        out.per_peer_and(s, |c| [("loss", c.retransmitted_fast), ("timeout", c.retransmitted_timeout), ("probe", c.retransmitted_probe)]);
    }),
    counter(
        "weft_peer_spurious_retransmissions_total",
        &["peer"],
        "Retransmissions that the receiver turned out to have had already.",
        |s, out| out.per_peer(s, |p| p.counters.retransmitted_spurious),
    ),
    counter("weft_peer_timeouts_total", &["peer"], "Retransmission time-outs that fired.", |s, out| {
        out.per_peer(s, |p| p.counters.timeouts);
    }),
    counter("weft_peer_duplicates_total", &["peer"], "Packets that arrived a second time.", |s, out| {
        out.per_peer(s, |p| p.counters.duplicates_received);
    }),
    counter("weft_peer_out_of_order_total", &["peer"], "Packets that arrived behind a gap.", |s, out| {
        out.per_peer(s, |p| p.counters.early_received);
    }),
    counter("weft_peer_receiver_not_ready_total", &["peer"], "Receiver-not-ready answers received.", |s, out| {
        out.per_peer(s, |p| p.counters.rnr_received);
    }),
    counter("weft_transport_dropped_frames_total", &["reason"], "Frames that the local transport refused, by reason.", |s, out| {
        if s.transport.is_some() {
            out.per_reason(&[], |reason| s.transport_drops.of(reason));
        }
    }),
    counter(
        "weft_stop_sent_packets_total",
        &["command"],
        "Stop control packets sent: to hosts that were free to send, again to hosts already told, and cancellations.",
        |s, out| {
            out.stop_by_label(s, |c| [("stop", c.stops_sent), ("refresh", c.refreshes_sent), ("cancel", c.cancels_sent)]);
        },
    ),
    counter(
        "weft_stop_received_packets_total",
        &["command"],
        "Well-formed stop control packets received and not refused as forged.",
        |s, out| {
            out.stop_by_label(s, |c| [("stop", c.stops_received), ("cancel", c.cancels_received)]);
        },
    ),
    counter("weft_stop_refused_packets_total", &["reason"], "Stop control packets that changed nothing, by reason.", |s, out| {
        for (stop, reason) in s.stop.iter().flat_map(|stop| STOP_REASONS.map(|reason| (stop, reason))) {
            out.add(&[reason.label()], stop.refused.of(reason));
        }
    }),
    counter(
        "weft_stop_stops_total",
        &["outcome"],
        "Stops by what became of them: obeyed ones began, extended ones went on; they expire, are cancelled by the host, or are capped because they lasted for too long.",
        |s, out| {
            out.stop_by_label(s, |c| {
                [("obeyed", c.obeyed), ("extended", c.extended), ("expired", c.expired), ("cancelled", c.cancelled), ("capped", c.capped)]
            });
        },
    ),
    counter(
        "weft_stop_late_frames_total",
        &[],
        "Frames to a host that left between the arrival of its stop packet and its being obeyed.",
        |s, out| out.stop(s, |c| c.late_frames),
    ),
    gauge("weft_stop_late_frames_max", &[], "The most such frames for one stop packet.", |s, out| out.stop(s, |c| c.late_frames_max)),
    counter(
        "weft_stop_stopped_seconds_total",
        &["peer"],
        "Time for which the host held this node back; slowed down to half counts half.",
        |s, out| {
            if let Some(stop) = &s.stop {
                stop.stopped.iter().for_each(|&(host, span)| out.add_seconds(&[&host_label(s, host)], span));
                out.add_seconds(&[OTHER], stop.stopped_by_others);
            }
        },
    ),
    gauge("weft_stop_stopping_hosts", &[], "Hosts that hold this node back now.", |s, out| {
        s.stop.iter().for_each(|stop| out.add(&[], stop.stopping));
    }),
    gauge("weft_stop_asked_hosts", &[], "Hosts that this node asks to stop now.", |s, out| {
        s.stop.iter().for_each(|stop| out.add(&[], stop.asked));
    }),
    gauge("weft_stop_congested", &["port"], "1 if the port shows signs of congestion.", |s, out| {
        out.per_watched_port(s, |view| u64::from(view.congested_since.is_some()));
    }),
    counter("weft_stop_congestions_total", &["port"], "Times that the port began to show signs of congestion.", |s, out| {
        out.per_watched_port(s, |view| view.congestions);
    }),
    counter("weft_worker_batches_total", &["kind"], "Rounds of the worker's loop, by whether any frame moved.", |s, out| {
        out.add(&["busy"], s.worker.busy_breaths);
        out.add(&["idle"], s.worker.breaths.saturating_sub(s.worker.busy_breaths));
    }),
    counter("weft_worker_sleeps_total", &[], "Times the worker blocked because there was nothing to do.", |s, out| {
        out.add(&[], s.worker.sleeps)
    }),
    counter("weft_worker_pool_exhausted_total", &[], "Rounds in which no frame buffer was free.", |s, out| {
        out.add(&[], s.worker.pool_exhausted);
    }),
    gauge("weft_worker_frames_in_use", &[], "Frame buffers in use.", |s, out| out.add(&[], s.worker.frames_in_use)),
    gauge("weft_worker_frames", &[], "Frame buffers in the pool.", |s, out| out.add(&[], s.worker.frames_total)),
    gauge("weft_application_attached", &[], "Applications attached now.", |s, out| out.add(&[], s.applications.attached)),
    counter("weft_application_requests_total", &[], "Work requests taken from the applications' rings.", |s, out| {
        out.add(&[], s.applications.requests);
    }),
];

/// The catalogue as the page `docs/metrics.md`.
pub fn page() -> String {
    let mut page = String::from(
        "# Metrics\n\nServed as Prometheus text under `/metrics` (see `metrics.listen` in the configuration).\n\
         This page is written from the daemon's catalogue; a test keeps it equal.\n\n\
         | metric | kind | labels | meaning |\n| --- | --- | --- | --- |\n",
    );
    for family in CATALOGUE {
        let kind = if family.kind == Kind::Counter { "counter" } else { "gauge" };
        page += &format!("| `{}` | {kind} | {} | {} |\n", family.name, family.labels.join(", "), family.help);
    }
    page += &format!(
        "\n## Values of `peer`\n\n\
         The host's name in `hosts` of the configuration, or its Ethernet address. At most {MAX_PEERS} hosts are told apart; `{OTHER}` sums \
         up the rest, so that all values of `peer` together are the sum over the node. A host keeps its series while a queue pair is \
         connected to it. Afterwards it keeps it until a new host needs the place: then the one with the fewest bytes goes to `{OTHER}`, \
         which grows by what that one had. Of `weft_stop_stopped_seconds_total` the first {MAX_PEERS} hosts in stop control's table are told \
         apart; like all of `weft_stop_*` it begins anew when a reload changes `stop`. There are no series per queue pair; see `weftctl qp show`.\n"
    );
    page += "\n## Values of `reason`\n\n| reason | meaning |\n| --- | --- |\n";
    for reason in DropReason::ALL {
        page += &format!("| `{}` | {} |\n", reason.label(), reason.description().trim());
    }
    page
}
