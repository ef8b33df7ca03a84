//! Weft under test: a simulated world, machines driven by text traces, and the bodies of the fuzz targets.
//!
//! | module | owns |
//! | --- | --- |
//! | [`world`] | endpoints, switch, cables and the virtual clock; one seed draws everything ([`scenario`]) |
//! | [`flow`] | a connection, what its applications plan and what they have been told |
//! | `apps`, `disturb` | what applications do, and what goes wrong around them |
//! | `check` | the invariants of a world and how a seed is run |
//! | [`memory`], [`link`] | memory that knows who may touch it; cables |
//! | [`model`] | loss recovery explored exhaustively over small windows |
//!
//! `cargo test -p weft-tests world` runs fresh seeds; `WEFT_SEED=... cargo test -p weft-tests world` runs one again.

mod apps;
mod check;
mod disturb;
pub mod flow;
pub mod fuzz;
pub mod link;
pub mod memory;
pub mod model;
pub mod pair;
pub mod scenario;
mod stops;
pub mod tidy;
pub mod trace;
pub mod world;
