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

const TOPOLOGY: &str = include_str!("../../../deploy/labs/hotspot.yaml");
/// Rate of its links, so low that they and not the processors are what is short.
const RATE_MBIT: u32 = 20;
/// What the hosts get where stop control is on: a timer of 40 ms, which suits so slow a link, and the usual detector. The sender
/// with a victim is slowed down to half of the others' rate.
const STOP: &str = "stop: { tick: 200us, ask: { rate: RATE }, destinations: { s1: { ask: { rate: HALF } } } }";

/// Runs it.
pub(crate) fn run(args: &args::Incast) -> anyhow::Result<u8> {
    let interrupt = Interrupt::register()?;
    let weftd = daemon::find(args.weftd.weftd.as_deref())?;
    let mut settings = Vec::new();
    for setting in Setting::ALL {
        if !args.json {
            eprintln!("{}: simulated, then in a lab of 12 hosts and a switch", report::name(setting));
        }
        let simulated = Outcome::simulated(&weft_sim::incast::run(&Scene::new(setting, false, BitRate::megabits(RATE_MBIT))));
        interrupt.check()?;
        let text = topology(setting);
        let lab = Lab::from_yaml(&text, "deploy/labs/hotspot.yaml").map_err(|error| failure(Exit::Usage, error.to_string()))?;
        let lab = lab.renamed(&format!("incast-{}", std::process::id())).context("no name for the lab")?;
        let plan = Plan { lab: &lab, text: &text, topology: Path::new("(built in)"), weftd: weftd.clone(), tied: true };
        let tied = start::start_tied(&plan)?;
        let course = flows::Course { state: tied.state(), interrupt: &interrupt, span: Duration::from_secs(args.seconds) };
        let measured = course.run().with_context(|| format!("setting {}", report::name(setting)))?;
        settings.push(report::Line { setting: report::name(setting), simulated, lab: measured });
    }
    Report { rate_mbit: RATE_MBIT, settings }.print(args.json)?;
    Ok(0)
}

/// The topology under a setting.
fn topology(setting: Setting) -> String {
    let host = |stop: String| TOPOLOGY.replace("{ kind: host }", &format!("{{ kind: host, {stop} }}"));
    match setting {
        Setting::Nothing => TOPOLOGY.to_owned(),
        Setting::Pause => TOPOLOGY.replace("rate: 20Mbit }", "rate: 20Mbit, flow_control: pause }"),
        Setting::Stop => host(STOP.replace("RATE", "0").replace("HALF", "0")),
        Setting::Rate => host(STOP.replace("RATE", "2").replace("HALF", "1")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_topology_is_valid_under_every_setting_and_differs() {
        let texts = Setting::ALL.map(topology);
        for text in &texts {
            let lab = Lab::from_yaml(text, "hotspot.yaml").unwrap_or_else(|error| panic!("{error}\n{text}"));
            assert_eq!(lab.nodes.len(), 13);
        }
        assert!((1..4).all(|index| !texts[..index].contains(&texts[index])));
    }
}
