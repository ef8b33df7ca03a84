//! All attached applications as the worker sees them.
//!
//! Owns the mapped rings, pages and regions. Every breath the worker calls [`AppTable::collect_work`] and
//! [`AppTable::deliver`]; commands from the control thread go through [`AppTable::execute`]; what comes of all this for
//! the control thread is in [`AppTable::poll_update`]. No allocation and no system call per request, but for waking an
//! application that sleeps.
//!
//! Exactly one completion per request: what the endpoint does not take completes here with an error. A request
//! without meaning fails its queue pair, as it would on an adapter: what was posted before is flushed, this one
//! completes with its error, what comes after is flushed. Requests beyond the agreed depth wait in
//! the ring until others complete; the worker may sleep meanwhile.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{Ordering, fence};

use weft_proto::time::Instant;
use weft_proto::transport::{
    AppId, AtomicOp, CommandError, CqId, Endpoint, Event as EndpointEvent, MemId, Memory, MemoryGone, QpInit, QpNum, SrqId, Status,
};
use weft_verbs::layout::{RecvEntry, SendEntry};
use weft_verbs::page::Page;
use weft_verbs::protocol::Event;
use weft_verbs::ring::Consumer;
use weft_verbs::shm::Block;

use super::collect::{App, AppQp, AppSrq, Collector, Queue};
use super::completions::Completions;
use super::mappings::Mappings;
use super::message::{AppAction, AppCommand, AppDone, AppUpdate};
use super::waker::Waker;

/// All attached applications.
#[derive(Debug)]
pub struct AppTable {
    apps: Vec<App>,
    next_app: usize,
    completions: Completions,
    mappings: Mappings,
    updates: VecDeque<AppUpdate>,
    waker: Waker,
}

impl AppTable {
    /// No applications yet.
    ///
    /// # Errors
    /// When the system has no descriptors left.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            apps: Vec::new(),
            next_app: 0,
            completions: Completions::default(),
            mappings: Mappings::default(),
            updates: VecDeque::new(),
            waker: Waker::new()?,
        })
    }

    /// Readable when an application rang while the worker slept.
    pub fn wake_fd(&self) -> BorrowedFd<'_> {
        self.waker.fd()
    }

    /// Takes up to `budget` requests to the endpoint and returns how many. If it is all of `budget`, more may wait.
    pub fn collect_work(&mut self, now: Instant, endpoint: &mut Endpoint, budget: usize) -> usize {
        let mut left = budget;
        let count = self.apps.len();
        let mut collector = Collector { now, endpoint, completions: &mut self.completions, updates: &mut self.updates };
        for step in 0..count {
            let app = &mut self.apps[(self.next_app + step) % count];
            left -= app.collect(&mut collector, left);
        }
        self.next_app = self.next_app.wrapping_add(1) % count.max(1);
        budget - left
    }

    /// Moves completions to the applications and events to [`AppTable::poll_update`].
    pub fn deliver(&mut self, now: Instant, endpoint: &mut Endpoint) {
        self.completions.drain(endpoint);
        self.handle_overruns(now, endpoint);
        if self.completions.take_freed() {
            self.apps.iter_mut().for_each(App::rearm);
        }
        self.completions.publish();
        while let Some((app, event)) = endpoint.poll_event() {
            self.updates.push_back(AppUpdate::Event { app, event: translate(event) });
        }
    }

    /// Before the worker sleeps: announces that to the applications. False, and the announcement taken back, if there is
    /// work, so that it must not sleep.
    pub fn prepare_sleep(&mut self) -> bool {
        self.announce_sleep(true);
        // Pairs with the fence of `Page::ring`: either we see the doorbell or the application sees us sleeping.
        fence(Ordering::SeqCst);
        let may_sleep = !self.apps.iter().any(App::has_work);
        if !may_sleep {
            // Whoever rang its eventfd meanwhile ends the next sleep early, once.
            self.announce_sleep(false);
        }
        may_sleep
    }

    /// After the worker slept.
    pub fn finish_sleep(&mut self) {
        self.announce_sleep(false);
        self.waker.clear();
    }

    fn announce_sleep(&self, sleeping: bool) {
        self.apps.iter().for_each(|app| app.page.set_sleeping(sleeping));
    }

    /// True if nothing of any application is left.
    pub fn is_empty(&self) -> bool {
        self.apps.is_empty() && self.completions.is_empty() && self.mappings.is_empty()
    }

    /// News for the control thread.
    pub fn poll_update(&mut self) -> Option<AppUpdate> {
        self.updates.pop_front()
    }

    /// Carries out a command; the reply is in [`AppTable::poll_update`].
    pub fn execute(&mut self, now: Instant, command: AppCommand, endpoint: &mut Endpoint) {
        let AppCommand { app, ticket, action } = command;
        let mut retired = Vec::new();
        let result = self.act(now, app, action, endpoint, &mut retired);
        self.updates.push_back(AppUpdate::Reply { app, ticket, result, retired });
        self.deliver(now, endpoint);
    }

    fn act(
        &mut self,
        now: Instant,
        app: AppId,
        action: AppAction,
        endpoint: &mut Endpoint,
        retired: &mut Vec<Block>,
    ) -> Result<AppDone, CommandError> {
        let done = |()| AppDone::Done;
        match action {
            AppAction::Attach { page, doorbell } => self.attach(app, page, doorbell).map(done),
            AppAction::Register { block, base, access } => {
                let len = u64::try_from(block.len()).map_err(|_| CommandError::BadArgument)?;
                self.register(app, block, retired, |mem| endpoint.register(app, mem, base, len, access).map(AppDone::Registered))
            }
            AppAction::Deregister { lkey } => {
                let mem = endpoint.deregister(app, lkey)?;
                retired.extend(self.mappings.remove(mem));
                Ok(AppDone::Done)
            }
            AppAction::CreateCq { ring, wake } => self.completions.create(app, ring, wake).map(AppDone::CqCreated),
            AppAction::DestroyCq { cq } => self.destroy_cq(app, cq, retired).map(done),
            AppAction::CreateQp { init, send_ring, recv_ring } => self.create_qp(app, endpoint, init, send_ring, recv_ring),
            AppAction::DestroyQp { qp } => self.destroy_qp(now, app, endpoint, qp, retired).map(done),
            AppAction::CreateSrq { depth, ring } => self.create_srq(app, endpoint, depth, ring),
            AppAction::DestroySrq { srq } => self.destroy_srq(app, endpoint, srq, retired).map(done),
            AppAction::SetSrqLimit { srq, limit } => endpoint.set_srq_limit(app, srq, limit).map(done),
            AppAction::Drain { qp } => endpoint.drain(app, qp).map(done),
            AppAction::Resume { qp } => endpoint.resume(app, qp).map(done),
            AppAction::Listen { service } => endpoint.listen(app, service).map(done),
            AppAction::Unlisten { service } => endpoint.unlisten(app, service).map(done),
            AppAction::Connect { qp, peer, service, private } => endpoint.connect(now, app, qp, peer, service, &private).map(done),
            AppAction::Accept { request, qp, private } => endpoint.accept(now, app, request, qp, &private).map(done),
            AppAction::Reject { request, private } => endpoint.reject(app, request, &private).map(done),
            AppAction::Disconnect { qp } => endpoint.disconnect(now, app, qp).map(done),
            AppAction::Release => {
                self.release(now, app, endpoint, retired);
                Ok(AppDone::Done)
            }
        }
    }

    fn attach(&mut self, id: AppId, page: Page, doorbell: OwnedFd) -> Result<(), CommandError> {
        self.waker.add(&doorbell).map_err(|_| CommandError::LimitReached)?;
        self.apps.push(App::new(id, page, doorbell));
        Ok(())
    }

    fn register(
        &mut self,
        app: AppId,
        block: Block,
        retired: &mut Vec<Block>,
        register: impl FnOnce(MemId) -> Result<AppDone, CommandError>,
    ) -> Result<AppDone, CommandError> {
        let mem = self.mappings.insert(app, block).map_err(|block| {
            retired.push(block);
            CommandError::LimitReached
        })?;
        register(mem).inspect_err(|_| retired.extend(self.mappings.remove(mem)))
    }

    fn app(&mut self, app: AppId) -> Result<&mut App, CommandError> {
        self.apps.iter_mut().find(|known| known.id == app).ok_or(CommandError::BadArgument)
    }

    fn destroy_cq(&mut self, app: AppId, cq: CqId, retired: &mut Vec<Block>) -> Result<(), CommandError> {
        retired.push(self.completions.destroy(app, cq)?);
        // Its name may be given to another one, where these have no room reserved.
        self.app(app)?.srqs_mut().for_each(|srq| srq.cqs.retain(|known| *known != cq));
        Ok(())
    }

    fn create_srq(&mut self, app: AppId, endpoint: &mut Endpoint, depth: u32, ring: Consumer<RecvEntry>) -> Result<AppDone, CommandError> {
        let owner = self.app(app)?;
        let slot = owner.free_slot()?;
        let id = endpoint.create_srq(app, depth)?;
        owner.queues[usize::from(slot)] = Some(Queue::Srq(AppSrq { id, depth, ring, cqs: Vec::new(), failed: false }));
        Ok(AppDone::SrqCreated(id, slot))
    }

    fn destroy_srq(&mut self, app: AppId, endpoint: &mut Endpoint, id: SrqId, retired: &mut Vec<Block>) -> Result<(), CommandError> {
        let owner = self.app(app)?;
        // A failed queue pair is none of the endpoint's any more, but may still be destroyed after this.
        if owner.qps_mut().any(|qp| qp.init.srq == Some(id)) {
            return Err(CommandError::WrongState);
        }
        endpoint.destroy_srq(app, id)?;
        let srq = owner.take_srq(id).ok_or(CommandError::NoSuchSrq)?;
        srq.cqs.iter().for_each(|cq| self.completions.let_go(app, *cq, srq.depth));
        retired.push(srq.ring.into_block());
        Ok(())
    }

    fn create_qp(
        &mut self,
        app: AppId,
        endpoint: &mut Endpoint,
        init: QpInit,
        send_ring: Consumer<SendEntry>,
        recv_ring: Consumer<RecvEntry>,
    ) -> Result<AppDone, CommandError> {
        let slot = self.app(app)?.free_slot()?;
        self.completions.reserve(app, init.send_cq, init.sq_depth)?;
        let undo_send = |completions: &mut Completions| completions.unreserve(app, init.send_cq, init.sq_depth);
        self.completions.reserve(app, init.recv_cq, init.rq_depth).inspect_err(|_| undo_send(&mut self.completions))?;
        let created = self.reserve_shared(app, &init).and_then(|()| endpoint.create_qp(app, init));
        let num = created.inspect_err(|_| {
            undo_send(&mut self.completions);
            self.completions.unreserve(app, init.recv_cq, init.rq_depth);
        })?;
        let qp = AppQp { num, init, send_ring, recv_ring, failed: false };
        self.app(app)?.queues[usize::from(slot)] = Some(Queue::Qp(Box::new(qp)));
        Ok(AppDone::QpCreated(num, slot))
    }

    /// Makes sure that there is room for all receives of the shared queue, if there is one, where this queue pair's
    /// receives complete. It stays reserved until either queue is destroyed.
    fn reserve_shared(&mut self, app: AppId, init: &QpInit) -> Result<(), CommandError> {
        let Some(id) = init.srq else { return Ok(()) };
        let owner = self.apps.iter_mut().find(|known| known.id == app).ok_or(CommandError::BadArgument)?;
        let srq = owner.srqs_mut().find(|srq| srq.id == id).ok_or(CommandError::NoSuchSrq)?;
        if !srq.cqs.contains(&init.recv_cq) {
            self.completions.hold(app, init.recv_cq, srq.depth)?;
            srq.cqs.push(init.recv_cq);
        }
        Ok(())
    }

    fn destroy_qp(
        &mut self,
        now: Instant,
        app: AppId,
        endpoint: &mut Endpoint,
        num: QpNum,
        retired: &mut Vec<Block>,
    ) -> Result<(), CommandError> {
        let qp = self.app(app).ok().and_then(|owner| owner.take_qp(num)).ok_or(CommandError::NoSuchQp)?;
        if !qp.failed {
            // The endpoint may have lost it by itself; it is gone in any case.
            let _ = endpoint.destroy_qp(now, app, num);
        }
        // Its last completions, before its room in the completion queues is given back.
        self.completions.drain(endpoint);
        self.completions.unreserve(app, qp.init.send_cq, qp.init.sq_depth);
        self.completions.unreserve(app, qp.init.recv_cq, qp.init.rq_depth);
        retired.extend([qp.send_ring.into_block(), qp.recv_ring.into_block()]);
        Ok(())
    }

    fn release(&mut self, now: Instant, id: AppId, endpoint: &mut Endpoint, retired: &mut Vec<Block>) {
        // Everything of the application may be unmapped now: the endpoint touches none of it any more.
        let _ = endpoint.release(now, id);
        self.completions.drain(endpoint);
        retired.extend(self.completions.destroy_all(id));
        retired.extend(self.mappings.remove_all(id));
        if let Some(at) = self.apps.iter().position(|app| app.id == id) {
            let app = self.apps.swap_remove(at);
            self.waker.remove(&app.doorbell);
            for queue in app.queues.into_iter().flatten() {
                match queue {
                    Queue::Qp(qp) => retired.extend([qp.send_ring.into_block(), qp.recv_ring.into_block()]),
                    Queue::Srq(srq) => retired.push(srq.ring.into_block()),
                }
            }
        }
    }

    /// A completion queue without room takes its queue pairs with it.
    fn handle_overruns(&mut self, now: Instant, endpoint: &mut Endpoint) {
        while let Some((id, cq)) = self.completions.take_overrun() {
            self.updates.push_back(AppUpdate::Event { app: id, event: Event::CqOverrun { cq } });
            let mut collector = Collector { now, endpoint, completions: &mut self.completions, updates: &mut self.updates };
            let owner = self.apps.iter_mut().filter(|app| app.id == id);
            for qp in owner.flat_map(App::qps_mut).filter(|qp| qp.init.send_cq == cq || qp.init.recv_cq == cq) {
                collector.fail(id, qp, Status::LocalLength);
            }
        }
    }
}

impl Memory for AppTable {
    fn read(&self, mem: MemId, offset: u64, out: &mut [u8]) -> Result<(), MemoryGone> {
        self.mappings.read(mem, offset, out)
    }

    fn write(&mut self, mem: MemId, offset: u64, data: &[u8]) -> Result<(), MemoryGone> {
        self.mappings.write(mem, offset, data)
    }

    fn atomic(&mut self, mem: MemId, offset: u64, op: AtomicOp) -> Result<u64, MemoryGone> {
        self.mappings.atomic(mem, offset, op)
    }
}

/// The endpoint's event in the protocol's words.
fn translate(event: EndpointEvent) -> Event {
    match event {
        EndpointEvent::ConnectRequest { request, service, peer, private } => Event::ConnectRequest { request, service, peer, private },
        EndpointEvent::Established { qp, private, recovery } => Event::Established { qp, private, recovery },
        EndpointEvent::ConnectFailed { qp, reason, private } => Event::ConnectFailed { qp, reason, private },
        EndpointEvent::Disconnected { qp } => Event::Disconnected { qp },
        EndpointEvent::QpFailed { qp, status } => Event::QpFailed { qp, status },
        EndpointEvent::SendQueueDrained { qp } => Event::SendQueueDrained { qp },
        EndpointEvent::SendQueueFailed { qp, status } => Event::SendQueueFailed { qp, status },
        EndpointEvent::SrqLimit { srq } => Event::SrqLimit { srq },
    }
}
