//! Receiver-driven stop control: a receiver that sees signs of congestion asks those who send to it, and only those, to
//! stop or slow down, and only what they send to it.
//!
//! ```text
//!   frames in  --> Watch (per port) --> signs --> Ask (per destination) --> stop, cancel packets out
//!   stop, cancel packets in --> checks --> Obey (per destination) --> verdicts on frames out
//! ```
//!
//! | module | owns |
//! | --- | --- |
//! | [`config`] | what the operator says |
//! | `watch` | detectors, the second sign, who contributes |
//! | `ask` | whom we asked what, and when to repeat it |
//! | [`obey`] | whom we may not send to, until when, or how fast |
//! | [`rate`] | shares and rate rules |
//! | [`station`] | all of it for one host |
//! | `table` | bounded tables of hosts |
//! | `late` | frames that a stop packet came too late for |
//! | [`journal`], [`view`] | what people see |
//!
//! The switch of a host owns a [`Station`]: frames of its host ports pass it on their way in, and ask it on their way out.
//! The rules are those of the source (JP7544340B2); what it leaves open is said at the place where it is decided.

pub mod ask;
pub mod config;
#[cfg(test)]
pub(crate) mod fixtures;
pub mod journal;
mod late;
pub mod obey;
pub mod rate;
pub mod station;
mod table;
pub mod view;
mod watch;

pub use config::{CONTROL_PRIORITY, EVERYTHING, PRIORITIES, StopConfig};
pub use journal::Journal;
pub use obey::{Obedience, Stage, Verdict};
pub use rate::Share;
pub use station::{Arrival, Station};
pub use view::{AskedView, AskerView, Release, Standing, StopCounters, StopEvent, StopRecord, WatchView};
