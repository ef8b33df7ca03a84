//! The connection to the daemon, shared by everything that an application creates from one `Context`.
//!
//! Any thread may ask or wait. At most one waits in the kernel (`reading`); it sorts what arrives into answers and
//! events and wakes the others, which sleep on the condition variable meanwhile.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;

use crate::error::Error;
use crate::layout::VERSION;
use crate::page::Page;
use crate::protocol::{Command, ErrorCode, Event, FromDaemon, Reply, Request};
use crate::socket::{self, Received};
use weft_proto::transport::QpNum;
use weft_proto::wire::MacAddr;

/// How long the daemon may take to answer a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// The answer to a request.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) reply: Reply,
    pub(crate) fds: Vec<OwnedFd>,
}

type Outcome = Result<Answer, (ErrorCode, String)>;

#[derive(Debug)]
struct State {
    last_id: u64,
    /// Requests whose answer somebody waits for.
    outcomes: BTreeMap<u64, Option<Outcome>>,
    events: VecDeque<Event>,
    /// Queue pairs whose outcome a call waits for: their events are that call's, not anybody's.
    expected: Vec<QpNum>,
    reading: bool,
    buffer: Vec<u8>,
}

#[derive(Debug)]
pub(crate) struct Link {
    socket: OwnedFd,
    page: Page,
    doorbell: OwnedFd,
    mac: MacAddr,
    gone: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

impl Link {
    /// Connects and introduces the application.
    pub(crate) fn attach(path: &Path, name: &str) -> Result<Self, Error> {
        let socket = socket::connect(path).map_err(|source| Error::Unreachable { path: path.to_owned(), source })?;
        let mut buffer = socket::receive_buffer();
        let hello = Command::Hello { version: VERSION, name: name.to_owned() };
        let what = hello.description();
        match send(&socket, &Request { id: 1, command: hello }, &[]) {
            // A daemon that takes no more applications hangs up at once; what it said is still to be read.
            Ok(()) | Err(Error::DaemonGone) => {}
            Err(error) => return Err(error),
        }
        let answer = match first_message(&socket, &mut buffer, what)? {
            (FromDaemon::Reply { reply, .. }, fds) => Answer { reply, fds },
            (FromDaemon::Error { code, message, .. }, _) => return Err(Error::Refused { what, code, message }),
            (FromDaemon::Event { .. }, _) => return Err(Error::Protocol("an event before the welcome")),
        };
        let Reply::Welcome { mac, .. } = answer.reply else { return Err(Error::Protocol("no welcome")) };
        let [page, doorbell] = exactly(answer.fds)?;
        let (gone, state) = (AtomicBool::new(false), Mutex::new(State::new(buffer)));
        Ok(Self { socket, page: Page::map(page)?, doorbell, mac, gone, state, changed: Condvar::new() })
    }

    pub(crate) const fn mac(&self) -> MacAddr {
        self.mac
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    pub(crate) fn mark_gone(&self) {
        self.gone.store(true, Ordering::Relaxed);
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Tells the worker that the queue of `slot` has new requests.
    pub(crate) fn ring_doorbell(&self, slot: u16) {
        if self.page.ring(slot) {
            // Fails only if the counter is at its limit, and then the worker has long been woken.
            let _ = rustix::io::write(&self.doorbell, &1u64.to_ne_bytes());
        }
    }

    /// Asks the daemon and waits for the answer.
    pub(crate) fn request(&self, command: Command, fds: &[BorrowedFd<'_>]) -> Result<Answer, Error> {
        let what = command.description();
        let id = self.send_command(command, fds, true)?;
        let outcome = self.wait_for(Instant::now() + REQUEST_TIMEOUT, |events| events.take_outcome(id));
        self.lock().outcomes.remove(&id);
        match outcome? {
            Some(Ok(answer)) => Ok(answer),
            Some(Err((code, message))) => Err(Error::Refused { what, code, message }),
            None => Err(Error::TimedOut { what, timeout: REQUEST_TIMEOUT }),
        }
    }

    /// Tells the daemon that something is no longer needed. Nobody waits for the answer.
    pub(crate) fn farewell(&self, command: Command) {
        // If the daemon is gone, so is what was to be destroyed.
        let _ = self.send_command(command, &[], false);
        // Answers that nobody reads would fill the socket, and the daemon drops an application that does not read.
        self.pump();
    }

    fn send_command(&self, command: Command, fds: &[BorrowedFd<'_>], wanted: bool) -> Result<u64, Error> {
        let id = {
            let mut state = self.lock();
            state.last_id += 1;
            let id = state.last_id;
            if wanted {
                state.outcomes.insert(id, None);
            }
            id
        };
        send(&self.socket, &Request { id, command }, fds).inspect_err(|_| {
            self.lock().outcomes.remove(&id);
        })?;
        Ok(id)
    }

    /// From now on the outcome of a queue pair is the caller's, whoever else waits for events.
    pub(crate) fn expect(&self, qp: QpNum) -> Expected<'_> {
        self.lock().expected.push(qp);
        Expected { link: self, qp }
    }

    /// The first waiting event that no call waits for, waiting until `deadline` for one.
    pub(crate) fn wait_any(&self, deadline: Instant) -> Result<Option<Event>, Error> {
        self.wait_for(deadline, |state| {
            let expected = core::mem::take(&mut state.expected);
            let event = state.take_event(|event| outcome_of(event).is_none_or(|qp| !expected.contains(&qp)));
            state.expected = expected;
            event
        })
    }

    /// Throws away what is waiting and no longer true.
    pub(crate) fn forget_events(&self, stale: impl Fn(&Event) -> bool) {
        self.lock().events.retain(|event| !stale(event));
    }

    /// Waits until `take` finds what it looks for, or until `deadline`.
    fn wait_for<T>(&self, deadline: Instant, mut take: impl FnMut(&mut State) -> Option<T>) -> Result<Option<T>, Error> {
        let mut state = self.lock();
        loop {
            self.receive_all(&mut state);
            if let Some(found) = take(&mut state) {
                return Ok(Some(found));
            }
            if self.is_gone() {
                return Err(Error::DaemonGone);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            state = if state.reading { self.sleep(state, left) } else { self.poll_socket(state, deadline)? };
        }
    }

    /// Lets the thread that reads wake this one.
    fn sleep<'a>(&self, state: MutexGuard<'a, State>, left: Duration) -> MutexGuard<'a, State> {
        self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Sleeps in the kernel, without the lock, until a message is there.
    fn poll_socket<'a>(&'a self, mut state: MutexGuard<'a, State>, deadline: Instant) -> Result<MutexGuard<'a, State>, Error> {
        state.reading = true;
        drop(state);
        let outcome = socket::wait(&[self.fd()], PollFlags::IN, deadline);
        let mut state = self.lock();
        state.reading = false;
        self.changed.notify_all();
        outcome.map_err(|source| Error::System { what: "wait for weftd", source })?;
        Ok(state)
    }

    /// Sorts what has arrived, without waiting.
    pub(crate) fn pump(&self) {
        let mut state = self.lock();
        if state.reading {
            // Whoever called us may see the same message again at once: the reader needs the processor first.
            drop(state);
            std::thread::yield_now();
        } else {
            self.receive_all(&mut state);
        }
    }

    /// Does nothing while a thread waits in the kernel: it would sleep on, because what it waits for is gone when it looks.
    fn receive_all(&self, state: &mut State) {
        while !self.is_gone() && !state.reading {
            match socket::receive(&self.socket, &mut state.buffer) {
                Ok(Some(received)) => self.sort(state, received),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Closed, broken, or beyond understanding: all the same to the application.
                Ok(None) | Err(_) => self.mark_gone(),
            }
        }
        self.changed.notify_all();
    }

    fn sort(&self, state: &mut State, received: Received) {
        match state.sort(received) {
            Some(()) => self.changed.notify_all(),
            None => self.mark_gone(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    const fn new(buffer: Vec<u8>) -> Self {
        Self { last_id: 1, outcomes: BTreeMap::new(), events: VecDeque::new(), expected: Vec::new(), reading: false, buffer }
    }

    fn take_outcome(&mut self, id: u64) -> Option<Outcome> {
        self.outcomes.get_mut(&id)?.take()
    }

    fn take_event(&mut self, select: impl Fn(&Event) -> bool) -> Option<Event> {
        let at = self.events.iter().position(select)?;
        self.events.remove(at)
    }

    /// Puts a message where its reader looks; `None` if it makes no sense.
    fn sort(&mut self, received: Received) -> Option<()> {
        let (id, outcome) = match serde_json::from_slice(&received.bytes).ok()? {
            FromDaemon::Reply { id, reply } => (id, Ok(Answer { reply, fds: received.fds })),
            FromDaemon::Error { id, code, message } => (id, Err((code, message))),
            FromDaemon::Event { event } => {
                self.events.push_back(event);
                return Some(());
            }
        };
        if let Some(place) = self.outcomes.get_mut(&id) {
            *place = Some(outcome);
        }
        Some(())
    }
}

/// See [`Link::expect`].
#[derive(Debug)]
pub(crate) struct Expected<'a> {
    link: &'a Link,
    qp: QpNum,
}

impl Expected<'_> {
    /// The first event of the queue pair for which `select` is true, waiting until `deadline` for one.
    pub(crate) fn wait(&self, deadline: Instant, select: impl Fn(&Event) -> bool) -> Result<Option<Event>, Error> {
        self.link.wait_for(deadline, |state| state.take_event(|event| outcome_of(event) == Some(self.qp) && select(event)))
    }
}

impl Drop for Expected<'_> {
    fn drop(&mut self) {
        let mut state = self.link.lock();
        if let Some(at) = state.expected.iter().position(|&qp| qp == self.qp) {
            state.expected.swap_remove(at);
        }
        // What was left of its events is anybody's again.
        self.link.changed.notify_all();
    }
}

/// The queue pair that a call to connect, drain or disconnect may wait for with this event.
const fn outcome_of(event: &Event) -> Option<QpNum> {
    match event {
        Event::Established { qp, .. }
        | Event::ConnectFailed { qp, .. }
        | Event::Disconnected { qp }
        | Event::QpFailed { qp, .. }
        | Event::SendQueueDrained { qp } => Some(*qp),
        Event::ConnectRequest { .. }
        | Event::SendQueueFailed { .. }
        | Event::SrqLimit { .. }
        | Event::SrqFailed { .. }
        | Event::CqOverrun { .. } => None,
    }
}

/// When a time-out that begins now is over; one too long for the clock ends in a year.
pub(crate) fn deadline(timeout: Duration) -> Instant {
    const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
    let now = Instant::now();
    now.checked_add(timeout.min(YEAR)).unwrap_or(now)
}

/// The descriptors of an answer that must have `N` of them.
pub(crate) fn exactly<const N: usize>(fds: Vec<OwnedFd>) -> Result<[OwnedFd; N], Error> {
    fds.try_into().map_err(|_| Error::Protocol("wrong number of descriptors"))
}

/// Sends a request, waiting for room in the socket for at most [`REQUEST_TIMEOUT`].
fn send(socket: &OwnedFd, request: &Request, fds: &[BorrowedFd<'_>]) -> Result<(), Error> {
    let what = request.command.description();
    let bytes = serde_json::to_vec(request).map_err(|error| Error::System { what, source: error.into() })?;
    let deadline = Instant::now() + REQUEST_TIMEOUT;
    loop {
        match socket::send(socket, &bytes, fds) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) => {
                return Err(Error::DaemonGone);
            }
            Err(source) => return Err(Error::System { what, source }),
        }
        if !socket::wait(&[socket.as_fd()], PollFlags::OUT, deadline).map_err(|source| Error::System { what, source })? {
            return Err(Error::TimedOut { what, timeout: REQUEST_TIMEOUT });
        }
    }
}

/// Waits for the first message of the daemon.
fn first_message(socket: &OwnedFd, buffer: &mut [u8], what: &'static str) -> Result<(FromDaemon, Vec<OwnedFd>), Error> {
    let system = |source| Error::System { what, source };
    if !socket::wait(&[socket.as_fd()], PollFlags::IN, Instant::now() + REQUEST_TIMEOUT).map_err(system)? {
        return Err(Error::TimedOut { what, timeout: REQUEST_TIMEOUT });
    }
    let received = socket::receive(socket, buffer).map_err(system)?.ok_or(Error::DaemonGone)?;
    let message = serde_json::from_slice(&received.bytes).map_err(|_| Error::Protocol("unreadable message"))?;
    Ok((message, received.fds))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn link() -> (Arc<Link>, OwnedFd) {
        let flags = rustix::net::SocketFlags::NONBLOCK;
        let (socket, daemon) =
            rustix::net::socketpair(rustix::net::AddressFamily::UNIX, rustix::net::SocketType::SEQPACKET, flags, None).unwrap();
        let (page, _fd) = Page::create().unwrap();
        let doorbell = rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK).unwrap();
        let state = State::new(socket::receive_buffer());
        let (gone, state, changed) = (AtomicBool::new(false), Mutex::new(state), Condvar::new());
        (Arc::new(Link { socket, page, doorbell, mac: MacAddr::default(), gone, state, changed }), daemon)
    }

    fn tell(daemon: &OwnedFd, event: Event) {
        socket::send(daemon, &serde_json::to_vec(&FromDaemon::Event { event }).unwrap(), &[]).unwrap();
    }

    #[test]
    fn what_a_call_waits_for_is_not_taken_by_who_waits_for_any_event() {
        let (link, daemon) = link();
        let expected = link.expect(QpNum(7));
        tell(&daemon, Event::SendQueueDrained { qp: QpNum(7) });
        tell(&daemon, Event::Disconnected { qp: QpNum(8) });
        assert_eq!(link.wait_any(Instant::now()).unwrap(), Some(Event::Disconnected { qp: QpNum(8) }));
        assert_eq!(link.wait_any(Instant::now()).unwrap(), None);
        let drained = |event: &Event| matches!(event, Event::SendQueueDrained { .. });
        assert_eq!(expected.wait(Instant::now(), drained).unwrap(), Some(Event::SendQueueDrained { qp: QpNum(7) }));
        tell(&daemon, Event::Disconnected { qp: QpNum(7) });
        drop(expected);
        assert_eq!(link.wait_any(Instant::now()).unwrap(), Some(Event::Disconnected { qp: QpNum(7) }), "the call is over");
    }

    #[test]
    fn an_endless_time_out_is_a_long_one() {
        assert!(deadline(Duration::MAX) > Instant::now() + Duration::from_secs(1_000_000));
        let (link, daemon) = link();
        tell(&daemon, Event::Disconnected { qp: QpNum(7) });
        assert!(link.wait_any(deadline(Duration::MAX)).unwrap().is_some());
    }

    #[test]
    fn answers_that_nobody_waits_for_do_not_pile_up() {
        let (link, daemon) = link();
        for id in 0..3_000 {
            let error = FromDaemon::Error { id, code: ErrorCode::BadMessage, message: "no".repeat(100) };
            socket::send(&daemon, &serde_json::to_vec(&error).unwrap(), &[]).expect("room for another answer");
            link.farewell(Command::DestroyQp { qp: QpNum(7) });
            let mut buffer = socket::receive_buffer();
            assert!(socket::receive(&daemon, &mut buffer).unwrap().is_some());
        }
    }

    #[test]
    fn who_waits_for_an_event_gets_it_although_others_look_at_the_connection_meanwhile() {
        let (link, daemon) = link();
        for _ in 0..300 {
            let waiting = Arc::clone(&link);
            let waiter = std::thread::spawn(move || waiting.wait_any(Instant::now() + Duration::from_secs(5)));
            while !link.lock().reading {
                std::thread::yield_now();
            }
            // Most likely it sleeps in the kernel by now.
            std::thread::sleep(Duration::from_micros(300));
            let start = Instant::now();
            tell(&daemon, Event::Disconnected { qp: QpNum(7) });
            link.pump();
            assert!(waiter.join().unwrap().unwrap().is_some(), "the event did not come");
            assert!(start.elapsed() < Duration::from_secs(2), "it came, but its waiter was not woken");
        }
    }
}
