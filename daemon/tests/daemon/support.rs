//! Daemons in a network namespace of their own, and ways to talk to them.

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Longer than anything here takes on a loaded machine; only a failure waits for it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A user and network namespace with a loopback; it ends with this value.
pub(crate) struct Namespace {
    holder: Child,
    folder: tempfile::TempDir,
}

impl Namespace {
    /// A namespace in which `script` has run.
    pub(crate) fn new(script: &str) -> Self {
        let script = format!("set -e; ip link set lo up; {script}\necho ready; exec cat");
        let mut holder = Command::new("unshare")
            .args(["--user", "--map-root-user", "--net", "sh", "-c", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("these tests need unshare (util-linux) and ip (iproute2)");
        let mut line = String::new();
        BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n", "the namespace could not be set up");
        Self { holder, folder: tempfile::tempdir().unwrap() }
    }

    /// Two hosts on one cable: interfaces `va` (02:..:0a) and `vb` (02:..:0b).
    pub(crate) fn with_cable() -> Self {
        Self::new(
            "ip link add va address 02:00:00:00:00:0a type veth peer name vb address 02:00:00:00:00:0b
             ip link set va up; ip link set vb up",
        )
    }

    /// A command that runs inside, with all capabilities there.
    pub(crate) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.holder.id().to_string(), "--user", "--net", "--preserve-credentials"]);
        command.arg(program.as_ref());
        command
    }

    /// Runs a script inside.
    pub(crate) fn run(&self, script: &str) -> String {
        let output = self.command("bash").args(["-c", script]).output().unwrap();
        assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a node's configuration and returns its path. `ports` and `more` are YAML.
    pub(crate) fn configure(&self, node: &str, ports: &str, more: &str) -> PathBuf {
        let (control, app) = (self.path(&format!("{node}.sock")), self.path(&format!("{node}.app")));
        let file = self.path(&format!("{node}.yaml"));
        let text = format!(
            "version: 1\nnode: {node}\ncontrol: {{ socket: {} }}\napplications: {{ socket: {} }}\nports:\n{ports}\n\
             hosts: {{ a: \"02:00:00:00:00:0a\", b: \"02:00:00:00:00:0b\" }}\n{more}\n",
            control.display(),
            app.display()
        );
        fs::write(&file, text).unwrap();
        file
    }

    /// A host `a` or `b` on its end of the cable.
    pub(crate) fn host(&self, node: &str) -> Weftd {
        let ports = format!("  - {{ name: eth0, interface: v{node}, role: host }}");
        self.configure(node, &ports, "metrics: { enabled: false }");
        self.start(node)
    }

    /// Starts `weftd` for a configured node and waits until it says that it is ready.
    pub(crate) fn start(&self, node: &str) -> Weftd {
        let notify = self.path(&format!("{node}.notify"));
        let _ = fs::remove_file(&notify);
        let ready = UnixDatagram::bind(&notify).unwrap();
        ready.set_read_timeout(Some(PATIENCE)).unwrap();
        let log = fs::File::create(self.path(&format!("{node}.log"))).unwrap();
        let mut command = self.weftd(&self.path(&format!("{node}.yaml")));
        let child = command.env("NOTIFY_SOCKET", &notify).stderr(log).spawn().unwrap();
        let mut weftd = Weftd { child, control: self.path(&format!("{node}.sock")), app: self.path(&format!("{node}.app")) };
        let mut buffer = [0; 64];
        match ready.recv(&mut buffer) {
            Ok(len) => assert_eq!(&buffer[..len], b"READY=1"),
            Err(error) => panic!("{node} is not ready: {error}; {:?}; log: {}", weftd.child.try_wait(), self.log(node)),
        }
        weftd
    }

    /// The command that starts `weftd` with a configuration.
    pub(crate) fn weftd(&self, config: &Path) -> Command {
        let mut command = self.command(env!("CARGO_BIN_EXE_weftd"));
        command.arg("--config").arg(config);
        command
    }

    /// What a node logged.
    pub(crate) fn log(&self, node: &str) -> String {
        fs::read_to_string(self.path(&format!("{node}.log"))).unwrap()
    }

    /// The answer of a node's metrics server to `GET path`.
    pub(crate) fn http(&self, port: u16, path: &str) -> String {
        self.run(&format!(
            "exec 3<>/dev/tcp/127.0.0.1/{port}; printf 'GET {path} HTTP/1.1\\r\\nHost: weft\\r\\nConnection: close\\r\\n\\r\\n' >&3; cat <&3"
        ))
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        drop(self.holder.stdin.take());
        let _ = self.holder.wait();
    }
}

/// A running daemon; killed with this value.
pub(crate) struct Weftd {
    pub(crate) child: Child,
    pub(crate) control: PathBuf,
    pub(crate) app: PathBuf,
}

impl Weftd {
    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = i32::try_from(self.child.id()).unwrap();
        rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), signal).unwrap();
    }

    /// Waits for the end.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let status = eventually(|| self.child.try_wait().unwrap());
        status.unwrap_or_else(|| panic!("weftd does not end"))
    }

    /// Ends it in order.
    pub(crate) fn stop(mut self) {
        self.signal(rustix::process::Signal::TERM);
        assert_eq!(self.wait().code(), Some(0));
    }

    /// A connection to the admin socket.
    pub(crate) fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(&self.control).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Sends one line and returns the answer.
    pub(crate) fn line(&self, line: &str) -> Value {
        let mut stream = self.connect();
        stream.write_all(format!("{line}\n").as_bytes()).unwrap();
        read_line(&mut stream)
    }

    /// The result of a request.
    pub(crate) fn ask(&self, kind: &str) -> Value {
        let answer = self.line(&json!({"version": 1, "id": 1, "request": {"type": kind}}).to_string());
        assert!(answer.get("result").is_some(), "{kind}: {answer}");
        answer["result"].clone()
    }

    /// The refusal of a request.
    pub(crate) fn refusal(&self, kind: &str) -> Value {
        self.line(&json!({"version": 1, "id": 1, "request": {"type": kind}}).to_string())["error"].clone()
    }
}

impl Drop for Weftd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One line of JSON; `null` if the daemon hung up.
pub(crate) fn read_line(stream: &mut UnixStream) -> Value {
    let mut line = Vec::new();
    let mut byte = [0];
    loop {
        match stream.read(&mut byte) {
            Ok(1) if byte[0] != b'\n' => line.push(byte[0]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() != ErrorKind::ConnectionReset => panic!("no answer: {error}"),
            _ => break,
        }
    }
    serde_json::from_slice(&line).unwrap_or(Value::Null)
}

/// Tries until there is something, for as long as [`PATIENCE`].
pub(crate) fn eventually<T>(mut attempt: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        let found = attempt();
        if found.is_some() {
            return found;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    None
}
