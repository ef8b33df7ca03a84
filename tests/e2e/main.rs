//! End to end: the real `weftd` and `weftctl` in labs of network namespaces, seen only from outside, as a user sees them.
//!
//! Every test has a lab and a runtime folder of its own, and takes both down however it ends. One lab runs at a time: a
//! lab is several daemons that shall have the processors for themselves. Every wait is bounded; the bounds are far above
//! what happens on an idle machine, because none of them is a statement about speed.
//!
//! | module | owns |
//! | --- | --- |
//! | `support` | the programs, labs, commands with bounds, files with content |
//! | `helper` | what the tests run inside a node besides `weftctl`: this test program in another role |
//! | the rest | the tests, by what they are about |

// Numbers here are small, and a wrong one fails its test.
#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]

mod bench;
mod config;
mod demo;
mod failure;
mod helper;
mod incast;
mod inspect;
mod link;
mod metrics;
mod names;
mod shutdown;
mod support;
mod traffic;
mod transfer;
mod user;
