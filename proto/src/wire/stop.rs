//! The stop control message (a receiver asks one sender to stop or slow down).
//!
//! ```text
//!  0          4          8       16     20     24
//!  | command  | priority | timer | 0    | rate | zeros to 46 bytes |
//! ```

use crate::drops::DropReason;

/// Bytes of a stop control message behind the Ethernet header: the minimum payload of a frame.
pub const STOP_LEN: usize = 46;

/// What a receiver asks of a sender, for frames addressed to the receiver only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopMessage {
    /// Stop, or slow down.
    Stop {
        /// Frames of lower priority are meant, 0 to 15.
        priority: u8,
        /// Timer in units of the configured tick; 0 = the sender's own preset.
        timer: u8,
        /// 0 = stop altogether, n = n/16 of the rate.
        rate: u8,
    },
    /// Send again.
    Cancel,
}

impl StopMessage {
    /// The meaning of the bytes behind the Ethernet header.
    ///
    /// # Errors
    /// [`DropReason::BadLength`] if shorter than the minimum payload, [`DropReason::UnknownCommand`] for
    /// commands other than stop and cancel.
    pub fn parse(payload: &[u8]) -> Result<Self, DropReason> {
        let fields = payload.get(..STOP_LEN).ok_or(DropReason::BadLength)?;
        match fields[0] >> 4 {
            0x0 => Ok(Self::Stop { priority: fields[0] & 0xf, timer: fields[1], rate: fields[2] & 0xf }),
            0xf => Ok(Self::Cancel),
            _ => Err(DropReason::UnknownCommand),
        }
    }

    /// The bytes behind the Ethernet header.
    pub fn emit(self) -> [u8; STOP_LEN] {
        let mut out = [0; STOP_LEN];
        match self {
            Self::Stop { priority, timer, rate } => {
                out[0] = priority & 0xf;
                out[1] = timer;
                out[2] = rate & 0xf;
            }
            Self::Cancel => out[0] = 0xf0,
        }
        out
    }
}
