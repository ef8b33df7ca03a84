//! The admin socket: accepts clients, gives each its turn, drops those that misbehave.
//!
//! Owns the sockets and their tokens; what a request means is the business of whoever passes `answer`.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::Path;

use mio::net::UnixListener;
use mio::{Interest, Registry, Token};
use weft_config::control::LineTooLong;
use weft_proto::Instant;

use super::client::{Answer, Client, Turn};
use crate::socket_file::{SocketError, SocketFile};

/// Clients at a time. One more, and the one that was quiet for longest has to go.
pub const MAX_CLIENTS: usize = 64;

/// The admin socket with its clients.
#[derive(Debug)]
pub struct Admin {
    listener: UnixListener,
    _file: SocketFile,
    clients: BTreeMap<usize, Client>,
    /// Tokens are not reused: a late event cannot reach another client.
    next: usize,
}

impl Admin {
    /// Listens on `path`; clients get tokens from `first` up.
    ///
    /// # Errors
    /// If the socket cannot be made.
    pub fn bind(path: &Path, mode: u32, first: usize) -> Result<Self, SocketError> {
        let (file, listener) = SocketFile::create("control.socket", path, mode, |p| UnixListener::bind(p))?;
        Ok(Self { listener, _file: file, clients: BTreeMap::new(), next: first })
    }

    /// Registers the listener under `token`.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        registry.register(&mut self.listener, token, Interest::READABLE)
    }

    /// Takes in everybody who waits at the door.
    pub fn accept(&mut self, now: Instant, registry: &Registry) {
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => self.admit(Client::new(now, stream), registry),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => return tracing::warn!(%error, "control.socket: a client could not be accepted"),
            }
        }
    }

    fn admit(&mut self, mut client: Client, registry: &Registry) {
        if self.clients.len() >= MAX_CLIENTS {
            let quietest = self.clients.iter().min_by_key(|(_, client)| client.active()).map(|(&token, _)| token);
            quietest.and_then(|token| self.clients.remove(&token));
        }
        let token = self.next;
        if registry.register(client.stream(), Token(token), Interest::READABLE | Interest::WRITABLE).is_ok() {
            self.next += 1;
            self.clients.insert(token, client);
        }
    }

    /// The client of `token` has bytes, or room for them.
    pub fn handle_ready(&mut self, token: Token) {
        if let Some(client) = self.clients.get_mut(&token.0) {
            client.handle_readable();
        }
    }

    /// Gives every client a turn and says whether one can go on at once.
    pub(super) fn serve(&mut self, now: Instant, mut answer: impl FnMut(Result<&[u8], LineTooLong>) -> Answer) -> bool {
        let mut again = false;
        self.clients.retain(|_, client| {
            let turn = if client.is_stalled(now) { Turn::Drop } else { client.turn(now, &mut answer) };
            again |= turn == Turn::Again;
            turn != Turn::Drop
        });
        again
    }

    /// Clients connected.
    pub fn clients(&self) -> usize {
        self.clients.len()
    }
}
