//! What an operator may say to Weft.
//!
//! Owns the YAML node configuration ([`Config`]), quantities as people write them ([`units`]), every default and limit ([`defaults`])
//! and the messages of the control protocol ([`control`]). The only crate that sees YAML. It reads files and text,
//! and never touches an interface, a socket or a clock. `weftd` and `weftctl` call it, at start and for administration, never per packet.
//!
//! | module | owns |
//! | --- | --- |
//! | [`model`] | the validated configuration |
//! | `document`, `section`, `scalar` | YAML to numbered nodes, groups of keys, single values; mistakes with their places |
//! | `decode` | the keys of the node file and what must hold between them |
//! | `effective`, `reload` | the configuration printed in full; which changes apply to a running daemon |

pub mod control;
mod decode;
pub mod defaults;
mod document;
mod effective;
pub mod lab;
mod load;
pub mod model;
mod problem;
mod reload;
mod scalar;
mod section;
pub mod units;

pub use effective::effective_yaml;
pub use model::Config;
pub use problem::{ConfigErrors, Problem};
pub use reload::{Change, Refusal, Reload};
