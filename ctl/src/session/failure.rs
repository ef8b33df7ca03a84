//! What the application library's errors mean to the user of a command.

use std::time::Duration;

use weft_verbs::{ConnectFailure, Context, Error, Event, PostError, QpNum, Status};

use super::Target;
use crate::admin;
use crate::exit::{Exit, failure};

/// The error of a call that concerned `peer`.
pub(crate) fn explain(error: Error, peer: &str) -> anyhow::Error {
    match error {
        Error::Unreachable { path, source } => admin::unreachable(&path, &source, "--app-socket or WEFT_APP_SOCKET", "applications.mode"),
        Error::DaemonGone => daemon_gone(),
        Error::TimedOut { .. } => failure(Exit::Unreachable, format!("{peer}: {error}")),
        other => anyhow::Error::new(other).context(peer.to_owned()),
    }
}

/// The error of an attempt to connect.
pub(super) fn not_connected(error: Error, target: &Target<'_>) -> anyhow::Error {
    match error {
        Error::ConnectFailed { reason, private } => failure(Exit::Unreachable, refused(target, reason, &private)),
        Error::Refused { message, .. } => failure(Exit::Usage, format!("{}: {message}", target.host)),
        other => explain(other, target.host),
    }
}

fn refused(target: &Target<'_>, reason: ConnectFailure, private: &[u8]) -> String {
    let Target { host, service, listener } = target;
    match reason {
        ConnectFailure::Unreachable => {
            format!(
                "{host} does not answer; is weftd running there, is the link up, is its address right (see `hosts` in the configuration)?"
            )
        }
        ConnectFailure::Rejected if private.is_empty() => format!("{host} refuses the connection"),
        ConnectFailure::Rejected => format!("{host} refuses the connection: {}", crate::text::foreign(private)),
        ConnectFailure::NoListener => {
            format!("weftd runs on {host}, but nothing listens there on service {service}; start `{listener}` there, then try again")
        }
        ConnectFailure::NoResources => format!("weftd on {host} has no room for another connection; see `transport.max_qps` there"),
        ConnectFailure::VersionMismatch => format!("weftd on {host} speaks another version of the transport; run the same on both hosts"),
    }
}

/// The error of a request that could not be posted.
pub(super) fn not_posted(error: PostError) -> anyhow::Error {
    match error {
        PostError::DaemonGone => daemon_gone(),
        other => anyhow::Error::new(other),
    }
}

fn daemon_gone() -> anyhow::Error {
    failure(
        Exit::Unreachable,
        "weftd on this host went away: it stopped, or turned this command out (see its log); start it and run the command again",
    )
}

/// The error of a connection that ended while in use; without a `reason`, the peer closed it.
pub(super) fn ended(peer: &str, reason: Option<Status>) -> anyhow::Error {
    let what = match reason {
        None => "the other side closed the connection".to_owned(),
        Some(Status::Flushed) => "the connection ended: the other side closed it, or is gone".to_owned(),
        Some(Status::RetryExceeded) => "no answer any more: its weftd has ended, or the link is down".to_owned(),
        Some(Status::PeerRestarted) => "its weftd was restarted, so the connection is lost; run the command again".to_owned(),
        Some(other) => format!("the connection failed: {}", other.description()),
    };
    failure(Exit::Unreachable, format!("{peer}: {what}"))
}

/// Why the queue pair failed, as the daemon says: flushed requests do not tell. `None` if the peer closed it.
pub(super) fn reason(context: &Context, num: QpNum) -> Option<Status> {
    // The event comes over a socket and the completions through memory, so it may be a little later.
    while let Ok(Some(event)) = context.next_event(Duration::from_millis(50)) {
        match event {
            Event::QpFailed { qp, status } if qp == num => return Some(status),
            Event::Disconnected { qp } if qp == num => return None,
            _ => {}
        }
    }
    Some(Status::Flushed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: Target<'static> = Target { host: "b", service: 10, listener: "weftctl receive DIR" };

    #[test]
    fn every_way_not_to_connect_says_what_to_do_about_it() {
        let message = |reason, private: &[u8]| {
            let error = not_connected(Error::ConnectFailed { reason, private: private.to_vec() }, &TARGET);
            assert_eq!(crate::exit::of(&error), Exit::Unreachable);
            error.to_string()
        };
        assert!(message(ConnectFailure::NoListener, b"").contains("start `weftctl receive DIR` there"));
        assert!(message(ConnectFailure::Unreachable, b"").contains("is weftd running there"));
        assert!(message(ConnectFailure::NoResources, b"").contains("transport.max_qps"));
        assert!(message(ConnectFailure::VersionMismatch, b"").contains("run the same on both hosts"));
        let rejected = message(ConnectFailure::Rejected, b"busy \x1b[2J");
        assert!(rejected.contains("busy") && !rejected.contains('\u{1b}'), "{rejected}");
    }

    #[test]
    fn a_connections_end_tells_a_dead_daemon_from_one_that_hung_up() {
        let message = |reason| ended("b", reason).to_string();
        assert!(message(None).contains("the other side closed"));
        assert!(message(Some(Status::RetryExceeded)).contains("its weftd has ended"));
        assert!(message(Some(Status::PeerRestarted)).contains("run the command again"));
        assert!(message(Some(Status::RemoteAccess)).contains("peer refused the access"));
    }

    #[test]
    fn a_socket_that_is_missing_or_forbidden_ends_with_the_code_for_it() {
        let unreachable = |kind: std::io::ErrorKind| explain(Error::Unreachable { path: "/none".into(), source: kind.into() }, "this host");
        assert_eq!(crate::exit::of(&unreachable(std::io::ErrorKind::NotFound)), Exit::Unreachable);
        assert_eq!(crate::exit::of(&unreachable(std::io::ErrorKind::PermissionDenied)), Exit::NotPermitted);
    }
}
