//! Commands that end within a bound, and what they said.

use std::io::{BufRead as _, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// How a command ended, and its output.
#[derive(Debug)]
pub(crate) struct Ended {
    what: String,
    status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    /// It must have succeeded.
    pub(crate) fn ok(self) -> Self {
        assert!(self.status.success(), "{}: {}\n{}{}", self.what, self.status, self.stdout, self.stderr);
        self
    }

    /// It must have ended with `code`; what it said on standard error.
    pub(crate) fn fails(self, code: i32) -> String {
        assert_eq!(self.status.code(), Some(code), "{}: {}\n{}{}", self.what, self.status, self.stdout, self.stderr);
        self.stderr
    }

    pub(crate) fn code(&self) -> Option<i32> {
        self.status.code()
    }

    /// Its output as one JSON value.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{}: {error}: {}{}", self.what, self.stdout, self.stderr))
    }
}

/// Runs `command` to its end, which must come within `limit`.
pub(crate) fn run(command: Command, limit: Duration) -> Ended {
    Background::start(command).wait(limit)
}

/// What a reader thread has read, and whether it is at the end.
#[derive(Debug, Default)]
struct Text {
    content: Mutex<(String, bool)>,
    changed: Condvar,
}

impl Text {
    fn read(stream: impl Read + Send + 'static) -> Arc<Self> {
        let text = Arc::new(Self::default());
        let shared = Arc::clone(&text);
        std::thread::spawn(move || {
            let mut stream = BufReader::new(stream);
            let mut line = Vec::new();
            while stream.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
                shared.content.lock().unwrap().0.push_str(&String::from_utf8_lossy(&line));
                shared.changed.notify_all();
                line.clear();
            }
            shared.content.lock().unwrap().1 = true;
            shared.changed.notify_all();
        });
        text
    }

    /// Waits until `enough` of the text is there, or the end, or `limit`; the text.
    fn wait(&self, limit: Duration, enough: impl Fn(&str) -> bool) -> String {
        let waiting = |content: &mut (String, bool)| !content.1 && !enough(&content.0);
        self.changed.wait_timeout_while(self.content.lock().unwrap(), limit, waiting).unwrap().0.0.clone()
    }
}

/// A command in the background. It ends with this value.
#[derive(Debug)]
pub(crate) struct Background {
    what: String,
    child: Child,
    stdout: Arc<Text>,
    stderr: Arc<Text>,
}

impl Background {
    pub(crate) fn start(mut command: Command) -> Self {
        let arguments: Vec<_> = command.get_args().map(|argument| argument.to_string_lossy()).collect();
        let what = arguments.join(" ");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{what}: {error}"));
        let (stdout, stderr) = (Text::read(child.stdout.take().unwrap()), Text::read(child.stderr.take().unwrap()));
        Self { what, child, stdout, stderr }
    }

    /// Waits until `words` stand in its standard output.
    pub(crate) fn says(&self, words: &str, limit: Duration) {
        let text = self.stdout.wait(limit, |text| text.contains(words));
        assert!(text.contains(words), "{}: has not said {words:?}: {text}{}", self.what, self.stderr.wait(Duration::ZERO, |_| true));
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for its end, which must come within `limit`.
    pub(crate) fn wait(mut self, limit: Duration) -> Ended {
        let deadline = Instant::now() + limit;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < deadline, "{}: still running after {limit:?}\n{}", self.what, self.so_far());
            std::thread::sleep(Duration::from_millis(5));
        };
        // A process that it left behind could keep the pipes open.
        let rest = |text: &Text| text.wait(Duration::from_secs(2), |_| false);
        Ended { what: self.what.clone(), status, stdout: rest(&self.stdout), stderr: rest(&self.stderr) }
    }

    fn so_far(&self) -> String {
        self.stdout.wait(Duration::ZERO, |_| true) + &self.stderr.wait(Duration::ZERO, |_| true)
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
