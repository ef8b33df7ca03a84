//! What a switch and its ports are told by the operator. Values are taken as they are; the configuration crate
//! refuses nonsense with an explanation before it comes here.

use crate::switch::flow::{FlowConfig, FlowControl};
use crate::switch::impair::Impairment;
use crate::switch::marking::Marking;
use crate::switch::vlans::Vlans;
use crate::time::Duration;
use crate::units::BitRate;
use crate::wire::eth::{EtherType, MacAddr};

/// Traffic classes that fit the three bits of an 802.1Q priority.
pub const CLASSES_MAX: usize = 8;

/// Settings of the whole switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchConfig {
    /// Learned addresses at most; static ones come on top.
    pub mac_table_size: usize,
    /// A learned address that was not heard of for longer than this is forgotten.
    pub mac_ageing: Duration,
    /// Bytes that one virtual output queue may hold.
    pub voq_limit_bytes: u64,
    /// Queues per pair of input and output, 1 to [`CLASSES_MAX`].
    pub classes: u8,
    /// Share of each class at an output, relative to the others; 0 counts as 1.
    pub weights: [u32; CLASSES_MAX],
    /// Bytes that a queue of weight 1 may send per round. Raised to the longest frame of any port, so that every
    /// visit sends at least one ordinary frame.
    pub quantum: u32,
    /// So many of the highest classes are served before all others, the highest first.
    pub strict: u8,
    /// EtherType of stop control, whose frames are of the highest class whatever their tag says: a request to stop must not wait
    /// in the queue that it is to relieve.
    pub control: Option<EtherType>,
    /// For ports with flow control.
    pub flow: FlowConfig,
    /// When transport frames are marked; `None` = never.
    pub marking: Option<Marking>,
    /// Frames that the switch has room for: entries of all virtual output queues together (a flooded frame takes
    /// one per output), and entries of each delay line. The number of frames in the pool is a good value.
    pub frames: usize,
}

impl Default for SwitchConfig {
    fn default() -> Self {
        Self {
            mac_table_size: 8192,
            mac_ageing: Duration::from_secs(300),
            voq_limit_bytes: 256 * 1024,
            classes: 8,
            weights: [1; CLASSES_MAX],
            quantum: 1514,
            strict: 0,
            control: None,
            flow: FlowConfig::default(),
            marking: None,
            frames: 4096,
        }
    }
}

/// What stands behind a port, which says where its frames may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortRole {
    /// The transport of this machine. It has only the addresses set with [`Switch::set_static`](super::Switch::set_static), so frames
    /// to unknown addresses are not flooded to it.
    Local,
    /// An interface that carries this machine's own traffic: it exchanges frames with [`PortRole::Local`] only.
    Host,
    /// A port of the switch proper: it exchanges frames with the others of its kind and with [`PortRole::Local`].
    Switch,
}

impl PortRole {
    /// True if frames may pass from a port of this role to another port of role `to`.
    pub const fn reaches(self, to: Self) -> bool {
        matches!((self, to), (Self::Local, _) | (_, Self::Local) | (Self::Switch, Self::Switch))
    }
}

/// Settings of one port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortConfig {
    /// Who may exchange frames with it.
    pub role: PortRole,
    /// Speed at which frames leave, including [`FRAME_OVERHEAD`](super::FRAME_OVERHEAD); `None` = as fast as they are taken.
    pub rate: Option<BitRate>,
    /// Longest payload behind the Ethernet header (and 802.1Q tag) that may leave.
    pub mtu: usize,
    /// What happens to frames that come in, before anything else looks at them.
    pub impair_ingress: Impairment,
    /// What happens to frames that go out, after they left their queue at the port's rate.
    pub impair_egress: Impairment,
    /// VLANs that the port belongs to: frames of others are neither taken from it nor sent to it.
    pub vlans: Vlans,
    /// Whether the two ends of the link may stop each other.
    pub flow_control: FlowControl,
    /// Speed of the link where `rate` does not say: pause times are counted in its bit times.
    pub link_rate: BitRate,
    /// Address of the port's interface: source of the frames that the port makes itself.
    pub mac: MacAddr,
    /// Seed of this port's impairments; `None` = one drawn from the switch's own generator.
    pub seed: Option<u64>,
}

impl PortConfig {
    /// An unimpaired port of unlimited speed with the usual MTU of 1500 bytes.
    pub const fn new(role: PortRole) -> Self {
        Self {
            role,
            rate: None,
            mtu: 1500,
            impair_ingress: Impairment::NONE,
            impair_egress: Impairment::NONE,
            vlans: Vlans::ALL,
            flow_control: FlowControl::None,
            link_rate: BitRate::megabits(10_000),
            mac: MacAddr::ZERO,
            seed: None,
        }
    }
}
