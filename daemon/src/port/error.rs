//! Why a port cannot be opened, in words that say what to do.

use std::io;

use super::PortSpec;

/// A port cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// The interface does not exist in this network namespace.
    #[error("port {port}: there is no interface {interface} in this network namespace; `ip link` lists those that exist")]
    NoSuchInterface {
        /// Name of the port.
        port: String,
        /// Name of the interface.
        interface: String,
    },
    /// The interface is of another kind.
    #[error("port {port}: interface {interface} does not speak Ethernet; name an Ethernet, veth or bridge interface")]
    NotEthernet {
        /// Name of the port.
        port: String,
        /// Name of the interface.
        interface: String,
    },
    /// The process may not open packet sockets.
    #[error(
        "port {port}: not permitted to {step} on {interface}; run as root or with CAP_NET_RAW and CAP_NET_ADMIN, or in a user and network namespace of your own"
    )]
    NotPermitted {
        /// Name of the port.
        port: String,
        /// Name of the interface.
        interface: String,
        /// What was refused.
        step: &'static str,
    },
    /// The kernel refused a step for another reason.
    #[error("port {port}: cannot {step} on {interface}: {source}; Linux 5.10 or later with AF_PACKET is needed")]
    Refused {
        /// Name of the port.
        port: String,
        /// Name of the interface.
        interface: String,
        /// What was refused.
        step: &'static str,
        /// The kernel's reason.
        source: io::Error,
    },
}

impl PortError {
    /// Makes an error of a step that the kernel refused; for `map_err`.
    pub(super) fn refused(spec: &PortSpec, step: &'static str) -> impl FnOnce(io::Error) -> Self {
        let (port, interface) = (spec.name.clone(), spec.interface.clone());
        move |source| match source.kind() {
            io::ErrorKind::PermissionDenied => Self::NotPermitted { port, interface, step },
            _ => Self::Refused { port, interface, step, source },
        }
    }
}
