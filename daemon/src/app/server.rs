//! The attach socket: accepts applications and moves their messages.
//!
//! Runs on the control thread, never blocks, and does a bounded amount of work per call. An application that does not
//! read its messages is cut off; one that sends more requests than the worker answers waits in its own socket.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use weft_proto::transport::AppId;
use weft_proto::{Duration, Instant};
use weft_verbs::protocol::ErrorCode;
use weft_verbs::socket;

use super::credentials::{self, Credentials};
use super::message::{AppAction, AppCommand, AppUpdate};
use super::session::{AppSession, Settings};
use crate::socket_file::{SocketError, SocketFile};

/// Messages taken from one application per call.
const BUDGET: usize = 32;
/// An application that has not introduced itself for so long has to go. The library does it at once.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);
/// The places that one user other than root may take, in parts of a whole: whoever may connect could otherwise lock out
/// everybody else, and root's tools with them.
const USER_SHARE: (u32, u32) = (3, 4);
/// Connections that may wait to be accepted.
const BACKLOG: i32 = 16;

#[derive(Debug)]
struct Connection {
    socket: OwnedFd,
    session: AppSession,
    /// Whose it is; `None` if the kernel does not say.
    uid: Option<u32>,
    accepted: Instant,
}

/// The attach socket and everyone on it.
#[derive(Debug)]
pub struct AppServer {
    listener: OwnedFd,
    _file: SocketFile,
    settings: Settings,
    connections: BTreeMap<AppId, Connection>,
    last_app: u32,
    buffer: Vec<u8>,
    /// Applications that may have more to read than their last turn allowed.
    backlog: Vec<AppId>,
}

impl AppServer {
    /// Listens at the configured path with the configured permissions. A socket that a dead daemon left there is replaced.
    ///
    /// # Errors
    /// If the socket cannot be made.
    pub fn bind(settings: Settings) -> Result<Self, SocketError> {
        let applications = &settings.applications;
        let listen = |path: &Path| socket::listen(path, BACKLOG);
        let (file, listener) = SocketFile::create("applications.socket", &applications.socket, applications.mode, listen)?;
        let (connections, backlog) = (BTreeMap::new(), Vec::new());
        Ok(Self { listener, _file: file, settings, connections, last_app: 0, buffer: socket::receive_buffer(), backlog })
    }

    /// Readable when an application wants to attach.
    pub fn listener(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// The socket of an application, to be watched (edge-triggered) for reading and writing.
    pub fn socket(&self, app: AppId) -> Option<BorrowedFd<'_>> {
        self.connections.get(&app).map(|connection| connection.socket.as_fd())
    }

    /// All applications on the socket.
    pub fn sessions(&self) -> impl Iterator<Item = (AppId, &AppSession)> {
        self.connections.iter().map(|(id, connection)| (*id, &connection.session))
    }

    /// Takes new limits and names of hosts. What applications have already stays; so does the socket.
    pub fn reload(&mut self, settings: Settings) {
        self.settings = settings;
    }

    /// Accepts the next application; `None` if nobody waits. Call it until then.
    ///
    /// # Errors
    /// The system's error, such as no descriptors left: try again later.
    pub fn accept(&mut self, now: Instant) -> io::Result<Option<AppId>> {
        let Some(socket) = socket::accept(&self.listener)? else { return Ok(None) };
        self.last_app += 1;
        let id = AppId(self.last_app);
        let mut session = AppSession::new(id);
        let peer = credentials::peer_of(&socket).ok();
        if let Some(Credentials { pid, uid }) = peer {
            tracing::info!(app = id.0, pid, uid, "application connected");
        }
        let uid = peer.map(|peer| peer.uid);
        if let Some(message) = self.refusal(uid) {
            session.end(0, ErrorCode::LimitReached, message);
        }
        self.connections.insert(id, Connection { socket, session, uid, accepted: now });
        Ok(Some(id))
    }

    /// Why there is no place for one more application of this user, if so.
    fn refusal(&self, uid: Option<u32>) -> Option<String> {
        let of_user = self.connections.values().filter(|connection| connection.uid == uid).count();
        refusal(self.settings.applications.max_applications, self.connections.len(), of_user, uid)
    }

    /// Cuts off who has not introduced itself in time. Call it now and then, a few times in that time (5 s).
    pub fn handle_timeout(&mut self, now: Instant, commands: &mut Vec<AppCommand>) {
        let is_late = |connection: &Connection| connection.session.name().is_none() && now.since(connection.accepted) >= HELLO_TIMEOUT;
        let late: Vec<AppId> = self.connections.iter().filter(|(_, connection)| is_late(connection)).map(|(id, _)| *id).collect();
        for app in late {
            if let Some(connection) = self.connections.get_mut(&app) {
                connection.session.end(0, ErrorCode::BadMessage, "no hello came in time".to_owned());
                connection.flush();
            }
            self.close(app, commands);
        }
    }

    /// The socket of `app` is ready, or was just accepted. What the worker is to do is appended to `commands`.
    pub fn handle_ready(&mut self, app: AppId, commands: &mut Vec<AppCommand>) {
        let Some(connection) = self.connections.get_mut(&app) else { return };
        let more = connection.receive(&mut self.buffer, &self.settings, commands);
        connection.flush();
        if connection.session.has_ended() {
            self.close(app, commands);
        } else if more && !self.backlog.contains(&app) {
            self.backlog.push(app);
        }
    }

    /// True if [`AppServer::handle_backlog`] has something to do: do not sleep.
    pub fn has_backlog(&self) -> bool {
        !self.backlog.is_empty()
    }

    /// Gives another turn to applications whose messages were not all read.
    pub fn handle_backlog(&mut self, commands: &mut Vec<AppCommand>) {
        for app in std::mem::take(&mut self.backlog) {
            self.handle_ready(app, commands);
        }
    }

    /// News from the worker.
    pub fn handle_update(&mut self, update: AppUpdate, commands: &mut Vec<AppCommand>) {
        let app = match &update {
            AppUpdate::Reply { app, .. } | AppUpdate::Event { app, .. } => *app,
        };
        let Some(connection) = self.connections.get_mut(&app) else { return };
        match update {
            // `retired` is unmapped here, where time is not precious.
            AppUpdate::Reply { ticket, result, .. } => connection.session.handle_reply(ticket, result),
            AppUpdate::Event { event, .. } => connection.session.handle_event(event),
        }
        // A reply also makes room for requests that wait in the socket.
        self.handle_ready(app, commands);
    }

    fn close(&mut self, app: AppId, commands: &mut Vec<AppCommand>) {
        if let Some(connection) = self.connections.remove(&app) {
            tracing::info!(app = app.0, name = connection.session.name().unwrap_or("?"), "application detached");
            if connection.session.name().is_some() {
                commands.push(AppCommand { app, ticket: 0, action: AppAction::Release });
            }
        }
    }
}

/// Why one more application has no place beside `attached` others, `of_user` of them of its own user.
fn refusal(limit: u32, attached: usize, of_user: usize, uid: Option<u32>) -> Option<String> {
    let count = |applications: usize| u32::try_from(applications).unwrap_or(u32::MAX);
    if count(attached) >= limit {
        return Some(format!("weftd has {limit} applications attached already (applications.max_applications)"));
    }
    let (part, whole) = USER_SHARE;
    let share = u32::try_from(u64::from(limit) * u64::from(part) / u64::from(whole)).unwrap_or(limit).max(1);
    let is_root = uid == Some(0);
    (!is_root && count(of_user) >= share).then(|| {
        format!("this user has {of_user} applications attached already, {part}/{whole} of applications.max_applications ({limit})")
    })
}

impl Connection {
    /// Handles up to [`BUDGET`] messages. True if there may be more.
    fn receive(&mut self, buffer: &mut [u8], settings: &Settings, commands: &mut Vec<AppCommand>) -> bool {
        commands.extend(self.session.go_on(settings));
        for _ in 0..BUDGET {
            if !self.session.wants_message() {
                return false;
            }
            match socket::receive(&self.socket, buffer) {
                Ok(Some(received)) => commands.extend(self.session.handle_message(received, settings)),
                Ok(None) => self.session.hang_up(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::InvalidData => self.session.handle_garbage(),
                Err(_) => self.session.hang_up(),
            }
        }
        true
    }

    /// Sends what the application's socket takes.
    fn flush(&mut self) {
        while let Some(message) = self.session.next_outgoing() {
            match socket::send(&self.socket, &message.bytes, &message.borrowed_fds()) {
                Ok(()) => self.session.outgoing_sent(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => return self.session.hang_up(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_user_gets_three_quarters_of_the_places_and_root_all() {
        let user = Some(1000);
        assert_eq!(refusal(8, 5, 5, user), None);
        assert!(refusal(8, 6, 6, user).unwrap().contains("3/4 of applications.max_applications (8)"));
        assert_eq!(refusal(8, 6, 0, Some(1001)), None, "another user");
        assert_eq!(refusal(8, 7, 7, Some(0)), None, "root");
        assert!(refusal(8, 7, 7, None).is_some(), "a user that the kernel does not tell is not root");
        assert!(refusal(8, 8, 0, Some(0)).unwrap().starts_with("weftd has 8 applications"));
        assert_eq!(refusal(1, 0, 0, user), None, "a single place is for anybody");
        assert_eq!(refusal(u32::MAX, 7, 7, user), None);
    }
}
