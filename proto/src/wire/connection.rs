//! Connection messages: datagrams between the connection managers of two hosts, on queue pair 1.
//!
//! ```text
//!   0  kind 1, version 1, refusal 1, recovery offer 1
//!   4  sender's connection id 4
//!   8  receiver's connection id 4 (0 = not known yet)
//!  12  sender's incarnation 8
//!  20  service 2
//!  22  tag 2: frames to the sender carry it
//!  24  sender's queue pair 4
//!  28  sender's starting PSN 4
//!  32  payload bytes per packet that the sender can take 4
//!  36  receive window of the sender in packets 4
//!  40  initiator depth 1, responder resources 1, reserved 1, private data length 1
//!  44  private data, at most 192
//! ```

use core::mem::size_of;

use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::codes::codes;
use crate::drops::DropReason;
use crate::transport::{Psn, QpNum};

/// Version of the connection protocol.
pub const CONNECTION_VERSION: u8 = 2;
/// Most private data in a connection message.
pub const MAX_PRIVATE: usize = 192;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct View {
    kind: u8,
    version: u8,
    refusal: u8,
    recovery: u8,
    local_id: U32,
    remote_id: U32,
    incarnation: U64,
    service: U16,
    tag: U16,
    qp: U32,
    psn: U32,
    payload_max: U32,
    window: U32,
    initiator_depth: u8,
    responder_resources: u8,
    reserved: u8,
    private_len: u8,
}

const _: () = assert!(size_of::<View>() == 44);

/// Bytes of a connection message without private data.
pub const CONNECTION_LEN: usize = size_of::<View>();

codes! {
    /// The step in the life of a connection.
    pub enum ConnectionKind {
        /// Let us connect.
        Request = 1,
        /// Agreed.
        Reply = 2,
        /// Agreed as well: the connection stands.
        ReadyToUse = 3,
        /// No.
        Reject = 4,
        /// Let us end it.
        DisconnectRequest = 5,
        /// It is ended.
        DisconnectReply = 6,
    }
}

codes! {
    /// Why a request is rejected.
    pub enum Refusal {
        /// Nothing is refused.
        None = 0,
        /// The application said no.
        Application = 1,
        /// Nobody listens on the service.
        NoListener = 2,
        /// No room for another connection.
        NoResources = 3,
        /// Another version of the connection protocol.
        Version = 4,
        /// The connection that the message speaks of does not exist here.
        UnknownConnection = 5,
    }
}

/// The recovery modes that a side is willing to use, as a set: bit 0 go-back-N, bit 1 IRN, bit 2 IRN strict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RecoveryOffer(pub u8);

/// A connection message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionMessage<'a> {
    /// The step.
    pub kind: ConnectionKind,
    /// Why not, in a reject.
    pub refusal: Refusal,
    /// Recovery modes offered (request) or chosen (reply).
    pub recovery: RecoveryOffer,
    /// The sender's number for the connection.
    pub local_id: u32,
    /// The receiver's number for the connection; 0 if the sender does not know it yet.
    pub remote_id: u32,
    /// The sender's incarnation: drawn at random when its daemon started.
    pub incarnation: u64,
    /// The service asked for.
    pub service: u16,
    /// Frames to the sender must carry this tag.
    pub tag: u16,
    /// The sender's queue pair.
    pub qp: QpNum,
    /// The PSN that the sender starts with.
    pub psn: Psn,
    /// Payload bytes per packet that the sender can take.
    pub payload_max: u32,
    /// Packets that the sender accepts ahead of the first missing one.
    pub window: u32,
    /// READs and atomics that the sender wants to have outstanding.
    pub initiator_depth: u8,
    /// READs and atomics that the sender can serve at once.
    pub responder_resources: u8,
    /// The application's data, at most [`MAX_PRIVATE`] bytes.
    pub private: &'a [u8],
}

/// The version of a message that may be of another version: all that may be relied on then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForeignVersion {
    /// The sender's number for the connection.
    pub local_id: u32,
}

impl<'a> ConnectionMessage<'a> {
    /// The meaning of a datagram's payload. The inner result is an intelligible message of another version.
    ///
    /// # Errors
    /// [`DropReason::Truncated`], [`DropReason::BadLength`], [`DropReason::BadField`].
    pub fn parse(bytes: &'a [u8]) -> Result<Result<Self, ForeignVersion>, DropReason> {
        let (view, private) = View::ref_from_prefix(bytes).map_err(|_| DropReason::Truncated)?;
        if view.version != CONNECTION_VERSION {
            return Ok(Err(ForeignVersion { local_id: view.local_id.get() }));
        }
        if usize::from(view.private_len) != private.len() || private.len() > MAX_PRIVATE {
            return Err(DropReason::BadLength);
        }
        let kind = ConnectionKind::from_code(view.kind).ok_or(DropReason::BadField)?;
        let refusal = Refusal::from_code(view.refusal).ok_or(DropReason::BadField)?;
        if view.qp.get() >> 24 != 0 || view.psn.get() >> 24 != 0 {
            return Err(DropReason::BadField);
        }
        Ok(Ok(Self {
            kind,
            refusal,
            recovery: RecoveryOffer(view.recovery),
            local_id: view.local_id.get(),
            remote_id: view.remote_id.get(),
            incarnation: view.incarnation.get(),
            service: view.service.get(),
            tag: view.tag.get(),
            qp: QpNum(view.qp.get()),
            psn: Psn::new(view.psn.get()),
            payload_max: view.payload_max.get(),
            window: view.window.get(),
            initiator_depth: view.initiator_depth,
            responder_resources: view.responder_resources,
            private,
        }))
    }

    /// Bytes that the message takes.
    pub const fn len(&self) -> usize {
        CONNECTION_LEN + self.private.len()
    }

    /// Never: the fixed part is always there.
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Writes the message to `out`, which has [`Self::len`] bytes; `None` if it has not, or the private data is too long.
    pub fn emit(&self, out: &mut [u8]) -> Option<()> {
        let private_len = u8::try_from(self.private.len()).ok().filter(|&len| usize::from(len) <= MAX_PRIVATE)?;
        let view = View {
            kind: self.kind as u8,
            version: CONNECTION_VERSION,
            refusal: self.refusal as u8,
            recovery: self.recovery.0,
            local_id: self.local_id.into(),
            remote_id: self.remote_id.into(),
            incarnation: self.incarnation.into(),
            service: self.service.into(),
            tag: self.tag.into(),
            qp: self.qp.0.into(),
            psn: self.psn.value().into(),
            payload_max: self.payload_max.into(),
            window: self.window.into(),
            initiator_depth: self.initiator_depth,
            responder_resources: self.responder_resources,
            reserved: 0,
            private_len,
        };
        if out.len() != self.len() {
            return None;
        }
        out[..CONNECTION_LEN].copy_from_slice(view.as_bytes());
        out[CONNECTION_LEN..].copy_from_slice(self.private);
        Some(())
    }
}
