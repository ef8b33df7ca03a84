//! The interface below a port: found, checked, and kept from making noise.

use std::{fs, io};

use super::{PortError, PortSpec, Role};
use crate::link::{Link, find};

/// The interface of a port, if it is an Ethernet interface that exists.
pub(super) fn require(spec: &PortSpec) -> Result<Link, PortError> {
    let link = find(&spec.interface).map_err(PortError::refused(spec, "look the interface up"))?;
    let (port, interface) = (spec.name.clone(), spec.interface.clone());
    match link {
        None => Err(PortError::NoSuchInterface { port, interface }),
        Some(link) if !link.ethernet => Err(PortError::NotEthernet { port, interface }),
        Some(link) => Ok(link),
    }
}

/// Prepares the interface of a switch port, as far as the process may. The kernel sends IPv6 discovery from every
/// interface by itself, and answers for addresses on it beside the switch.
pub(super) fn prepare(spec: &PortSpec) {
    if spec.role != Role::Switch {
        return;
    }
    if let Err(error) = silence_ipv6(&spec.interface) {
        tracing::info!(port = %spec.name, interface = %spec.interface, %error, "cannot switch IPv6 off on the interface; its own frames will appear on the wire");
    }
    if has_address(&spec.interface) {
        tracing::warn!(port = %spec.name, interface = %spec.interface, "the interface has an IP address: the kernel answers for it beside the switch; remove it with `ip address flush dev`");
    }
}

fn silence_ipv6(interface: &str) -> io::Result<()> {
    let path = format!("/proc/sys/net/ipv6/conf/{interface}/disable_ipv6");
    match fs::write(path, "1") {
        // A kernel without IPv6 makes no noise.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

fn has_address(interface: &str) -> bool {
    pnet::datalink::interfaces().iter().any(|found| found.name == interface && !found.ips.is_empty())
}
