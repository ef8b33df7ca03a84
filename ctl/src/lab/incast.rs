//! `weftctl lab incast`: eight senders meet at one receiver, with nothing, PAUSE and stop control in turn.
//!
//! Each setting is first simulated in virtual time, then run in a lab of its own, with the commands that anybody would use.

mod flows;
mod report;

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use weft_config::lab::Lab;
use weft_proto::BitRate;
use weft_sim::incast::{Scene, Setting};

use super::child::Interrupt;
use super::start::{self, Plan};
use super::{args, daemon};
use crate::exit::{Exit, failure};
use report::{Outcome, Report};

/// Rate of its links, so low that they and not the processors are what is short.
const RATE_MBIT: u32 = 20;
/// What the hosts get where stop control is on: a timer of 40 ms, which suits so slow a link, and the usual detector. The sender
/// with a victim is slowed down to half of the others' rate.
const STOP: &str = "stop: { tick: 200us, ask: { rate: RATE }, destinations: { s1: { ask: { rate: HALF } } } }";

/// One switch, or two.
const SCENES: [Stage; 2] = [
    Stage { switches: 1, topology: include_str!("../../../deploy/labs/hotspot.yaml") },
    Stage { switches: 2, topology: include_str!("../../../deploy/labs/hotspot-two.yaml") },
];

/// A network for it.
#[derive(Clone, Copy, Debug)]
struct Stage {
    switches: u8,
    topology: &'static str,
}

/// Runs it.
pub(crate) fn run(args: &args::Incast) -> anyhow::Result<u8> {
    let interrupt = Interrupt::register()?;
    let weftd = daemon::find(args.weftd.weftd.as_deref())?;
    let mut lines = Vec::new();
    for stage in SCENES {
        for setting in Setting::ALL {
            if !args.json {
                let plural = if stage.switches == 1 { "" } else { "es" };
                eprintln!("{}: simulated, then in a lab of 12 hosts and {} switch{plural}", report::name(setting), stage.switches);
            }
            let scene = Scene::new(setting, stage.switches > 1, BitRate::megabits(RATE_MBIT));
            let simulated = Outcome::simulated(&weft_sim::incast::run(&scene));
            interrupt.check()?;
            let lab =
                in_lab(args, &interrupt, &weftd, &stage.under(setting)).with_context(|| format!("setting {}", report::name(setting)))?;
            lines.push(report::Line { setting: report::name(setting), switches: stage.switches, simulated, lab });
        }
    }
    Report { rate_mbit: RATE_MBIT, lines }.print(args.json)?;
    Ok(0)
}

fn in_lab(args: &args::Incast, interrupt: &Interrupt, weftd: &Path, text: &str) -> anyhow::Result<Outcome> {
    let lab = Lab::from_yaml(text, "deploy/labs/hotspot.yaml").map_err(|error| failure(Exit::Usage, error.to_string()))?;
    let lab = lab.renamed(&format!("incast-{}", std::process::id())).context("no name for the lab")?;
    let plan = Plan { lab: &lab, text, topology: Path::new("(built in)"), weftd: weftd.to_owned(), tied: true };
    let tied = start::start_tied(&plan)?;
    flows::Course { state: tied.state(), interrupt, span: Duration::from_secs(args.seconds) }.run()
}

impl Stage {
    /// The topology under a setting.
    fn under(self, setting: Setting) -> String {
        let host = |stop: String| self.topology.replace("{ kind: host }", &format!("{{ kind: host, {stop} }}"));
        match setting {
            Setting::Nothing => self.topology.to_owned(),
            Setting::Pause => self.topology.replace("0Mbit }", "0Mbit, flow_control: pause }"),
            Setting::Stop => host(STOP.replace("RATE", "0").replace("HALF", "0")),
            Setting::Rate => host(STOP.replace("RATE", "2").replace("HALF", "1")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_topologies_are_valid_under_every_setting_and_differ() {
        for stage in SCENES {
            let texts = Setting::ALL.map(|setting| stage.under(setting));
            for text in &texts {
                let lab = Lab::from_yaml(text, "hotspot.yaml").unwrap_or_else(|error| panic!("{error}\n{text}"));
                assert_eq!(lab.nodes.len(), 12 + usize::from(stage.switches));
            }
            assert!((1..4).all(|index| !texts[..index].contains(&texts[index])));
            assert_eq!(texts[1].matches("0Mbit, flow_control: pause }").count(), 11 + usize::from(stage.switches));
        }
    }
}
