//! Everything of Weft that touches Linux. The decisions are in `weft-proto`; this crate moves bytes.
//!
//! | module | owns | thread |
//! | --- | --- | --- |
//! | [`daemon`] | start and end of the whole | main |
//! | [`control`] | event loop, admin socket, signals, reload | main |
//! | [`app`] | applications: attach protocol, and the worker's table of them | main, worker |
//! | [`worker`] | the breath: everything that happens to frames | worker |
//! | [`port`] | the interfaces: frames in, frames out | worker |
//! | [`link`] | what the kernel says about interfaces: up, down, gone, new | main |
//! | [`metrics`] | Prometheus text, health | metrics |
//! | [`snapshot`] | counters on their way from the worker to the others | all |
//! | [`socket_file`] | the files of our Unix sockets | main |
//! | [`stop_key`] | the key of stop control, from its file | main, control |
//! | [`translate`] | configuration to the settings of the core | |
//! | [`clock`] | the only reader of the time of day | |
//! | [`logging`], [`notify`] | log to standard error, news for a service manager | |

pub mod app;
pub mod clock;
pub mod control;
pub mod daemon;
pub mod link;
pub mod logging;
pub mod metrics;
pub mod notify;
pub mod port;
pub mod snapshot;
pub mod socket_file;
pub mod stop_key;
pub mod translate;
pub mod worker;
