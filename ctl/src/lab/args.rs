//! Arguments of `weftctl lab`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

#[derive(Debug, Subcommand)]
pub(crate) enum LabCommand {
    /// Build a lab and leave it running
    Up(Up),
    /// Stop a lab and remove what is left of it, also after a crash
    Down(Down),
    /// Build a lab, run one command in a node, take the lab down
    Run(Run),
    /// Run a command in a node of a running lab
    Exec(Exec),
    /// Show labs, their nodes and daemons
    Status(Status),
    /// Bring the cable between two nodes up or down
    Link(LinkArgs),
    /// Kill a node's daemon without warning (SIGKILL); it stays dead until `restart`
    Kill(NodeArgs),
    /// Start a node's daemon again, stopping it first if it runs
    Restart(NodeArgs),
    /// Move a file across a lossy switch, under both recovery modes, and show what happened
    Demo(Demo),
    /// Let eight senders meet at one receiver, with nothing, PAUSE and stop control, and show who suffers
    Incast(Incast),
    /// The process that owns a lab; started by the others
    #[command(hide = true)]
    Supervise(Supervise),
}

#[derive(Clone, Debug, Default, Args)]
pub(crate) struct WeftdPath {
    /// The daemon to start [default: weftd beside weftctl, else the one in PATH]
    #[arg(long, value_name = "PATH")]
    pub(crate) weftd: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Up {
    /// The topology, a YAML file
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) weftd: WeftdPath,
}

#[derive(Debug, Args)]
pub(crate) struct Down {
    /// The lab
    pub(crate) name: String,
}

#[derive(Debug, Args)]
pub(crate) struct Run {
    /// The topology, a YAML file
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) weftd: WeftdPath,
    /// The node to run the command in
    pub(crate) node: String,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct Exec {
    /// The lab
    pub(crate) name: String,
    /// The node to run the command in
    pub(crate) node: String,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct Status {
    /// One lab only
    pub(crate) name: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct LinkArgs {
    /// The lab
    pub(crate) name: String,
    /// The node whose interface changes
    pub(crate) node: String,
    /// The node at the other end
    pub(crate) neighbour: String,
    /// What becomes of all cables between the two
    pub(crate) state: LinkState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LinkState {
    Up,
    Down,
}

#[derive(Debug, Args)]
pub(crate) struct NodeArgs {
    /// The lab
    pub(crate) name: String,
    /// The node
    pub(crate) node: String,
}

#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Print one JSON object and nothing else
    #[arg(long)]
    pub(crate) json: bool,
    /// Size of the file
    #[arg(long, default_value = "64MiB", value_parser = super::demo::content::parse_size)]
    pub(crate) size: u64,
    /// Leave the lab running afterwards, under the name `demo`
    #[arg(long)]
    pub(crate) keep: bool,
    #[command(flatten)]
    pub(crate) weftd: WeftdPath,
}

#[derive(Debug, Args)]
pub(crate) struct Incast {
    /// Print one JSON object and nothing else
    #[arg(long)]
    pub(crate) json: bool,
    /// How long to measure in each setting
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=60))]
    pub(crate) seconds: u64,
    #[command(flatten)]
    pub(crate) weftd: WeftdPath,
}

#[derive(Debug, Args)]
pub(crate) struct Supervise {
    /// Runtime folder of the lab, which holds `topology.yaml`
    pub(crate) folder: PathBuf,
    /// Name of the lab
    #[arg(long)]
    pub(crate) name: String,
    /// The topology's file as the user named it
    #[arg(long)]
    pub(crate) topology: PathBuf,
    /// The daemon to start
    #[arg(long)]
    pub(crate) weftd: PathBuf,
    /// The process that started this one
    #[arg(long)]
    pub(crate) parent: i32,
    /// Take the lab down when that process ends
    #[arg(long)]
    pub(crate) tied: bool,
}
