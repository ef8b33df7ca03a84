//! What other commands say to a supervisor, one JSON line each way.

use serde::{Deserialize, Serialize};

#[derive(Debug, Deserialize, Serialize)]
#[serde(tag = "order", rename_all = "lowercase")]
pub(crate) enum Order {
    /// Take the lab down.
    Down,
    /// Kill the node's daemon.
    Kill { node: String },
    /// Start the node's daemon again.
    Restart { node: String },
    /// Bring the cables between two nodes up or down, at the first one's end.
    Link { node: String, neighbour: String, up: bool },
}

#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Reply {
    pub(crate) error: Option<String>,
}

/// What a supervisor prints once: whether the lab is up (`exit` 0), else how the command that wanted it is to end.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Started {
    pub(crate) exit: u8,
    pub(crate) message: String,
}
