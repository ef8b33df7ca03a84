//! What the demo says at its end.

use std::collections::BTreeMap;

use anyhow::Context as _;
use serde::Serialize;
use weft_config::control::{Counters, Request};
use weft_config::lab::files;

use super::transfer::Done;
use crate::admin::Admin;
use crate::lab::state::State;

/// One number per recovery mode.
#[derive(Clone, Copy, Debug, Serialize)]
struct Both<T> {
    irn: T,
    go_back_n: T,
}

/// The result of a demo.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    sha256_sent: String,
    /// Of the transfer under irn.
    sha256_received: String,
    sha256_received_go_back_n: String,
    bytes: u64,
    goodput_bps: Both<f64>,
    seconds: Both<f64>,
    retransmissions: Both<u64>,
    /// Goodput under irn divided by that under go-back-n.
    goodput_ratio: f64,
    frames_dropped_by_impairment: u64,
    frames_dropped_by_reason: BTreeMap<String, u64>,
    #[serde(skip)]
    digests_of_sender_agree: bool,
}

impl Report {
    pub(super) fn new(sha256_sent: String, irn: Done, go_back_n: Done, drops: BTreeMap<String, u64>) -> Self {
        Self {
            digests_of_sender_agree: [&irn, &go_back_n].iter().all(|done| done.sent.files[0].sha256_sent == sha256_sent),
            sha256_sent,
            sha256_received: irn.sha256_received,
            sha256_received_go_back_n: go_back_n.sha256_received,
            bytes: irn.sent.bytes,
            goodput_bps: Both { irn: irn.sent.goodput_bps, go_back_n: go_back_n.sent.goodput_bps },
            seconds: Both { irn: irn.sent.seconds, go_back_n: go_back_n.sent.seconds },
            retransmissions: Both { irn: irn.sent.retransmissions, go_back_n: go_back_n.sent.retransmissions },
            goodput_ratio: irn.sent.goodput_bps / go_back_n.sent.goodput_bps,
            frames_dropped_by_impairment: drops.iter().filter(|(reason, _)| reason.starts_with("impaired")).map(|(_, frames)| frames).sum(),
            frames_dropped_by_reason: drops,
        }
    }

    /// Whether both transfers delivered what was sent.
    pub(super) fn is_intact(&self) -> bool {
        let received = [&self.sha256_received, &self.sha256_received_go_back_n];
        self.digests_of_sender_agree && received.iter().all(|digest| **digest == self.sha256_sent)
    }

    pub(super) fn print(&self, json: bool, lab: &str, kept: bool) -> anyhow::Result<()> {
        if json {
            println!("{}", serde_json::to_string(self)?);
        } else {
            println!("{}\n{}", self.text(), next(lab, kept));
        }
        Ok(())
    }

    fn text(&self) -> String {
        let verdict = if self.is_intact() { "intact, both times" } else { "DAMAGED" };
        let mut lines = vec![
            format!("{} bytes from a to b: {verdict}", self.bytes),
            format!("  sent                 sha256 {}", self.sha256_sent),
            format!("  received, irn        sha256 {}", self.sha256_received),
            format!("  received, go-back-n  sha256 {}", self.sha256_received_go_back_n),
            format!("{:<22}{:>12}{:>12}", "", "irn", "go-back-n"),
            row("goodput in Mbit/s", &self.goodput_bps, |bits| format!("{:.0}", bits / 1e6)),
            row("seconds", &self.seconds, |seconds| format!("{seconds:.2}")),
            row("retransmissions", &self.retransmissions, |packets| packets.to_string()),
            format!("irn delivers {:.1} times what go-back-n delivers over the same links", self.goodput_ratio),
            format!("frames dropped by the links' impairment: {}", self.frames_dropped_by_impairment),
            "frames dropped in s, by reason:".to_owned(),
        ];
        lines.extend(self.frames_dropped_by_reason.iter().map(|(reason, frames)| format!("  {reason:<20}{frames:>12}")));
        lines.join("\n")
    }
}

fn row<T>(label: &str, both: &Both<T>, text: impl Fn(&T) -> String) -> String {
    format!("{label:<22}{:>12}{:>12}", text(&both.irn), text(&both.go_back_n))
}

fn next(lab: &str, kept: bool) -> String {
    if kept {
        return format!(
            "The lab stays up. Look inside:\n  weftctl lab status {lab}\n  weftctl lab exec {lab} s weftctl port show\n  weftctl lab exec {lab} a \
             weftctl qp show\nand take it down:\n  weftctl lab down {lab}"
        );
    }
    "To look inside while it runs, keep the lab up:\n  weftctl lab demo --keep\n  weftctl lab exec demo s weftctl port show\n\
     Change its links: deploy/labs/demo.yaml, then\n  weftctl lab up deploy/labs/demo.yaml"
        .to_owned()
}

/// Frames that the switch s dropped, by reason.
pub(super) fn impairment(state: &State) -> anyhow::Result<BTreeMap<String, u64>> {
    let socket = state.file("s", files::CONTROL_SOCKET);
    let counters: Counters = Admin::connect(&socket)?.request(Request::Counters).context("node s: no counters")?;
    let mut drops = counters.switch_drops;
    drops.retain(|_, frames| *frames > 0);
    Ok(drops)
}

#[cfg(test)]
mod tests {
    use super::super::transfer::{Sent, SentFile};
    use super::*;

    fn done(received: &str, goodput_bps: f64) -> Done {
        let sent =
            Sent { files: [SentFile { sha256_sent: "5e".to_owned() }], bytes: 64 << 20, seconds: 1.5, goodput_bps, retransmissions: 7 };
        Done { sent, sha256_received: received.to_owned() }
    }

    fn report(received: &str) -> Report {
        let drops = [("impaired_loss", 40), ("impaired_full", 2), ("queue_full", 9)].map(|(reason, frames)| (reason.to_owned(), frames));
        Report::new("5e".to_owned(), done("5e", 9e8), done(received, 3e8), drops.into())
    }

    #[test]
    fn the_json_object_has_the_keys_that_scripts_rely_on() {
        let json = serde_json::to_value(report("5e")).unwrap();
        assert_eq!(json["sha256_sent"], "5e");
        assert_eq!(json["sha256_received"], "5e");
        assert_eq!(json["bytes"], 64 << 20);
        assert_eq!(json["goodput_bps"], serde_json::json!({ "irn": 9e8, "go_back_n": 3e8 }));
        assert_eq!(json["retransmissions"], serde_json::json!({ "irn": 7, "go_back_n": 7 }));
        assert_eq!(json["goodput_ratio"], 3.0);
        assert_eq!(json["frames_dropped_by_impairment"], 42, "a full queue is no impairment");
    }

    #[test]
    fn one_wrong_digest_makes_the_demo_fail() {
        assert!(report("5e").is_intact());
        let damaged = report("5f");
        assert!(!damaged.is_intact());
        assert!(damaged.text().contains("DAMAGED"));
    }
}
