//! Applications: how they attach, and how their work reaches the endpoint and its outcome them.
//!
//! Two halves in two threads, which share nothing but the messages of [`message`]:
//!
//! * [`server`] and [`session`] run on the control thread. They talk the attach protocol, check every request against
//!   the limits, create and map all shared memory, and unmap it again.
//! * [`table`] runs on the worker. It owns the mapped rings and regions, moves requests from rings to the endpoint and
//!   completions back, and is the endpoint's view of application memory.
//!
//! An application is not trusted. Whatever it writes to its socket or its shared memory costs it, at most, its own
//! requests, queue pairs or attachment.

pub mod message;
pub mod server;
pub mod session;
pub mod table;

mod account;
mod collect;
mod completions;
mod credentials;
mod mappings;
mod waker;

pub use message::{AppAction, AppCommand, AppDone, AppUpdate};
pub use server::AppServer;
pub use table::AppTable;

#[cfg(test)]
mod tests;
