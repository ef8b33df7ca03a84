//! The states of a queue pair.

/// The states of a queue pair: InfiniBand's RESET, INIT, RTR, RTS, SQD, SQE and ERR (vol. 1, 10.3.1). There is no way
/// back to RESET; a queue pair that has failed is destroyed.
///
/// | state | may become | when |
/// | --- | --- | --- |
/// | [`Reset`](Self::Reset) | `Init` | the application connects |
/// | | `ReadyToReceive` | it accepts a connection |
/// | [`Init`](Self::Init) | `ReadyToSend` | the peer accepts |
/// | [`ReadyToReceive`](Self::ReadyToReceive) | `ReadyToSend` | the peer is ready: it says so, or its first packet does |
/// | [`ReadyToSend`](Self::ReadyToSend) | `SendQueueDrain` | the application drains the send queue |
/// | | `SendQueueError` | a request that could not be sent is the oldest one |
/// | [`SendQueueDrain`](Self::SendQueueDrain) | `ReadyToSend` | the application resumes |
/// | [`SendQueueError`](Self::SendQueueError) | `ReadyToSend` | the application resumes |
/// | any | `Error` | the connection fails or is closed |
///
/// | state | requests | receives |
/// | --- | --- | --- |
/// | `Reset`, `Init` | refused when posted | may be posted |
/// | `ReadyToReceive` | wait | served |
/// | `ReadyToSend` | sent | served |
/// | `SendQueueDrain` | those begun are finished, the others wait | served |
/// | `SendQueueError` | flushed | served |
/// | `Error` | flushed | flushed |
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QpState {
    /// Created; receives may be posted.
    Reset,
    /// A connection has been asked for.
    Init,
    /// A connection has been accepted; packets are received.
    ReadyToReceive,
    /// Connected both ways.
    ReadyToSend,
    /// No further request begins.
    SendQueueDrain,
    /// A request could not be sent; receiving goes on.
    SendQueueError,
    /// Failed or closed; everything posted is flushed.
    Error,
}

impl QpState {
    /// The states that may follow.
    const fn followers(self) -> &'static [Self] {
        match self {
            Self::Reset => &[Self::Init, Self::ReadyToReceive, Self::Error],
            Self::Init | Self::ReadyToReceive => &[Self::ReadyToSend, Self::Error],
            Self::ReadyToSend => &[Self::SendQueueDrain, Self::SendQueueError, Self::Error],
            Self::SendQueueDrain | Self::SendQueueError => &[Self::ReadyToSend, Self::Error],
            Self::Error => &[Self::Error],
        }
    }

    /// True if the state may follow this one.
    pub fn may_become(self, next: Self) -> bool {
        self.followers().contains(&next)
    }

    /// True if packets of ours may be under way: connected both ways and not failed.
    pub const fn sends(self) -> bool {
        matches!(self, Self::ReadyToSend | Self::SendQueueDrain | Self::SendQueueError)
    }
}

#[cfg(test)]
mod tests {
    use super::QpState::{self, Error, Init, ReadyToReceive, ReadyToSend, Reset, SendQueueDrain, SendQueueError};

    #[test]
    fn states_follow_each_other_only_as_drawn() {
        let all = [Reset, Init, ReadyToReceive, ReadyToSend, SendQueueDrain, SendQueueError, Error];
        // Row: from; column: to, in the same order.
        let drawn = [
            [0, 1, 1, 0, 0, 0, 1],
            [0, 0, 0, 1, 0, 0, 1],
            [0, 0, 0, 1, 0, 0, 1],
            [0, 0, 0, 0, 1, 1, 1],
            [0, 0, 0, 1, 0, 0, 1],
            [0, 0, 0, 1, 0, 0, 1],
            [0, 0, 0, 0, 0, 0, 1],
        ];
        assert_eq!(all.map(|from: QpState| all.map(|to| u8::from(from.may_become(to)))), drawn);
    }
}
