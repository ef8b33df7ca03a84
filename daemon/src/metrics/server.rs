//! `/metrics` and `/healthz` over HTTP, on a thread of its own, one connection at a time.
//!
//! Read-only and without state: whoever reaches the address may read it, so it is the loopback by default. No client
//! can hold up the next one, or the end of the daemon, for longer than [`PATIENCE`].

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use rustix::net::Shutdown;
use thiserror::Error;
use weft_proto::{Duration, Instant};

use super::Metrics;
use super::http::{self, Request, Response, Status};
use crate::snapshot::Board;

/// A worker that has not breathed for so long is stuck: its longest sleep is a tenth of this.
const STUCK_AFTER: Duration = Duration::from_secs(10);
/// Time for one request and its answer.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(1);
/// A process without descriptors for another connection tries again after this.
const RETRY: std::time::Duration = std::time::Duration::from_millis(100);

/// The metrics server could not be started.
#[derive(Debug, Error)]
#[error("metrics.listen: cannot listen on {address}: {reason}; choose another address, or set metrics.enabled: false")]
pub struct ServerError {
    address: SocketAddr,
    reason: String,
}

/// What the serving thread shares with its owner.
#[derive(Debug)]
struct Shared {
    listener: TcpListener,
    stop: AtomicBool,
}

/// A running server; dropping it stops the thread.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Binds `address` and starts to serve. `clock` tells the time on the worker's clock.
    ///
    /// # Errors
    /// If the address is taken or not local.
    pub fn start(address: SocketAddr, board: Arc<Board>, clock: fn() -> Instant) -> Result<Self, ServerError> {
        let failed = |reason: String| ServerError { address, reason };
        let metrics = Metrics::new(Arc::clone(&board)).map_err(|e| failed(e.to_string()))?;
        let listener = TcpListener::bind(address).map_err(|e| failed(e.to_string()))?;
        let shared = Arc::new(Shared { listener, stop: AtomicBool::new(false) });
        let site = Site { metrics, board, clock };
        let serving = Arc::clone(&shared);
        let thread = thread::Builder::new().name("weft-metrics".into()).spawn(move || site.serve(&serving));
        Ok(Self { shared, thread: Some(thread.map_err(|e| failed(e.to_string()))?) })
    }

    /// The address bound, with the port chosen by the kernel if the configured one was 0.
    pub fn address(&self) -> Option<SocketAddr> {
        self.shared.listener.local_addr().ok()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        // Ends a wait for connections (on Linux), and refuses those that wait. A valid listening socket lets that happen.
        let _ = rustix::net::shutdown(&self.shared.listener, Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            // A panic there has been reported by its own thread.
            let _ = thread.join();
        }
    }
}

struct Site {
    metrics: Metrics,
    board: Arc<Board>,
    clock: fn() -> Instant,
}

impl Site {
    fn serve(&self, shared: &Shared) {
        while !shared.stop.load(Ordering::Acquire) {
            match shared.listener.accept() {
                Ok((stream, client)) => {
                    let deadline = std::time::Instant::now() + PATIENCE;
                    if let Err(error) = http::serve(stream, deadline, |request| self.answer(request)) {
                        tracing::debug!(%client, %error, "a client of the metrics was cut off");
                    }
                }
                Err(_) if shared.stop.load(Ordering::Acquire) => return,
                Err(error) => {
                    tracing::warn!(%error, "metrics.listen: a client could not be accepted");
                    thread::sleep(RETRY);
                }
            }
        }
    }

    fn answer(&self, request: &Request) -> Response {
        let (status, text) = match (request.method.as_str(), request.path.as_str()) {
            ("GET" | "HEAD", "/metrics") => self.page(),
            ("GET" | "HEAD", "/healthz") => self.health(),
            (_, "/metrics" | "/healthz") => (Status::MethodNotAllowed, "only GET and HEAD\n".to_owned()),
            _ => (Status::NotFound, "not found; this server has /metrics and /healthz\n".to_owned()),
        };
        Response { status, text }
    }

    fn page(&self) -> (Status, String) {
        match self.metrics.text() {
            Ok(text) => (Status::Ok, text),
            Err(error) => (Status::InternalError, format!("cannot encode the metrics: {error}\n")),
        }
    }

    fn health(&self) -> (Status, String) {
        let silence = self.board.silence((self.clock)());
        if silence < STUCK_AFTER {
            return (Status::Ok, "ok\n".to_owned());
        }
        (Status::Unavailable, format!("the worker has not run for {} s\n", silence.as_nanos() / 1_000_000_000))
    }
}
