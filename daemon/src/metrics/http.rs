//! As much HTTP/1.1 as two small pages need: one request per connection, without a body.
//!
//! The client is not trusted: a request has a bounded head, and request and answer together have a deadline, so that
//! one who sends or reads slowly, or not at all, holds the server up for no longer than that.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Instant;

/// Longest head of a request in bytes; those of scrapers have a few hundred.
const HEAD_MAX: usize = 8 * 1024;
/// Most header lines in a head.
const HEADERS_MAX: usize = 64;

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) method: String,
    /// Without the query.
    pub(super) path: String,
}

/// What it gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Response {
    pub(super) status: Status,
    pub(super) text: String,
}

/// Status codes (RFC 9110, and RFC 6585 for the last).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Ok,
    BadRequest,
    NotFound,
    MethodNotAllowed,
    HeadTooLarge,
    InternalError,
    Unavailable,
}

impl Status {
    const fn line(self) -> &'static str {
        match self {
            Self::Ok => "200 OK",
            Self::BadRequest => "400 Bad Request",
            Self::NotFound => "404 Not Found",
            Self::MethodNotAllowed => "405 Method Not Allowed\r\nAllow: GET, HEAD",
            Self::HeadTooLarge => "431 Request Header Fields Too Large",
            Self::InternalError => "500 Internal Server Error",
            Self::Unavailable => "503 Service Unavailable",
        }
    }
}

/// Serves one connection until `deadline`.
///
/// # Errors
/// If the client is gone or too slow. Nobody is left to be told then.
pub(super) fn serve(mut stream: TcpStream, deadline: Instant, answer: impl FnOnce(&Request) -> Response) -> io::Result<()> {
    let (response, with_body) = match read_request(&mut stream, deadline)? {
        Ok(request) => (answer(&request), request.method != "HEAD"),
        Err(refusal) => (refusal, true),
    };
    write_all(&mut stream, head(&response).as_bytes(), deadline)?;
    if with_body {
        write_all(&mut stream, response.text.as_bytes(), deadline)?;
    }
    Ok(())
}

fn head(response: &Response) -> String {
    // The media type is that of the Prometheus text format, version 0.0.4.
    format!(
        "HTTP/1.1 {}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        response.status.line(),
        response.text.len()
    )
}

/// Reads a request, or says why it is refused.
fn read_request(stream: &mut TcpStream, deadline: Instant) -> io::Result<Result<Request, Response>> {
    let mut buffer = [0; HEAD_MAX];
    let mut filled = 0;
    while filled < HEAD_MAX {
        stream.set_read_timeout(Some(time_left(deadline)?))?;
        match stream.read(&mut buffer[filled..]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(more) => filled += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        }
        if let Some(outcome) = parse(&buffer[..filled]) {
            return Ok(outcome);
        }
    }
    Ok(Err(too_large()))
}

/// Parses a head; `None` if more of it must come.
fn parse(bytes: &[u8]) -> Option<Result<Request, Response>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Partial) => None,
        Ok(httparse::Status::Complete(_)) => {
            let target = request.path.unwrap_or_default();
            let path = target.split('?').next().unwrap_or(target).to_owned();
            Some(Ok(Request { method: request.method.unwrap_or_default().to_owned(), path }))
        }
        Err(httparse::Error::TooManyHeaders) => Some(Err(too_large())),
        Err(error) => Some(Err(Response { status: Status::BadRequest, text: format!("not an HTTP request: {error}\n") })),
    }
}

fn too_large() -> Response {
    let text = format!("a request has at most {HEAD_MAX} bytes and {HEADERS_MAX} header lines here\n");
    Response { status: Status::HeadTooLarge, text }
}

/// Like the method of the stream, but with one deadline for all its calls.
fn write_all(stream: &mut TcpStream, mut bytes: &[u8], deadline: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.set_write_timeout(Some(time_left(deadline)?))?;
        match stream.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn time_left(deadline: Instant) -> io::Result<std::time::Duration> {
    deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()).ok_or_else(|| io::ErrorKind::TimedOut.into())
}
