//! From the rings to the endpoint: whose requests are taken, how many, and what becomes of those that it refuses.
//!
//! Owns one application's page, queue pairs and shared receive queues. Called by [`super::table`] only.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use weft_proto::time::Instant;
use weft_proto::transport::{AppId, CommandError, Completion, CompletionOp, CqId, Endpoint, PostError, QpInit, QpNum, SrqId, Status};
use weft_verbs::layout::{DOORBELL_WORDS, DOORBELLS, Entry, RecvEntry, SendEntry};
use weft_verbs::page::Page;
use weft_verbs::protocol::Event;
use weft_verbs::ring::Consumer;

use super::completions::Completions;
use super::message::AppUpdate;

/// Requests taken from one queue pair or shared receive queue before the next one has its turn.
const QUANTUM: usize = 16;

/// A queue pair and its rings.
#[derive(Debug)]
pub(super) struct AppQp {
    pub(super) num: QpNum,
    pub(super) init: QpInit,
    pub(super) send_ring: Consumer<SendEntry>,
    pub(super) recv_ring: Consumer<RecvEntry>,
    /// Failed here: the endpoint knows it no more, and whatever is posted is flushed.
    pub(super) failed: bool,
}

/// A shared receive queue and its ring.
#[derive(Debug)]
pub(super) struct AppSrq {
    pub(super) id: SrqId,
    pub(super) depth: u32,
    pub(super) ring: Consumer<RecvEntry>,
    /// Completion queues that have room for all its receives.
    pub(super) cqs: Vec<CqId>,
    /// A receive made no sense: no more are taken.
    pub(super) failed: bool,
}

/// What a doorbell belongs to.
#[derive(Debug)]
pub(super) enum Queue {
    Qp(Box<AppQp>),
    Srq(AppSrq),
}

/// One attached application.
#[derive(Debug)]
pub(super) struct App {
    pub(super) id: AppId,
    pub(super) page: Page,
    pub(super) doorbell: OwnedFd,
    /// By doorbell.
    pub(super) queues: Vec<Option<Queue>>,
    /// Queues that may have requests waiting.
    rung: [u64; DOORBELL_WORDS],
    /// Queues whose next request must wait for another one to complete. They are no work before that: a ring can
    /// hold more than the agreed depth for as long as its application likes.
    blocked: [u64; DOORBELL_WORDS],
    /// Where the next round through `rung` begins.
    next_slot: usize,
}

/// What became of a queue's turn.
#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    taken: usize,
    /// Requests may be waiting still that nobody has looked at.
    more: bool,
    /// A request waits until another one completes.
    blocked: bool,
    /// The ring makes no sense.
    corrupt: bool,
}

/// What became of a request: taken, to wait, or to complete at once with a status.
type Verdict = Result<(), Option<Status>>;

/// Takes requests to the endpoint.
pub(super) struct Collector<'a> {
    pub(super) now: Instant,
    pub(super) endpoint: &'a mut Endpoint,
    pub(super) completions: &'a mut Completions,
    pub(super) updates: &'a mut VecDeque<AppUpdate>,
}

impl App {
    pub(super) const fn new(id: AppId, page: Page, doorbell: OwnedFd) -> Self {
        Self { id, page, doorbell, queues: Vec::new(), rung: [0; DOORBELL_WORDS], blocked: [0; DOORBELL_WORDS], next_slot: 0 }
    }

    pub(super) fn has_work(&self) -> bool {
        self.page.has_doorbells() || self.rung.iter().any(|word| *word != 0)
    }

    /// Something completed: what waited for that may be taken now.
    pub(super) fn rearm(&mut self) {
        for (rung, blocked) in self.rung.iter_mut().zip(&mut self.blocked) {
            *rung |= std::mem::take(blocked);
        }
    }

    /// A place for a queue.
    pub(super) fn free_slot(&mut self) -> Result<u16, CommandError> {
        let at = self.queues.iter().position(Option::is_none).unwrap_or(self.queues.len());
        if at == self.queues.len() {
            if at >= DOORBELLS {
                return Err(CommandError::LimitReached);
            }
            self.queues.push(None);
        }
        u16::try_from(at).map_err(|_| CommandError::LimitReached)
    }

    pub(super) fn qps_mut(&mut self) -> impl Iterator<Item = &mut AppQp> {
        self.queues.iter_mut().flatten().filter_map(|queue| match queue {
            Queue::Qp(qp) => Some(qp.as_mut()),
            Queue::Srq(_) => None,
        })
    }

    pub(super) fn srqs_mut(&mut self) -> impl Iterator<Item = &mut AppSrq> {
        self.queues.iter_mut().flatten().filter_map(|queue| match queue {
            Queue::Qp(_) => None,
            Queue::Srq(srq) => Some(srq),
        })
    }

    pub(super) fn take_qp(&mut self, num: QpNum) -> Option<AppQp> {
        let place = self.queues.iter_mut().find(|place| matches!(place, Some(Queue::Qp(qp)) if qp.num == num))?;
        match place.take() {
            Some(Queue::Qp(qp)) => Some(*qp),
            _ => None,
        }
    }

    pub(super) fn take_srq(&mut self, id: SrqId) -> Option<AppSrq> {
        let place = self.queues.iter_mut().find(|place| matches!(place, Some(Queue::Srq(srq)) if srq.id == id))?;
        match place.take() {
            Some(Queue::Srq(srq)) => Some(srq),
            _ => None,
        }
    }

    /// The first slot from `from` on that rang, going around the end.
    fn next_rung(&self, from: usize) -> Option<usize> {
        let (first, bit) = (from / 64 % DOORBELL_WORDS, from % 64);
        for step in 0..=DOORBELL_WORDS {
            let word = (first + step) % DOORBELL_WORDS;
            let mask = match step {
                0 => u64::MAX << bit,
                DOORBELL_WORDS => !(u64::MAX << bit),
                _ => u64::MAX,
            };
            let rung = self.rung[word] & mask;
            if rung != 0 {
                return Some(word * 64 + rung.trailing_zeros() as usize);
            }
        }
        None
    }

    /// Takes up to `budget` requests, a few from each queue that rang in turn.
    pub(super) fn collect(&mut self, collector: &mut Collector<'_>, budget: usize) -> usize {
        self.page.take_doorbells(&mut self.rung);
        let mut taken = 0;
        // Looking costs as well: doorbells may ring where nothing is.
        for _ in 0..budget {
            let Some(slot) = self.next_rung(self.next_slot).filter(|_| taken < budget) else { break };
            self.next_slot = slot + 1;
            let quantum = QUANTUM.min(budget - taken);
            let turn = self.collect_queue(collector, slot, quantum);
            taken += turn.taken;
            if !turn.more {
                let bit = 1 << (slot % 64);
                self.rung[slot / 64] &= !bit;
                self.blocked[slot / 64] |= if turn.blocked { bit } else { 0 };
            }
        }
        taken
    }

    fn collect_queue(&mut self, collector: &mut Collector<'_>, slot: usize, budget: usize) -> Turn {
        let srq = match self.queues.get_mut(slot) {
            Some(Some(Queue::Qp(qp))) => return collector.collect_qp(self.id, qp, budget),
            Some(Some(Queue::Srq(srq))) => srq,
            _ => return Turn::default(),
        };
        let (turn, id, failed) = (collector.collect_srq(self.id, srq, budget), srq.id, srq.failed);
        if failed {
            let app = self.id;
            self.qps_mut().filter(|qp| qp.init.srq == Some(id)).for_each(|qp| collector.fail(app, qp, Status::LocalProtection));
        }
        turn
    }
}

impl Collector<'_> {
    /// Takes up to `budget` requests of a queue pair, receives first: a send may already need them at the peer.
    fn collect_qp(&mut self, app: AppId, qp: &mut AppQp, budget: usize) -> Turn {
        let recvs = self.collect_ring(app, qp, budget, |qp| &mut qp.recv_ring, Self::post_recv);
        if recvs.corrupt {
            self.fail(app, qp, Status::LocalProtection);
        }
        let sends = self.collect_ring(app, qp, budget - recvs.taken, |qp| &mut qp.send_ring, Self::post_send);
        if sends.corrupt {
            self.fail(app, qp, Status::LocalProtection);
        }
        Turn {
            taken: recvs.taken + sends.taken,
            more: recvs.more || sends.more,
            blocked: recvs.blocked || sends.blocked,
            corrupt: recvs.corrupt || sends.corrupt,
        }
    }

    /// Takes up to `budget` receives of a shared receive queue. If it fails, its queue pairs are to fail with it.
    fn collect_srq(&mut self, app: AppId, srq: &mut AppSrq, budget: usize) -> Turn {
        let turn = self.collect_ring(app, srq, budget, |srq| &mut srq.ring, Self::post_shared);
        if turn.corrupt {
            self.fail_srq(app, srq);
        }
        turn
    }

    /// Takes requests out of one ring and posts them; `post` is false if its request must wait.
    fn collect_ring<Q, E: Entry>(
        &mut self,
        app: AppId,
        queue: &mut Q,
        budget: usize,
        ring: impl Fn(&mut Q) -> &mut Consumer<E>,
        post: impl Fn(&mut Self, AppId, &mut Q, &E) -> bool,
    ) -> Turn {
        let mut turn = Turn::default();
        loop {
            let Ok(next) = ring(queue).peek() else {
                turn.corrupt = true;
                break;
            };
            let Some(entry) = next else { break };
            if turn.taken == budget {
                turn.more = true;
                break;
            }
            if !post(self, app, queue, &entry) {
                turn.blocked = true;
                break;
            }
            ring(queue).advance();
            turn.taken += 1;
        }
        ring(queue).release();
        turn
    }

    /// False if the request must wait.
    fn post_send(&mut self, app: AppId, qp: &mut AppQp, entry: &SendEntry) -> bool {
        let verdict = match entry.decode() {
            _ if qp.failed => Err(Some(Status::Flushed)),
            Ok(work) => self.endpoint.post_send(self.now, app, qp.num, work).map_err(refusal),
            Err(_) => Err(Some(Status::LocalProtection)),
        };
        self.settle(app, qp, verdict, qp.init.send_cq, entry.wr_id, entry.completion_op())
    }

    /// False if the request must wait.
    fn post_recv(&mut self, app: AppId, qp: &mut AppQp, entry: &RecvEntry) -> bool {
        let verdict = match entry.decode() {
            _ if qp.failed => Err(Some(Status::Flushed)),
            Ok(work) => self.endpoint.post_recv(app, qp.num, work).map_err(refusal),
            Err(_) => Err(Some(Status::LocalProtection)),
        };
        self.settle(app, qp, verdict, qp.init.recv_cq, entry.wr_id, CompletionOp::Recv)
    }

    /// False if the receive must wait. One without meaning has no completion queue to end in: the queue fails as a whole.
    fn post_shared(&mut self, app: AppId, srq: &mut AppSrq, entry: &RecvEntry) -> bool {
        if srq.failed {
            return true;
        }
        let posted = entry.decode().map(|work| self.endpoint.post_srq_recv(app, srq.id, work));
        match posted {
            Ok(Ok(())) => true,
            Ok(Err(PostError::QueueFull)) => false,
            Ok(Err(_)) | Err(_) => {
                self.fail_srq(app, srq);
                true
            }
        }
    }

    fn fail_srq(&mut self, app: AppId, srq: &mut AppSrq) {
        if !srq.failed {
            srq.failed = true;
            self.updates.push_back(AppUpdate::Event { app, event: Event::SrqFailed { srq: srq.id } });
        }
    }

    /// Completes a request that was not taken, after everything that was posted before it. False if it must wait.
    fn settle(&mut self, app: AppId, qp: &mut AppQp, verdict: Verdict, cq: CqId, wr_id: u64, op: CompletionOp) -> bool {
        let status = match verdict {
            Ok(()) => return true,
            Err(None) => return false,
            Err(Some(status)) => status,
        };
        if status != Status::Flushed {
            self.fail(app, qp, status);
        }
        self.completions.drain(self.endpoint);
        let completion = Completion { wr_id, qp: qp.num, status, op, byte_len: 0, imm: None, invalidated: None, solicited: false };
        self.completions.push(app, cq, &completion);
        true
    }

    /// Fails a queue pair: what is outstanding is flushed, and the application told.
    pub(super) fn fail(&mut self, app: AppId, qp: &mut AppQp, status: Status) {
        if !qp.failed {
            qp.failed = true;
            // Refused only if the endpoint has lost the queue pair by itself, and that is what we want.
            let _ = self.endpoint.destroy_qp(self.now, app, qp.num);
            self.completions.drain(self.endpoint);
            self.updates.push_back(AppUpdate::Event { app, event: Event::QpFailed { qp: qp.num, status } });
        }
    }
}

/// How a request ends that the endpoint does not take; `None` if it must wait for others to complete.
const fn refusal(error: PostError) -> Option<Status> {
    match error {
        PostError::NoSuchQp | PostError::NoSuchSrq | PostError::WrongState => Some(Status::Flushed),
        PostError::TooLong => Some(Status::LocalLength),
        PostError::QueueFull => None,
    }
}
