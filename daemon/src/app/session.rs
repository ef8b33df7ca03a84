//! One attached application as the control thread sees it: requests in, commands and messages out.
//!
//! Owns the application's account and the messages waiting for it. Does no I/O but creating and mapping shared memory;
//! [`super::server`] moves the bytes. Every request is answered exactly once: at once if it is refused here, else when
//! the worker's reply comes. A message that cannot be understood ends the session.

use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::event::EventfdFlags;
use weft_config::model::Applications;
use weft_proto::stop::PRIORITIES;
use weft_proto::transport::{Access, AppId, CommandError, QpInit};
use weft_proto::wire::MacAddr;
use weft_verbs::layout::{CompletionEntry, Entry, MAX_RING, RecvEntry, SendEntry, VERSION};
use weft_verbs::page::Page;
use weft_verbs::protocol::{Command, ErrorCode, Event, FromDaemon, MAX_NAME, MAX_PRIVATE, Reply, Request};
use weft_verbs::ring::{Consumer, Producer, ring_len};
use weft_verbs::shm::{Block, ShmError};
use weft_verbs::socket::Received;

use super::account::{Account, Cost, Resource};
use super::message::{AppAction, AppCommand, AppDone};

/// Most send or receive requests of a queue pair, or receives of a shared receive queue.
pub const MAX_QP_DEPTH: u32 = 1 << 14;
/// Requests of one application that the worker has not answered; further ones stay in the socket.
const MAX_PENDING: usize = 64;
/// Messages that an application may leave unread (besides what its socket holds) before it is cut off.
const MAX_OUTGOING: usize = 1024;

/// What sessions need to know of the daemon.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The attach socket, and how much an application may have. Its memory counts with regions and rings.
    pub applications: Applications,
    /// This host's Ethernet address; `None` if it has no transport.
    pub mac: Option<MacAddr>,
    /// Names of hosts.
    pub hosts: BTreeMap<String, MacAddr>,
}

/// A request refused: the reason for programs and for people.
#[derive(Debug, PartialEq, Eq)]
struct Refusal(ErrorCode, String);

impl From<ShmError> for Refusal {
    fn from(error: ShmError) -> Self {
        let code = if matches!(error, ShmError::Os { .. }) { ErrorCode::System } else { ErrorCode::BadMemory };
        Self(code, error.to_string())
    }
}

impl From<std::io::Error> for Refusal {
    fn from(error: std::io::Error) -> Self {
        Self(ErrorCode::System, format!("weftd ran out of resources: {error}"))
    }
}

/// What a request comes to before the worker has seen it.
#[derive(Debug)]
struct Plan {
    action: AppAction,
    cost: Cost,
    /// For the application, with the reply.
    fds: Vec<OwnedFd>,
}

impl From<AppAction> for Plan {
    fn from(action: AppAction) -> Self {
        Self { action, cost: Cost::default(), fds: Vec::new() }
    }
}

/// A request that the worker has not answered.
#[derive(Debug)]
struct Pending {
    id: u64,
    cost: Cost,
    fds: Vec<OwnedFd>,
    outcome: Outcome,
}

/// What a reply of the worker means for account and answer.
#[derive(Clone, Copy, Debug)]
enum Outcome {
    Welcome(MacAddr),
    Create { rings: (u32, u32) },
    Destroy(Resource),
    Nothing,
}

/// A message for the application.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) bytes: Vec<u8>,
    pub(crate) fds: Vec<OwnedFd>,
}

/// The session of one application.
#[derive(Debug)]
pub struct AppSession {
    id: AppId,
    name: Option<String>,
    account: Account,
    pending: BTreeMap<u64, Pending>,
    /// A request that takes something, and came while something was being given back.
    held: Option<(Request, Vec<OwnedFd>)>,
    last_ticket: u64,
    outgoing: VecDeque<Outgoing>,
    ended: bool,
}

impl AppSession {
    pub(crate) fn new(id: AppId) -> Self {
        Self {
            id,
            name: None,
            account: Account::default(),
            pending: BTreeMap::new(),
            held: None,
            last_ticket: 0,
            outgoing: VecDeque::new(),
            ended: false,
        }
    }

    /// The application's own name; `None` before it has introduced itself.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Queue pairs, memory regions, and bytes of memory that it has.
    pub const fn usage(&self) -> (u32, u32, u64) {
        let used = self.account.used();
        (used.qps, used.regions, used.memory)
    }

    /// True if the session is over: what is outgoing may still be sent, then the connection closes.
    pub(crate) const fn has_ended(&self) -> bool {
        self.ended
    }

    /// True if the next message may be handled.
    pub(crate) fn wants_message(&self) -> bool {
        !self.ended && self.held.is_none() && self.pending.len() < MAX_PENDING
    }

    pub(crate) fn next_outgoing(&self) -> Option<&Outgoing> {
        self.outgoing.front()
    }

    pub(crate) fn outgoing_sent(&mut self) {
        self.outgoing.pop_front();
    }

    /// A message came: what the worker is to do about it.
    pub(crate) fn handle_message(&mut self, received: Received, settings: &Settings) -> Option<AppCommand> {
        let request: Request = match serde_json::from_slice(&received.bytes) {
            Ok(request) => request,
            Err(error) => {
                self.end(0, ErrorCode::BadMessage, format!("not a request of attach protocol version {VERSION}: {error}"));
                return None;
            }
        };
        if let Err(Refusal(code, message)) = self.check_order(&request.command, &received.fds) {
            self.end(request.id, code, message);
            return None;
        }
        self.held = Some((request, received.fds));
        self.go_on(settings)
    }

    /// Handles the request that was held, once nothing is in its way: what was given back before it counts for it.
    pub(crate) fn go_on(&mut self, settings: &Settings) -> Option<AppCommand> {
        let may_go_on = |(request, _): &mut (Request, Vec<OwnedFd>)| !takes(&request.command) || !gives_back(&self.pending);
        let (request, fds) = self.held.take_if(may_go_on)?;
        let outcome = Outcome::of(&request.command, settings);
        match self.plan(request.command, fds, settings) {
            Ok(plan) => Some(self.send_to_worker(request.id, plan, outcome)),
            Err(Refusal(code, message)) => {
                self.send(&FromDaemon::Error { id: request.id, code, message }, Vec::new());
                // Whoever may not attach has nothing to stay for.
                self.ended |= self.name.is_none();
                None
            }
        }
    }

    /// The socket brought something that is not a message.
    pub(crate) fn handle_garbage(&mut self) {
        self.end(0, ErrorCode::BadMessage, "a message has too many bytes or descriptors".to_owned());
    }

    /// The application closed its socket, or it broke.
    pub(crate) fn hang_up(&mut self) {
        self.outgoing.clear();
        self.ended = true;
    }

    /// The worker's answer came.
    pub(crate) fn handle_reply(&mut self, ticket: u64, result: Result<AppDone, CommandError>) {
        let Some(pending) = self.pending.remove(&ticket) else { return };
        match result {
            Ok(done) => {
                let reply = self.settle(&pending, done);
                self.send(&FromDaemon::Reply { id: pending.id, reply }, pending.fds);
            }
            Err(error) => {
                self.account.refund(pending.cost);
                let (code, message) = explain(error);
                self.send(&FromDaemon::Error { id: pending.id, code, message: message.to_owned() }, Vec::new());
            }
        }
    }

    /// Something happened that the application must know.
    pub(crate) fn handle_event(&mut self, event: Event) {
        self.send(&FromDaemon::Event { event }, Vec::new());
    }

    /// Books what the worker did and says it in the protocol's words.
    fn settle(&mut self, pending: &Pending, done: AppDone) -> Reply {
        match (done, pending.outcome) {
            (AppDone::Registered(keys), _) => {
                self.account.keep(Resource::Region(keys.lkey), pending.cost);
                Reply::Registered { lkey: keys.lkey, rkey: keys.rkey }
            }
            (AppDone::CqCreated(cq), Outcome::Create { rings: (capacity, _) }) => {
                self.account.keep(Resource::Cq(cq), pending.cost);
                Reply::CqCreated { cq, capacity }
            }
            (AppDone::QpCreated(qp, slot), Outcome::Create { rings: (sq_capacity, rq_capacity) }) => {
                self.account.keep(Resource::Qp(qp), pending.cost);
                Reply::QpCreated { qp, slot, sq_capacity, rq_capacity }
            }
            (AppDone::SrqCreated(srq, slot), Outcome::Create { rings: (capacity, _) }) => {
                self.account.keep(Resource::Srq(srq), pending.cost);
                Reply::SrqCreated { srq, slot, capacity }
            }
            (_, Outcome::Welcome(mac)) => Reply::Welcome { version: VERSION, mac },
            (_, Outcome::Destroy(resource)) => {
                self.account.release(resource);
                Reply::Done
            }
            (_, Outcome::Create { .. } | Outcome::Nothing) => Reply::Done,
        }
    }

    fn send_to_worker(&mut self, id: u64, plan: Plan, outcome: Outcome) -> AppCommand {
        self.last_ticket += 1;
        self.pending.insert(self.last_ticket, Pending { id, cost: plan.cost, fds: plan.fds, outcome });
        AppCommand { app: self.id, ticket: self.last_ticket, action: plan.action }
    }

    fn send(&mut self, message: &FromDaemon, fds: Vec<OwnedFd>) {
        if self.outgoing.len() >= MAX_OUTGOING {
            self.ended = true;
            return;
        }
        match serde_json::to_vec(message) {
            Ok(bytes) => self.outgoing.push_back(Outgoing { bytes, fds }),
            // Plain data always has a JSON form; without an answer the application would wait in vain.
            Err(_) => self.ended = true,
        }
    }

    pub(crate) fn end(&mut self, id: u64, code: ErrorCode, message: String) {
        self.send(&FromDaemon::Error { id, code, message }, Vec::new());
        self.ended = true;
    }

    /// Refuses what no application of this version does.
    fn check_order(&self, command: &Command, fds: &[OwnedFd]) -> Result<(), Refusal> {
        let bad = |text: &str| Err(Refusal(ErrorCode::BadMessage, text.to_owned()));
        let expected = usize::from(matches!(command, Command::RegisterMemory { .. }));
        match (matches!(command, Command::Hello { .. }), self.name.is_some()) {
            (true, true) => bad("hello was said already"),
            (false, false) => bad("the first request must be hello"),
            _ if fds.len() != expected => bad("the request comes with the wrong number of descriptors"),
            _ => Ok(()),
        }
    }

    /// Checks a request and prepares what the worker needs for it.
    fn plan(&mut self, command: Command, fds: Vec<OwnedFd>, settings: &Settings) -> Result<Plan, Refusal> {
        Ok(match command {
            Command::Hello { version, name } => self.plan_attach(version, name, settings)?,
            Command::RegisterMemory { base, len, access } => {
                check_alignment(base, access)?;
                let cost = Cost { regions: 1, memory: len, ..Cost::default() };
                self.charged(cost, settings, || {
                    let fd = fds.into_iter().next().ok_or(ShmError::NotMemfd)?;
                    Ok((AppAction::Register { block: Block::map(fd, len)?, base, access }, Vec::new()))
                })?
            }
            Command::CreateCq { depth } => self.plan_cq(depth, settings)?,
            Command::CreateQp { send_cq, recv_cq, sq_depth, rq_depth, recovery, priority, srq } => {
                check_priority(priority)?;
                let (recovery, srq) = (recovery.map(|offer| offer.0), srq.map(|name| name.0));
                let rq_depth = if srq.is_some() { 0 } else { rq_depth };
                self.plan_qp(QpInit { send_cq, recv_cq, sq_depth, rq_depth, srq, recovery, priority }, settings)?
            }
            Command::CreateSrq { depth } => self.plan_srq(depth, settings)?,
            Command::DestroySrq { srq } => AppAction::DestroySrq { srq }.into(),
            Command::SetSrqLimit { srq, limit } => AppAction::SetSrqLimit { srq, limit }.into(),
            Command::Drain { qp } => AppAction::Drain { qp }.into(),
            Command::Resume { qp } => AppAction::Resume { qp }.into(),
            Command::DeregisterMemory { lkey } => AppAction::Deregister { lkey }.into(),
            Command::DestroyCq { cq } => AppAction::DestroyCq { cq }.into(),
            Command::DestroyQp { qp } => AppAction::DestroyQp { qp }.into(),
            Command::Listen { service } => AppAction::Listen { service }.into(),
            Command::Unlisten { service } => AppAction::Unlisten { service }.into(),
            Command::Connect { qp, host, service, private } => {
                let peer = resolve(&host, &settings.hosts)?;
                AppAction::Connect { qp, peer, service, private: checked_private(private)? }.into()
            }
            Command::Accept { request, qp, private } => AppAction::Accept { request, qp, private: checked_private(private)? }.into(),
            Command::Reject { request, private } => AppAction::Reject { request, private: checked_private(private)? }.into(),
            Command::Disconnect { qp } => AppAction::Disconnect { qp }.into(),
        })
    }

    /// Charges `cost`, then prepares; refunds if that fails.
    fn charged(
        &mut self,
        cost: Cost,
        settings: &Settings,
        prepare: impl FnOnce() -> Result<(AppAction, Vec<OwnedFd>), Refusal>,
    ) -> Result<Plan, Refusal> {
        self.account.charge(cost, &settings.applications).map_err(|message| Refusal(ErrorCode::LimitReached, message))?;
        let prepared = prepare();
        if prepared.is_err() {
            self.account.refund(cost);
        }
        let (action, fds) = prepared?;
        Ok(Plan { action, cost, fds })
    }

    fn plan_attach(&mut self, version: u32, name: String, settings: &Settings) -> Result<Plan, Refusal> {
        if version != VERSION {
            let message = format!(
                "the application speaks version {version} of the attach protocol, weftd version {VERSION}: rebuild it against this weft-verbs"
            );
            return Err(Refusal(ErrorCode::VersionMismatch, message));
        }
        if settings.mac.is_none() {
            let message = "this weftd has no transport: give a port of its configuration the role `host`";
            return Err(Refusal(ErrorCode::NoTransport, message.to_owned()));
        }
        if name.is_empty() || name.len() > MAX_NAME || name.chars().any(char::is_control) {
            let message = format!("an application's name has 1 to {MAX_NAME} bytes and no control characters");
            return Err(Refusal(ErrorCode::BadArgument, message));
        }
        let (page, page_fd) = Page::create()?;
        let theirs = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(std::io::Error::from)?;
        let doorbell = theirs.try_clone()?;
        self.name = Some(name);
        Ok(Plan { action: AppAction::Attach { page, doorbell }, cost: Cost::default(), fds: vec![page_fd, theirs] })
    }

    fn plan_cq(&mut self, depth: u32, settings: &Settings) -> Result<Plan, Refusal> {
        let capacity = ring_capacity(depth, 1..=MAX_RING, "depth")?;
        let cost = Cost { cqs: 1, memory: ring_cost::<CompletionEntry>(capacity), ..Cost::default() };
        self.charged(cost, settings, || {
            let (ring, ring_fd) = Producer::create("weft-cq", capacity)?;
            let (wake, theirs) = UnixStream::pair()?;
            wake.set_nonblocking(true)?;
            Ok((AppAction::CreateCq { ring, wake }, vec![ring_fd, theirs.into()]))
        })
    }

    fn plan_srq(&mut self, depth: u32, settings: &Settings) -> Result<Plan, Refusal> {
        let capacity = ring_capacity(depth, 1..=MAX_QP_DEPTH, "depth")?;
        let cost = Cost { srqs: 1, memory: ring_cost::<RecvEntry>(capacity), ..Cost::default() };
        self.charged(cost, settings, || {
            let (ring, fd) = Consumer::create("weft-srq", capacity)?;
            Ok((AppAction::CreateSrq { depth, ring }, vec![fd]))
        })
    }

    fn plan_qp(&mut self, init: QpInit, settings: &Settings) -> Result<Plan, Refusal> {
        let send_capacity = ring_capacity(init.sq_depth, 1..=MAX_QP_DEPTH, "sq_depth")?;
        // A queue pair that only sends and writes needs no receives.
        let recv_capacity = ring_capacity(init.rq_depth, 0..=MAX_QP_DEPTH, "rq_depth")?;
        let memory = ring_cost::<SendEntry>(send_capacity) + ring_cost::<RecvEntry>(recv_capacity);
        self.charged(Cost { qps: 1, memory, ..Cost::default() }, settings, || {
            let (send_ring, send_fd) = Consumer::create("weft-sq", send_capacity)?;
            let (recv_ring, recv_fd) = Consumer::create("weft-rq", recv_capacity)?;
            Ok((AppAction::CreateQp { init, send_ring, recv_ring }, vec![send_fd, recv_fd]))
        })
    }
}

impl Outcome {
    fn of(command: &Command, settings: &Settings) -> Self {
        let rings = |first: u32, second: u32| Self::Create { rings: (power_of_two(first), power_of_two(second)) };
        match command {
            Command::Hello { .. } => Self::Welcome(settings.mac.unwrap_or_default()),
            Command::CreateCq { depth } | Command::CreateSrq { depth } => rings(*depth, 1),
            Command::CreateQp { sq_depth, srq: Some(_), .. } => rings(*sq_depth, 0),
            Command::CreateQp { sq_depth, rq_depth, .. } => rings(*sq_depth, *rq_depth),
            Command::DeregisterMemory { lkey } => Self::Destroy(Resource::Region(*lkey)),
            Command::DestroyCq { cq } => Self::Destroy(Resource::Cq(*cq)),
            Command::DestroyQp { qp } => Self::Destroy(Resource::Qp(*qp)),
            Command::DestroySrq { srq } => Self::Destroy(Resource::Srq(*srq)),
            _ => Self::Nothing,
        }
    }
}

impl Outgoing {
    pub(crate) fn borrowed_fds(&self) -> Vec<std::os::fd::BorrowedFd<'_>> {
        self.fds.iter().map(AsFd::as_fd).collect()
    }
}

/// True if the command is charged to the account.
const fn takes(command: &Command) -> bool {
    use Command::{CreateCq, CreateQp, CreateSrq, RegisterMemory};
    matches!(command, RegisterMemory { .. } | CreateCq { .. } | CreateQp { .. } | CreateSrq { .. })
}

/// True if the worker's answers will give something back to the account.
fn gives_back(pending: &BTreeMap<u64, Pending>) -> bool {
    pending.values().any(|pending| matches!(pending.outcome, Outcome::Destroy(_)))
}

fn power_of_two(depth: u32) -> u32 {
    depth.checked_next_power_of_two().unwrap_or(MAX_RING)
}

/// The ring for `depth` requests.
fn ring_capacity(depth: u32, allowed: RangeInclusive<u32>, field: &str) -> Result<u32, Refusal> {
    if allowed.contains(&depth) {
        return Ok(power_of_two(depth));
    }
    let message = format!("{field} is {depth}, allowed are {} to {}", allowed.start(), allowed.end());
    Err(Refusal(ErrorCode::BadArgument, message))
}

fn ring_cost<E: Entry>(capacity: u32) -> u64 {
    ring_len::<E>(capacity).and_then(|len| u64::try_from(len).ok()).unwrap_or(u64::MAX)
}

/// An atomic's address is a multiple of eight in the application's view and must be one in the mapping, too.
fn check_alignment(base: u64, access: Access) -> Result<(), Refusal> {
    if access.remote_atomic && !base.is_multiple_of(8) {
        let message = format!("base is {base}; for a region with the right to remote atomics it must be a multiple of 8");
        return Err(Refusal(ErrorCode::BadArgument, message));
    }
    Ok(())
}

fn check_priority(priority: Option<u8>) -> Result<(), Refusal> {
    match priority {
        Some(priority) if priority >= PRIORITIES => {
            let message = format!("priority is {priority}; a queue pair has one from 0, which stops first, to {}", PRIORITIES - 1);
            Err(Refusal(ErrorCode::BadArgument, message))
        }
        _ => Ok(()),
    }
}

fn checked_private(private: Vec<u8>) -> Result<Vec<u8>, Refusal> {
    if private.len() <= MAX_PRIVATE {
        return Ok(private);
    }
    Err(Refusal(ErrorCode::BadArgument, format!("private data has {} bytes, at most {MAX_PRIVATE} are allowed", private.len())))
}

fn resolve(host: &str, hosts: &BTreeMap<String, MacAddr>) -> Result<MacAddr, Refusal> {
    if let Some(mac) = hosts.get(host).copied().or_else(|| host.parse().ok()) {
        return Ok(mac);
    }
    let known: Vec<&str> = hosts.keys().map(String::as_str).collect();
    let message =
        format!("{host:?} is neither an Ethernet address nor a name under `hosts` of weftd's configuration ({})", known.join(", "));
    Err(Refusal(ErrorCode::UnknownHost, message))
}

/// The endpoint's refusal in the protocol's words.
const fn explain(error: CommandError) -> (ErrorCode, &'static str) {
    match error {
        CommandError::NoSuchQp => (ErrorCode::NotFound, "this application has no such queue pair"),
        CommandError::NoSuchSrq => (ErrorCode::NotFound, "this application has no such shared receive queue"),
        CommandError::NoSuchRegion => (ErrorCode::NotFound, "this application has no such memory region"),
        CommandError::NoSuchRequest => (ErrorCode::NotFound, "there is no such connection request, or it was answered or timed out"),
        CommandError::WrongState => {
            (ErrorCode::WrongState, "its state does not allow that (not connected, connected already, not drained, or still in use)")
        }
        CommandError::LimitReached => {
            (ErrorCode::LimitReached, "no room: a table of weftd, or the completion queue, is too small for more")
        }
        CommandError::BadArgument => (ErrorCode::BadArgument, "a depth, length, address or name is out of range"),
        CommandError::ServiceInUse => (ErrorCode::ServiceInUse, "another application listens on that service"),
    }
}
