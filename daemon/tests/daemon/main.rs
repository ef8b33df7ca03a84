//! The daemon as a process: it starts, answers, moves data and ends, each test in namespaces of its own.

mod control;
mod start;
mod stop;
mod support;
mod transfer;
mod verbs;
