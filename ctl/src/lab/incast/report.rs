//! What `weftctl lab incast` says at its end.

use serde::Serialize;
use weft_sim::incast::{self, Setting};

use crate::show::tables;

/// Goodput of a victim in bits per second.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Victim {
    alone_bps: f64,
    beside_bps: f64,
    percent: f64,
}

impl Victim {
    pub(super) fn new(alone_bps: f64, beside_bps: f64) -> Self {
        Self { alone_bps, beside_bps, percent: beside_bps / alone_bps * 100.0 }
    }
}

/// What came of a setting.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Outcome {
    pub(super) frames_lost: u64,
    /// Of these, after the warm-up.
    pub(super) frames_lost_later: u64,
    pub(super) hot_bps: f64,
    pub(super) link_percent: f64,
    pub(super) victims: [Victim; 2],
    pub(super) control_frames: u64,
    /// `None` if not one message came through.
    pub(super) p99_us: Option<f64>,
    pub(super) p99_unloaded_us: f64,
    /// Of all processors, used by the daemons.
    pub(super) cpu_percent: Option<f64>,
}

impl Outcome {
    pub(super) fn simulated(report: &incast::Report) -> Self {
        let micros = |span: weft_proto::Duration| span.as_nanos() as f64 / 1e3;
        Self {
            frames_lost: report.lost,
            frames_lost_later: report.lost_later,
            hot_bps: report.hot,
            link_percent: report.utilisation,
            victims: report.victims.map(|victim| Victim::new(victim.alone, victim.beside)),
            control_frames: report.control_frames,
            p99_us: Some(micros(report.latency[1])).filter(|span| *span > 0.0),
            p99_unloaded_us: micros(report.latency[0]),
            cpu_percent: None,
        }
    }

    fn row(&self, line: &Line, kind: &str) -> Vec<String> {
        let victim = |victim: Victim| format!("{:.1} ({:.0} %)", victim.beside_bps / 1e6, victim.percent);
        vec![
            line.setting.to_owned(),
            line.switches.to_string(),
            kind.to_owned(),
            format!("{} / {}", self.frames_lost, self.frames_lost_later),
            format!("{:.1}", self.hot_bps / 1e6),
            victim(self.victims[0]),
            victim(self.victims[1]),
            format!("{:.0} %", self.link_percent),
            self.control_frames.to_string(),
            self.p99_us.map_or_else(|| "none came".to_owned(), |span| format!("{:.1} ({:.1}x)", span / 1e3, span / self.p99_unloaded_us)),
            self.cpu_percent.map_or_else(|| "-".to_owned(), |percent| format!("{percent:.0} %")),
        ]
    }
}

/// A setting in both worlds.
#[derive(Debug, Serialize)]
pub(super) struct Line {
    pub(super) setting: &'static str,
    pub(super) switches: u8,
    pub(super) simulated: Outcome,
    pub(super) lab: Outcome,
}

/// All of it.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) rate_mbit: u32,
    pub(super) lines: Vec<Line>,
}

impl Report {
    pub(super) fn print(&self, json: bool) -> anyhow::Result<()> {
        if json {
            println!("{}", serde_json::to_string(self)?);
            return Ok(());
        }
        let columns = ["setting", "switches", "in", "lost / later", "hot", "victim 1", "victim 2", "hot link", "control", "p99 ms", "cpu"];
        let mut table = tables::table(&columns);
        for line in &self.lines {
            table.add_row(line.simulated.row(line, "simulation"));
            table.add_row(line.lab.row(line, "lab"));
        }
        println!("{table}");
        println!(
            "Eight senders to one receiver, links of {} Mbit/s (ten times as much between switches), 64 KiB per queue of the switch (128 KiB with\n\
             two); goodput in Mbit/s, with what is left of it beside the hot flows. Victim 1 shares its sender with one of them; victim 2\n\
             shares the switch, or the link between the switches, and nothing else.\n\
             In all settings a sender may have 128 packets in flight and has no congestion control, which would hide the problem.\n\
             lost: frames the switch had no room for, in all and after the warm-up. p99: a message of 1 KiB of priority 15 there and back.",
            self.rate_mbit
        );
        Ok(())
    }
}

pub(super) const fn name(setting: Setting) -> &'static str {
    match setting {
        Setting::Nothing => "nothing",
        Setting::Pause => "PAUSE",
        Setting::Stop => "stop",
        Setting::Rate => "rate",
    }
}
