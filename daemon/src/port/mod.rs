//! Ports: frames between the kernel's interfaces and the pool.
//!
//! Owns the packet sockets, their recovery and their counters. It decides nothing about frames: what comes in goes to
//! the switch or the endpoint as it was on the wire, tag included, and what it is given goes out. Called by the worker
//! only; no call waits. `unsafe` is confined to `sys` and `batch`.
//!
//! | module | owns |
//! | --- | --- |
//! | `packet` | many frames per system call; the default |
//! | `pnet` | the portable backend, one frame per call |
//! | `memory` | two ends in one process, for tests and benches |
//! | `state` | absent, down, up, and when to open anew |
//! | `ancillary`, `offload`, `filter` | what the kernel says beside the bytes, and what it is told |
//! | `batch`, `sys` | the system calls |

mod ancillary;
mod batch;
mod error;
mod fault;
mod filter;
mod intake;
mod interface;
mod memory;
mod offload;
mod packet;
mod pnet;
mod state;
mod sys;

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use weft_proto::wire::MacAddr;
use weft_proto::wire::eth::{ETH_HEADER, VLAN_HEADER};
use weft_proto::{DropCounts, DropReason, FrameRef, Instant, Pool};

use crate::link::{Link, LinkChange, LinkEvent};

pub use error::PortError;
use fault::Fault;
use memory::Memory;
use packet::Packet;
use pnet::Pnet;
pub use state::PortState;
use state::{Action, Machine};

/// Bytes that a pool for ports keeps free in front of a received frame: room for tags that are put back.
pub const HEADROOM: usize = 64;
/// Longest super-frame of ordinary traffic that the kernel's defaults produce: the longest IP packet.
const SUPER_FRAME: usize = 65_536;
/// A pool is made of pages.
const PAGE: usize = 4096;

/// What a port takes from its interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The EtherTypes of Weft only; the kernel keeps everything else.
    Host,
    /// Every frame.
    Switch,
}

/// How a port talks to the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// The fastest that works, which is [`Backend::Packet`] on every supported kernel.
    #[default]
    Auto,
    /// Packet sockets with many frames per call.
    Packet,
    /// pnet's datalink channel, one frame per call.
    Pnet,
}

/// A port as the operator configured it.
#[derive(Clone, Debug)]
pub struct PortSpec {
    /// Name of the port.
    pub name: String,
    /// Name of the interface.
    pub interface: String,
    /// What it takes.
    pub role: Role,
    /// How it talks to the kernel.
    pub backend: Backend,
    /// The EtherTypes of a host port.
    pub ethertypes: Vec<u16>,
    /// Most frames per system call.
    pub batch: usize,
}

/// What happened at a port beside the frames that the switch counts. The worker owns it and adds to it in every call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortCounters {
    /// Times that the kernel had no room for a frame, which was tried again later.
    pub tx_refusals: u64,
    /// Frames that the kernel dropped because this process did not fetch them in time.
    pub kernel_drops: u64,
    /// Times that the port was opened anew.
    pub reopens: u64,
    /// Frames dropped at the port.
    pub drops: DropCounts,
}

/// How a call of [`Port::rx`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum RxOutcome {
    /// Nothing more waits.
    Empty,
    /// The call took as much as it may; more may wait.
    More,
    /// The pool has no free chunk; frames wait in the kernel.
    NoBuffer,
    /// The port carries nothing.
    Down,
}

/// How a call of [`Port::tx`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum TxOutcome {
    /// The queue is empty.
    Drained,
    /// The kernel has no room now; the rest of the queue waits for another call, some microseconds later.
    Blocked,
    /// The port carries nothing; the queue was dropped.
    Down,
}

/// A port.
#[derive(Debug)]
pub struct Port {
    spec: PortSpec,
    machine: Machine,
    device: Device,
    link: Link,
    generation: u32,
    reopens: u64,
    /// Frames are to tell when they arrived.
    timestamps: bool,
}

/// The closed set of ways to move frames.
#[derive(Debug)]
enum Device {
    Packet(Packet),
    Pnet(Pnet),
    Memory(Memory),
    /// The interface is absent.
    Closed,
}

/// Chunk that a pool must have for ports of this role, for the whole frame, tags and headroom.
pub const fn required_chunk(role: Role, mtu: usize) -> usize {
    let payload = match role {
        Role::Host => mtu,
        Role::Switch if mtu > SUPER_FRAME => mtu,
        Role::Switch => SUPER_FRAME,
    };
    let frame = HEADROOM + longest_frame(payload);
    match role {
        Role::Host => frame.next_multiple_of(64),
        Role::Switch => frame.next_multiple_of(PAGE),
    }
}

/// Bytes of a frame with `payload` bytes behind its header and one tag.
const fn longest_frame(payload: usize) -> usize {
    payload + ETH_HEADER + VLAN_HEADER
}

impl Port {
    /// Opens a port on an interface that exists.
    ///
    /// # Errors
    /// If there is no such Ethernet interface, or the kernel refuses the socket or one of its options.
    pub fn open(spec: &PortSpec) -> Result<Self, PortError> {
        let link = interface::require(spec)?;
        interface::prepare(spec);
        let device = Device::open(spec, &link)?;
        let machine = Machine::opened(link.index, link.up);
        Ok(Self { spec: spec.clone(), machine, device, link, generation: 0, reopens: 0, timestamps: false })
    }

    /// Two ports of which each receives what the other sends; at most `depth` frames are under way in each direction.
    pub fn memory_pair(depth: usize) -> (Self, Self) {
        let (a, b) = memory::pair(depth);
        (Self::on_memory("a", 1, a), Self::on_memory("b", 2, b))
    }

    fn on_memory(name: &str, last_octet: u8, end: Memory) -> Self {
        let name = name.to_owned();
        let mac = MacAddr([2, 0, 0, 0, 0, last_octet]);
        let link = Link { index: 0, name: name.clone(), mac, mtu: memory::MTU, up: true, ethernet: true };
        let (interface, role, backend) = (name.clone(), Role::Switch, Backend::Auto);
        let spec = PortSpec { name, interface, role, backend, ethertypes: Vec::new(), batch: usize::MAX };
        Self { spec, machine: Machine::opened(0, true), device: Device::Memory(end), link, generation: 0, reopens: 0, timestamps: false }
    }

    /// Receives at most `budget` frames, and at most one batch, into chunks of the pool, and appends them to `out`.
    /// Never waits.
    pub fn rx(&mut self, pool: &mut Pool, out: &mut Vec<FrameRef>, budget: usize, counters: &mut PortCounters) -> RxOutcome {
        let result = match &mut self.device {
            Device::Packet(packet) => packet.rx(pool, out, budget, counters),
            Device::Pnet(pnet) => pnet.rx(pool, out, budget, counters),
            Device::Memory(memory) => return memory.rx(pool, out, budget, counters),
            Device::Closed => return RxOutcome::Down,
        };
        match result {
            Ok(outcome) => outcome,
            Err(fault) if self.is_up_after(fault) => RxOutcome::More,
            Err(_) => RxOutcome::Down,
        }
    }

    /// Sends from the front of the queue what the kernel takes now and frees it. What it refuses for want of room stays;
    /// after many refusals in a row the first frame is dropped. If the port is not up, the queue is dropped. Never waits.
    pub fn tx(&mut self, pool: &mut Pool, queue: &mut VecDeque<FrameRef>, counters: &mut PortCounters) -> TxOutcome {
        if self.machine.state() == PortState::Up {
            let result = match &mut self.device {
                Device::Packet(packet) => packet.tx(pool, queue, counters),
                Device::Pnet(pnet) => pnet.tx(pool, queue, counters),
                Device::Memory(memory) => return memory.tx(pool, queue, counters),
                Device::Closed => Err(Fault::Gone),
            };
            match result {
                Ok(outcome) => return outcome,
                Err(fault) if self.is_up_after(fault) => return TxOutcome::Blocked,
                Err(_) => {}
            }
        }
        counters.drops.add(DropReason::PortDown, queue.len() as u64);
        queue.drain(..).for_each(|frame| pool.free(frame));
        TxOutcome::Down
    }

    /// News about the interfaces of this machine; only those about this port's own matter.
    /// Returns whether anything about the port changed.
    pub fn handle_link(&mut self, event: &LinkEvent) -> bool {
        let before = (self.machine.state(), self.link.mtu, self.link.mac);
        if event.change == LinkChange::Gone {
            let action = self.machine.handle_gone(event.link.index);
            self.apply(action);
        } else if event.link.name == self.spec.interface {
            self.handle_present(&event.link);
        }
        before != (self.machine.state(), self.link.mtu, self.link.mac)
    }

    /// Opens the port anew if that is due. Returns whether it was opened: [`Self::fd`] is then another.
    pub fn handle_timeout(&mut self, now: Instant) -> bool {
        if self.machine.poll_timeout().is_none_or(|due| due > now) {
            return false;
        }
        match Self::open(&self.spec) {
            Ok(fresh) => {
                self.machine.handle_opened(fresh.link.index, fresh.link.up);
                (self.device, self.link) = (fresh.device, fresh.link);
                self.generation = self.generation.wrapping_add(1);
                self.reopens += 1;
                self.apply_timestamps();
                tracing::info!(port = %self.spec.name, interface = %self.spec.interface, index = self.link.index, "port opened anew");
                return true;
            }
            Err(PortError::NoSuchInterface { .. }) => self.machine.handle_not_found(),
            Err(error) => {
                tracing::warn!(port = %self.spec.name, %error, "port could not be opened anew; trying again");
                self.machine.handle_open_failed(now);
            }
        }
        false
    }

    /// Has frames tell when they arrived ([`Pool::arrived`]), as far as the backend knows; or no more.
    pub fn set_timestamps(&mut self, on: bool) {
        if on != self.timestamps {
            self.timestamps = on;
            self.apply_timestamps();
        }
    }

    fn apply_timestamps(&mut self) {
        if let Device::Packet(packet) = &mut self.device
            && let Err(error) = packet.set_timestamps(self.timestamps)
        {
            tracing::warn!(port = %self.spec.name, %error, "the kernel does not say when frames arrive; the times of batches stand in for them");
        }
    }

    /// Takes frames of these EtherTypes, if it is a host port; the kernel keeps everything else.
    ///
    /// # Errors
    /// If the kernel refuses: everything is as before then.
    pub fn set_ethertypes(&mut self, ethertypes: Vec<u16>) -> std::io::Result<()> {
        if self.spec.role == Role::Host && ethertypes != self.spec.ethertypes {
            if let Some(socket) = self.socket() {
                sys::attach_filter(socket, &filter::accept_only(&ethertypes))?;
            }
            self.spec.ethertypes = ethertypes;
        }
        Ok(())
    }

    /// When [`Self::handle_timeout`] has something to do.
    pub const fn poll_timeout(&self) -> Option<Instant> {
        self.machine.poll_timeout()
    }

    /// Adds what only the kernel and the port itself know to the counters. Costs a system call; for now and then.
    pub fn update_counters(&mut self, counters: &mut PortCounters) {
        let drops = match &self.device {
            Device::Packet(packet) => packet.take_kernel_drops(),
            Device::Pnet(pnet) => pnet.take_kernel_drops(),
            Device::Memory(_) | Device::Closed => 0,
        };
        counters.kernel_drops += drops;
        counters.reopens = self.reopens;
    }

    /// The descriptor to wait on for reading; `None` for a closed or a memory port. An error on it also calls for
    /// [`Self::rx`], which takes it off the socket.
    pub fn fd(&self) -> Option<RawFd> {
        self.socket().map(|socket| socket.as_raw_fd())
    }

    fn socket(&self) -> Option<BorrowedFd<'_>> {
        match &self.device {
            Device::Packet(packet) => Some(packet.socket()),
            Device::Pnet(pnet) => Some(pnet.socket()),
            Device::Memory(_) | Device::Closed => None,
        }
    }

    /// Grows each time that the port is opened anew, so that an owner who waits on [`Self::fd`] sees that it is another.
    pub const fn generation(&self) -> u32 {
        self.generation
    }

    /// Address of the interface, as last known.
    pub const fn mac(&self) -> MacAddr {
        self.link.mac
    }

    /// MTU of the interface in bytes, as last known.
    pub const fn mtu(&self) -> usize {
        self.link.mtu as usize
    }

    /// Absent, down or up.
    pub const fn state(&self) -> PortState {
        self.machine.state()
    }

    /// As configured.
    pub const fn spec(&self) -> &PortSpec {
        &self.spec
    }

    /// The backend in use: what `auto` became.
    pub const fn backend_name(&self) -> &'static str {
        match self.device {
            Device::Packet(_) => "packet",
            Device::Pnet(_) => "pnet",
            Device::Memory(_) => "memory",
            Device::Closed => "none",
        }
    }

    fn handle_present(&mut self, link: &Link) {
        let action = self.machine.handle_present(link.index, link.up);
        self.apply(action);
        if self.machine.state() != PortState::Absent {
            self.link.clone_from(link);
            if let Device::Pnet(pnet) = &mut self.device {
                pnet.set_mtu(self.link.mtu as usize);
            }
        }
    }

    /// A socket reports its fault once, and the news about it, even about its end, may have come first; so the kernel is
    /// asked how the interface is now.
    #[cold]
    fn is_up_after(&mut self, fault: Fault) -> bool {
        self.machine.handle_fault();
        tracing::info!(port = %self.spec.name, ?fault, "the port's socket reports a fault");
        match crate::link::find(&self.spec.interface) {
            Ok(Some(link)) => self.handle_present(&link),
            Ok(None) => {
                let action = self.machine.handle_gone(self.link.index);
                self.apply(action);
            }
            Err(error) => tracing::warn!(port = %self.spec.name, %error, "cannot ask the kernel about the interface"),
        }
        self.machine.state() == PortState::Up
    }

    fn apply(&mut self, action: Action) {
        match action {
            Action::Keep => {}
            Action::Close => self.device = Device::Closed,
        }
    }
}

impl Device {
    fn open(spec: &PortSpec, link: &Link) -> Result<Self, PortError> {
        match spec.backend {
            Backend::Auto | Backend::Packet => Packet::open(spec, link).map(Self::Packet),
            Backend::Pnet => Pnet::open(spec, link).map(Self::Pnet),
        }
    }
}

#[cfg(test)]
mod tests;
