//! Lab topologies: YAML to a validated [`Lab`].
//!
//! Owns what a topology may say, the names, addresses and port numbers that follow from it, and the text of every
//! node's configuration file. Creates nothing and touches no interface: `weftctl lab` does that with the result.

mod decode;
mod node_file;
mod overlay;
#[cfg(test)]
mod tests;

use std::fmt;
use std::net::IpAddr;
use std::path::Path;

use weft_proto::BitRate;
use weft_proto::switch::FlowControl;
use weft_proto::wire::MacAddr;

use crate::model::{Impairment, Words};
use crate::problem::ConfigErrors;
use crate::{Config, load, section};

/// Longest lab name in bytes. Unix socket paths hold 107 bytes, and the lab's and the node's name are part of one.
pub const LAB_NAME_MAX: usize = 24;
/// Longest node name in bytes, for the same reason.
pub const NODE_NAME_MAX: usize = 24;
/// Most nodes in a lab: every one is a network namespace and a daemon.
pub const NODES_MAX: usize = 256;
/// Most links of one node: the last byte of a generated MAC address numbers them.
pub const NODE_LINKS_MAX: usize = 255;

/// A topology that can be built: every name resolves, every value is in range.
#[derive(Clone, Debug)]
pub struct Lab {
    /// Name of the lab, which names its runtime folder.
    pub name: String,
    /// The nodes, by name.
    pub nodes: Vec<Node>,
    /// The links, in the order of the file.
    pub links: Vec<Link>,
}

/// A network namespace with a daemon in it.
#[derive(Clone, Debug)]
pub struct Node {
    /// Name, unique in the lab.
    pub name: String,
    /// What its ports do.
    pub kind: NodeKind,
    /// Its ends of links, in the order of the file.
    pub ports: Vec<Port>,
    /// Keys that replace or extend the generated configuration file.
    config: serde_yaml::Mapping,
}

/// What a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeKind {
    /// Runs applications; its ports leave ordinary traffic to the kernel.
    Host,
    /// Forwards between its ports.
    Switch,
}

impl Words for NodeKind {
    const WORDS: &'static [(&'static str, Self)] = &[("host", Self::Host), ("switch", Self::Switch)];
}

impl fmt::Display for NodeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// One end of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Name in the daemon's tables: the interface on a host, the neighbour on a switch.
    pub name: String,
    /// Name of the veth interface in the node's namespace.
    pub interface: String,
    /// Address of the interface: `02`, two bytes of the lab's name, two of the node's number, one of the port's.
    pub mac: MacAddr,
    /// The link, as an index into [`Lab::links`].
    pub link: usize,
    /// Address for ordinary traffic of the kernel, if any.
    pub address: Option<InterfaceAddress>,
}

/// An IP address with the length of its network's prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterfaceAddress {
    /// The address.
    pub ip: IpAddr,
    /// Prefix length in bits.
    pub prefix: u8,
}

/// A link: a veth pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Both ends.
    pub ends: [LinkEnd; 2],
    /// Largest Ethernet payload of both interfaces, in bytes.
    pub mtu: u32,
    /// Rate of each direction, `None` for as fast as it goes.
    pub rate: Option<BitRate>,
    /// Impairment of each direction.
    pub impairment: Impairment,
    /// Seed of the impairment.
    pub seed: u64,
    /// Whether its two ends may stop each other.
    pub flow_control: FlowControl,
    /// Which end's port applies the impairment: the switch's, else the first.
    pub impaired_end: usize,
}

/// Where a link ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkEnd {
    /// Index into [`Lab::nodes`].
    pub node: usize,
    /// Index into [`Node::ports`].
    pub port: usize,
}

impl Lab {
    /// Reads and checks the topology `text`, with everything that follows from it. `file` is its name in messages.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn from_yaml(text: &str, file: &str) -> Result<Self, ConfigErrors> {
        let lab = section::read_document(text, file, decode::lab)?;
        (0..lab.nodes.len()).try_for_each(|node| lab.check_node_file(node, file))?;
        Ok(lab)
    }

    /// Reads the topology in `path`. The result also has its text.
    ///
    /// # Errors
    /// If the file cannot be read, or everything that is wrong with its content.
    pub fn load(path: &Path) -> Result<(Self, String), ConfigErrors> {
        let text = load::read_file(path)?;
        Ok((Self::from_yaml(&text, &path.display().to_string())?, text))
    }

    /// What a node's own `config` keys make of its configuration file.
    fn check_node_file(&self, node: usize, file: &str) -> Result<(), ConfigErrors> {
        let text = self.node_file(node, Path::new("/run/weft/labs/name/node"));
        let config = format!("{file}: nodes.{}.config", self.nodes[node].name);
        let unplaced = |mut errors: ConfigErrors| {
            // Lines of the generated text would mean nothing to anybody.
            errors.problems.iter_mut().for_each(|problem| problem.line = None);
            errors
        };
        Config::from_yaml(&text, &config).map(drop).map_err(unplaced)
    }

    /// The same lab under another name; the addresses follow from the name and change too. `None` if `name` is no name for a lab.
    pub fn renamed(mut self, name: &str) -> Option<Self> {
        decode::check_name(name, LAB_NAME_MAX).ok()?;
        name.clone_into(&mut self.name);
        decode::assign_addresses(&mut self);
        Some(self)
    }

    /// The node of that name, as an index.
    pub fn node(&self, name: &str) -> Option<usize> {
        self.nodes.iter().position(|node| node.name == name)
    }

    /// Text of the configuration file of the node with index `node`, whose runtime folder is `folder`.
    pub fn node_file(&self, node: usize, folder: &Path) -> String {
        node_file::text(self, node, folder)
    }
}

/// Names of a node's files inside its runtime folder.
pub mod files {
    /// The daemon's configuration.
    pub const CONFIG: &str = "weftd.yaml";
    /// The daemon's control socket.
    pub const CONTROL_SOCKET: &str = "weftd.sock";
    /// The daemon's socket for applications.
    pub const APPLICATION_SOCKET: &str = "app.sock";
    /// What the daemon printed.
    pub const LOG: &str = "weftd.log";
}
