//! A lab's namespaces and cables.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use anyhow::Context as _;
use weft_config::lab::{Lab, LinkEnd, Node, Port};

use super::namespace;
use crate::exit::{Exit, failure};
use crate::netlink::{Netlink, VethEnd};

/// The network namespaces of a lab, one per node in the order of [`Lab::nodes`]. Dropping them removes all interfaces.
#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) namespaces: Vec<OwnedFd>,
}

impl Network {
    /// Creates namespaces, veth pairs and addresses of `lab`.
    pub(crate) fn build(lab: &Lab) -> anyhow::Result<Self> {
        let namespaces = lab.nodes.iter().map(|_| namespace::create_network()).collect::<io::Result<_>>().map_err(not_permitted)?;
        let network = Self { namespaces };
        for (index, node) in lab.nodes.iter().enumerate() {
            network.prepare(index).with_context(|| format!("node {}: cannot set up the namespace", node.name))?;
        }
        for index in 0..lab.links.len() {
            network.connect(lab, index).with_context(|| format!("links[{index}]: cannot create the veth pair"))?;
        }
        for (index, node) in lab.nodes.iter().enumerate() {
            network.bring_up(index, node).with_context(|| format!("node {}: cannot configure its interfaces", node.name))?;
        }
        Ok(network)
    }

    fn prepare(&self, node: usize) -> io::Result<()> {
        namespace::inside(self.namespaces[node].as_fd(), || {
            quiet_ipv6();
            Netlink::open()?.set_up("lo", true)
        })
    }

    fn connect(&self, lab: &Lab, link: usize) -> io::Result<()> {
        let link = &lab.links[link];
        let end = |end: LinkEnd| {
            let port = &lab.nodes[end.node].ports[end.port];
            VethEnd { name: &port.interface, mac: port.mac, mtu: link.mtu, namespace: self.namespaces[end.node].as_fd() }
        };
        let ends = link.ends.map(end);
        // From inside the first end's namespace: an ordinary user has no rights in the one it comes from.
        namespace::inside(ends[0].namespace, || Netlink::open()?.add_veth([&ends[0], &ends[1]]))
    }

    fn bring_up(&self, index: usize, node: &Node) -> io::Result<()> {
        namespace::inside(self.namespaces[index].as_fd(), || {
            let mut netlink = Netlink::open()?;
            node.ports.iter().try_for_each(|port| bring_up_port(&mut netlink, port))
        })
    }

    /// Brings one interface of a node up or down.
    pub(crate) fn set_up(&self, node: usize, interface: &str, up: bool) -> io::Result<()> {
        namespace::inside(self.namespaces[node].as_fd(), || Netlink::open()?.set_up(interface, up))
    }
}

fn bring_up_port(netlink: &mut Netlink, port: &Port) -> io::Result<()> {
    if let Some(address) = port.address {
        if address.ip.is_ipv6() {
            allow_ipv6(&port.interface);
        }
        netlink.add_address(&port.interface, address.ip, address.prefix)?;
    }
    netlink.set_up(&port.interface, true)
}

/// Keeps the kernel from sending neighbour discovery and multicast reports over interfaces that did not ask for it.
/// Best effort: a kernel without IPv6 has no such files, and noise does no harm.
fn quiet_ipv6() {
    for entry in ["all", "default"] {
        let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{entry}/disable_ipv6"), "1");
    }
}

fn allow_ipv6(interface: &str) {
    let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{interface}/disable_ipv6"), "0");
}

fn not_permitted(error: io::Error) -> anyhow::Error {
    let message = format!(
        "cannot create a network namespace: {error}; run as root (CAP_SYS_ADMIN and CAP_NET_ADMIN), or check that \
         /proc/sys/user/max_net_namespaces is not used up"
    );
    failure(Exit::NotPermitted, message)
}

/// Enters a user namespace unless this process may build networks as it is.
pub(crate) fn gain_rights() -> anyhow::Result<()> {
    if namespace::is_privileged()? {
        return Ok(());
    }
    namespace::enter_user_namespace().map_err(|error| failure(Exit::NotPermitted, user_namespace_help(&error)))
}

fn user_namespace_help(error: &io::Error) -> String {
    format!(
        "cannot create a user namespace: {error}; a lab needs either root (CAP_SYS_ADMIN and CAP_NET_ADMIN) or user namespaces for \
         ordinary users: /proc/sys/user/max_user_namespaces above 0, and where they exist kernel.unprivileged_userns_clone=1 \
         (Debian) and kernel.apparmor_restrict_unprivileged_userns=0 (Ubuntu); a container may also forbid it by its seccomp profile"
    )
}
