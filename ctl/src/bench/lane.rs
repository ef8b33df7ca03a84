//! One connection of a measurement: its session, its memory, its requests.

use anyhow::Context as _;
use weft_verbs::{Access, AtomicOp, Context, Data, Inline, MemoryRegion, Recovery, SendOp, SgList};

use super::client::{self, Client, Wishes};
use super::flow::{Flow, Limits, Measured};
use super::protocol::{ATOMIC, DONE, Hello, Layout, Mode, STOP, Tally};
use crate::exit::{Exit, failure};
use crate::interrupt::Interrupt;
use crate::session::{Arrival, Session, explain};

/// What memory that is read holds, so that the reader can tell its bytes from others.
pub(super) const PATTERN: u8 = 0x5a;

/// Every right: each side's memory is written to, read from and changed, as the measurement says.
pub(super) const OPEN: Access = Access { local_write: true, remote_write: true, remote_read: true, remote_atomic: true };

/// One connection of a measurement.
pub(super) struct Lane {
    pub(super) session: Session,
    pub(super) recovery: Recovery,
    hello: Hello,
    memory: MemoryRegion,
    rkey: u32,
    flow: Flow,
}

/// What one connection measured.
pub(super) struct Outcome {
    pub(super) here: Measured,
    /// What the other side did at the same time.
    pub(super) there: Option<Tally>,
}

impl Lane {
    /// Connects to `target` for what `hello` says, in both directions if `both`.
    pub(super) fn open(
        context: &Context,
        target: (&str, u16),
        (hello, both, inline): (&Hello, bool, bool),
        wishes: Wishes,
        interrupt: &Interrupt,
    ) -> anyhow::Result<Self> {
        let wanted = hello.clone().and_back(both.then_some(0));
        let layout = Layout::of(&wanted);
        let access = if both { OPEN } else { Access { local_write: true, ..Access::default() } };
        let mut memory = context.register(usize::try_from(layout.len())?, access).map_err(|error| explain(error, "this host"))?;
        let hello = wanted.and_back(both.then(|| memory.rkey()));
        if both {
            memory.copy_in(0, &vec![if hello.mode == Mode::Read { PATTERN } else { 0 }; usize::try_from(hello.size)?])?;
        }
        let Client { session, recovery, answer } = client::connect(context, target, &hello, wishes, interrupt)?;
        let rkey = match hello.mode {
            Mode::Echo | Mode::Sink => 0,
            _ => answer.rkey.context("weftctl serve opened no memory")?,
        };
        let flow = Flow::new(&hello, bytes_of(&memory, layout, hello.size, inline)?, rkey);
        Ok(Self { session, recovery, hello, memory, rkey, flow })
    }

    /// Measures, and sees that the requests did what they should.
    pub(super) fn run(&mut self, limits: Limits) -> anyhow::Result<Outcome> {
        let here = self.flow.run(&mut self.session, limits)?;
        if here.signal.is_some() {
            return Ok(Outcome { here, there: None });
        }
        let there = self.hello.is_both().then(|| self.stop_other_side()).transpose()?;
        self.verify()?;
        Ok(Outcome { here, there })
    }

    fn stop_other_side(&mut self) -> anyhow::Result<Tally> {
        self.session.tell(self.flow.posted(), STOP)?;
        let told = self.flow.wait_told(&mut self.session)?;
        anyhow::ensure!(told == DONE, "{}: weftctl serve says {told}, which has no meaning", self.session.peer());
        let mut tally = [0; Tally::LEN];
        self.memory.copy_out(Layout::of(&self.hello).tally(), &mut tally)?;
        Ok(Tally::decode(tally))
    }

    fn verify(&mut self) -> anyhow::Result<()> {
        match self.hello.mode {
            Mode::Read if self.flow.posted() > 0 => self.verify_read(),
            Mode::FetchAdd | Mode::CompareSwap => self.verify_atomics(),
            _ => Ok(()),
        }
    }

    fn verify_read(&self) -> anyhow::Result<()> {
        let mut bytes = vec![0; usize::try_from(self.hello.size)?];
        self.memory.copy_out(Layout::of(&self.hello).local(), &mut bytes)?;
        if bytes.iter().all(|byte| *byte == PATTERN) {
            return Ok(());
        }
        Err(failure(Exit::Damaged, format!("{}: what was read is not what is there", self.session.peer())))
    }

    /// Each atomic adds one if it is applied exactly once and in order, so the sum tells.
    fn verify_atomics(&mut self) -> anyhow::Result<()> {
        let at = Layout::of(&self.hello).local();
        let look = SendOp::Atomic { remote_addr: 0, rkey: self.rkey, op: AtomicOp::FetchAdd { add: 0 } };
        let name = self.flow.posted() + 1;
        self.session.request(name, look, list(&self.memory, at, ATOMIC)?)?;
        while self.session.next()? != Arrival::Done(name) {}
        let mut value = [0; ATOMIC as usize];
        self.memory.copy_out(at, &mut value)?;
        let (found, expected) = (u64::from_ne_bytes(value), self.flow.posted());
        if found == expected {
            return Ok(());
        }
        let peer = self.session.peer();
        Err(failure(Exit::Damaged, format!("{peer}: {expected} atomics left {found} instead of {expected}: not each was applied once")))
    }
}

/// The bytes that requests move: in the request itself if `inline`.
fn bytes_of(memory: &MemoryRegion, layout: Layout, size: u32, inline: bool) -> anyhow::Result<Data> {
    if inline {
        let bytes = vec![PATTERN; usize::try_from(size)?];
        return Ok(Data::Inline(Inline::new(&bytes).context("too many bytes for a request")?));
    }
    list(memory, layout.local(), size)
}

/// A piece of memory as the bytes of a request.
pub(super) fn list(memory: &MemoryRegion, at: u64, len: u32) -> anyhow::Result<Data> {
    Ok(Data::List(SgList::new(&[memory.sge(at, len)?]).context("one piece fits into every list")?))
}
