//! Nodes, cables and the clock.

use weft_proto::switch::{FlowControl, Switch};
use weft_proto::time::earliest;
use weft_proto::transport::Endpoint;
use weft_proto::{BitRate, Duration, Instant, Pool, PortId};

use crate::application::{Flow, Load};
use crate::cable::Cable;
use crate::node::{Node, NodeConfig, port_id};

/// Longest frame, with room for tags.
const CHUNK: usize = 1600;

/// A cable between two nodes, given by their indices.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    /// Its ends. The ports of a node are numbered in the order of the links.
    pub ends: [usize; 2],
    /// Its rate, each way.
    pub rate: BitRate,
    /// From one end to the other.
    pub delay: Duration,
    /// Whether its ends may stop each other.
    pub flow_control: FlowControl,
}

/// See the module.
#[derive(Debug)]
pub struct Network {
    now: Instant,
    pool: Pool,
    nodes: Vec<Node>,
    /// Per node and port, what leaves there.
    cables: Vec<Vec<Cable>>,
    /// When each node has something to do.
    due: Vec<Option<Instant>>,
}

impl Network {
    /// A network in which nothing has happened yet.
    pub fn new(nodes: &[NodeConfig], links: &[Link], seed: u64) -> Self {
        let mut cables: Vec<Vec<Cable>> = nodes.iter().map(|_| Vec::new()).collect();
        for link in links {
            let [a, b] = link.ends;
            let ports = [cables[a].len(), cables[b].len()].map(port_id);
            cables[a].push(Cable::new(b, ports[1], link.rate, link.delay));
            cables[b].push(Cable::new(a, ports[0], link.rate, link.delay));
        }
        let rates = |node: usize| -> Vec<_> {
            links.iter().filter(|link| link.ends.contains(&node)).map(|link| (link.rate, link.flow_control)).collect()
        };
        let frames: usize = nodes.iter().map(|node| node.switch.frames).sum();
        let nodes: Vec<_> =
            nodes.iter().enumerate().map(|(index, node)| Node::new(node, &rates(index), seed.wrapping_mul(1000) + index as u64)).collect();
        Self { now: Instant::from_nanos(1), pool: Pool::new(frames, CHUNK, 32), due: vec![None; nodes.len()], nodes, cables }
    }

    /// The time.
    pub const fn now(&self) -> Instant {
        self.now
    }

    /// The switch of a node.
    pub fn switch(&self, node: usize) -> &Switch {
        &self.nodes[node].switch
    }

    /// The transport of a host.
    ///
    /// # Panics
    /// If the node is none.
    pub fn endpoint(&self, host: usize) -> &Endpoint {
        &self.nodes[host].local.as_ref().expect("a host").endpoint
    }

    /// The port of a node that leads to another one.
    ///
    /// # Panics
    /// If there is no cable between them.
    pub fn port_towards(&self, node: usize, neighbour: usize) -> PortId {
        port_id(self.cables[node].iter().position(|cable| cable.node == neighbour).expect("a cable"))
    }

    /// Starts a load of a priority (0 to 15) from one host to another at `begins`; returns what [`Network::flow`] wants.
    ///
    /// # Panics
    /// If one of them is not a host, or the sender has no room for a queue pair.
    pub fn start(&mut self, from: usize, to: usize, load: Load, priority: u8, begins: Instant) -> (usize, usize) {
        let peer = {
            let local = self.nodes[to].local.as_ref().expect("a host");
            (local.mac, local.applications.rkey)
        };
        let local = self.nodes[from].local.as_mut().expect("a host");
        let index = local.applications.start(self.now, &mut local.endpoint, peer, (load, priority), begins);
        self.due[from] = Some(self.now);
        (from, index)
    }

    /// A load at work.
    ///
    /// # Panics
    /// If there is none.
    pub fn flow(&self, (host, index): (usize, usize)) -> &Flow {
        &self.nodes[host].local.as_ref().expect("a host").applications.flows[index]
    }

    /// Lets time pass.
    pub fn run_until(&mut self, end: Instant) {
        loop {
            let next = self.due.iter().copied().fold(None, earliest).unwrap_or(end);
            if next >= end {
                self.now = end;
                return;
            }
            self.now = self.now.max(next);
            for node in 0..self.nodes.len() {
                if self.due[node].is_some_and(|due| due <= self.now) {
                    self.step(node);
                }
            }
        }
    }

    fn step(&mut self, index: usize) {
        self.receive(index);
        let node = &mut self.nodes[index];
        node.run(self.now, &mut self.pool);
        for (port, cable) in self.cables[index].iter_mut().enumerate() {
            node.send(self.now, &mut self.pool, port_id(port));
            for frame in node.out.drain(..) {
                let bytes = self.pool.bytes(&frame).len() as u64;
                cable.send(self.now, frame, bytes);
            }
            self.due[cable.node] = earliest(self.due[cable.node], cable.next());
        }
        // Time goes on even if a node would rather act again at once.
        let due = self.nodes[index].due().map(|due| due.max(self.now + Duration::from_nanos(1)));
        self.due[index] = earliest(due, self.incoming(index).filter_map(|(neighbour, port)| self.cables[neighbour][port].next()).min());
    }

    /// The cables that end at a node.
    fn incoming(&self, index: usize) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.cables[index].iter().map(|cable| (cable.node, cable.port.index()))
    }

    fn receive(&mut self, index: usize) {
        for port in 0..self.cables[index].len() {
            let (neighbour, there) = (self.cables[index][port].node, self.cables[index][port].port.index());
            while let Some(frame) = self.cables[neighbour][there].pop_due(self.now) {
                self.pool.set_arrived(&frame, self.now);
                self.nodes[index].switch.ingest(self.now, &mut self.pool, port_id(port), frame);
            }
        }
    }
}
