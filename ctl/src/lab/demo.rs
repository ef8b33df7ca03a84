//! `weftctl lab demo`: a real file crosses a lossy switch, once under each recovery mode.
//!
//! Owns the course of the demo. The transfers are ordinary `weftctl receive` and `weftctl cp`, run in the lab's nodes.

pub(crate) mod content;
mod report;
mod transfer;

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use weft_config::lab::Lab;
use weft_config::model::Impairment;
use weft_config::units::{duration_text, rate_text};

use super::child::Interrupt;
use super::start::{self, Plan};
use super::{args, daemon};
use crate::exit::{Exit, failure};
use report::{Report, impairment};
use transfer::{Recovery, Transfer};

const TOPOLOGY: &str = include_str!("../../../deploy/labs/demo.yaml");

/// What the lab is like, in one line.
fn introduction(lab: &Lab) -> String {
    let links = lab.links.first().map_or_else(String::new, |link| {
        let Impairment { loss, reorder, delay, .. } = link.impairment;
        let rate = link.rate.map_or_else(|| "any rate".to_owned(), rate_text);
        format!("; each link, each way: {rate}, {} of delay, {loss} lost, {reorder} reordered", duration_text(delay))
    });
    format!("lab {}: hosts a and b, switch s{links}", lab.name)
}

/// Runs the demo.
pub(crate) fn run(args: &args::Demo) -> anyhow::Result<u8> {
    let interrupt = Interrupt::register()?;
    let say = |what: &str| {
        if !args.json {
            eprintln!("{what}");
        }
    };
    let weftd = daemon::find(args.weftd.weftd.as_deref())?;
    let lab = lab(args.keep)?;
    let work = WorkFolder::create()?;
    let file = work.path.join("demo.bin");
    content::write(&file, args.size, &[std::env::current_exe()?, weftd.clone()])?;
    interrupt.check()?;
    say(&introduction(&lab));
    let plan = Plan { lab: &lab, text: TOPOLOGY, topology: Path::new("(built in)"), weftd, tied: !args.keep };
    let tied;
    let kept;
    let state = if args.keep {
        kept = start::start(&plan)?;
        &kept
    } else {
        tied = start::start_tied(&plan)?;
        tied.state()
    };
    let course = Transfer { state, interrupt: &interrupt, work: &work.path, file: &file };
    say("transfer 1 of 2: selective retransmission (irn)");
    let irn = course.run(Recovery::Irn)?;
    say("transfer 2 of 2: go-back-n");
    let go_back_n = course.run(Recovery::GoBackN)?;
    let report = Report::new(content::sha256(&file)?, irn, go_back_n, impairment(state)?);
    report.print(args.json, &lab.name, args.keep)?;
    Ok(if report.is_intact() { 0 } else { Exit::Damaged.code() })
}

/// The demo's topology: under its own name if it stays, else under one that no other demo has.
fn lab(keep: bool) -> anyhow::Result<Lab> {
    let lab = Lab::from_yaml(TOPOLOGY, "deploy/labs/demo.yaml").map_err(|error| failure(Exit::Usage, error.to_string()))?;
    if keep { Ok(lab) } else { lab.renamed(&format!("demo-{}", std::process::id())).context("no name for the lab") }
}

/// Where the file is made and arrives; removed with this value.
#[derive(Debug)]
struct WorkFolder {
    path: PathBuf,
}

impl WorkFolder {
    fn create() -> anyhow::Result<Self> {
        let path = std::env::temp_dir().join(format!("weft-demo-{}", std::process::id()));
        DirBuilder::new().mode(0o700).create(&path).with_context(|| format!("{}: cannot create", path.display()))?;
        Ok(Self { path })
    }
}

impl Drop for WorkFolder {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.path) {
            eprintln!("{}: cannot remove: {error}", self.path.display());
        }
    }
}
