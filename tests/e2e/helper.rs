//! What runs inside nodes besides `weftctl`: this test program, started again in one of several roles.

mod http;
mod icmp;
mod intruder;
mod tcp;

use std::path::PathBuf;
use std::process::Command;

use crate::support::Lab;
pub(crate) use tcp::SEED as TCP_SEED;

/// Says which role to play, and `ARGUMENT` with what.
const ROLE: &str = "WEFT_E2E_ROLE";
const ARGUMENT: &str = "WEFT_E2E_ARGUMENT";

/// Programs for the inside of a node.
#[derive(Clone, Debug)]
pub(crate) enum Role {
    /// Takes one TCP connection at this address and says what came.
    TcpServer { address: String },
    /// Sends so many bytes to this address.
    TcpClient { address: String, len: usize },
    /// Sends echo requests of different sizes to this address; fails if one gets no answer.
    Icmp { address: String },
    /// Fetches this path from the daemon's metrics server.
    Http { path: String },
    /// Connects to `weftctl receive` on b and offers a file of this name.
    Intruder { name: String },
    /// Connects to `weftctl receive` on b, waits until this file exists, sends an empty file and hangs up without waiting for answers.
    Hasty { go: PathBuf },
}

impl Role {
    /// The command that plays this role inside `node`.
    pub(crate) fn command(&self, lab: &Lab, node: &str) -> Command {
        let own = std::env::current_exe().unwrap();
        let test = ["helper::play", "--exact", "--ignored", "--nocapture"].map(Into::into);
        let mut command = lab.inside(node, [own.into_os_string()].into_iter().chain(test));
        let (role, argument) = self.words();
        command.env(ROLE, role).env(ARGUMENT, argument);
        command
    }

    fn words(&self) -> (&'static str, String) {
        match self {
            Self::TcpServer { address } => ("tcp-server", address.clone()),
            Self::TcpClient { address, len } => ("tcp-client", format!("{address} {len}")),
            Self::Icmp { address } => ("icmp", address.clone()),
            Self::Http { path } => ("http", path.clone()),
            // The environment holds no zero bytes.
            Self::Intruder { name } => ("intruder", serde_json::to_string(name).unwrap()),
            Self::Hasty { go } => ("hasty", go.to_str().unwrap().to_owned()),
        }
    }
}

/// Lines between which a helper's result stands, apart from what the test harness says.
const BEGIN: &str = "<<<\n";
const END: &str = "\n>>>";

/// The result in what a helper said.
pub(crate) fn result(stdout: &str) -> &str {
    let result = stdout.split_once(BEGIN).and_then(|(_, rest)| rest.rsplit_once(END));
    result.unwrap_or_else(|| panic!("no result in {stdout}")).0
}

#[test]
#[ignore = "no test: what other tests start inside nodes"]
fn play() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let argument = std::env::var(ARGUMENT).unwrap_or_default();
    let result = match role.as_str() {
        "tcp-server" => tcp::serve(&argument),
        "tcp-client" => tcp::send(&argument),
        "icmp" => icmp::ping(&argument),
        "http" => http::get(&argument),
        "intruder" => intruder::offer(&serde_json::from_str::<String>(&argument).unwrap()),
        "hasty" => intruder::send_and_leave(argument.as_ref()),
        _ => panic!("no role {role}"),
    };
    println!("{BEGIN}{result}{END}");
}
