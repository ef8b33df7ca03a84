//! Repository chores: `cargo demo` builds both programs and runs the demo lab.

use std::env;
use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

const USAGE: &str = "usage: cargo demo [arguments of `weftctl lab demo`]";

fn main() -> ExitCode {
    let mut arguments = env::args_os().skip(1);
    let chore = arguments.next();
    let outcome = match chore.as_ref().and_then(|chore| chore.to_str()) {
        Some("demo") => demo(arguments.collect()),
        _ => Err(USAGE.to_owned()),
    };
    let Err(message) = outcome;
    eprintln!("xtask: {message}");
    ExitCode::FAILURE
}

/// Becomes `weftctl lab demo`; returns only if that fails.
fn demo(arguments: Vec<OsString>) -> Result<std::convert::Infallible, String> {
    build()?;
    let weftctl = release_folder()?.join("weftctl");
    let error = Command::new(&weftctl).args(["lab", "demo"]).args(arguments).exec();
    Err(format!("cannot run {}: {error}", weftctl.display()))
}

fn build() -> Result<(), String> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut command = Command::new(cargo);
    // Cargo's own output goes to standard error, so `--json` stays clean.
    command.current_dir(root).args(["build", "--release", "--package", "weft-daemon", "--package", "weft-ctl"]);
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err("the build failed; the reason stands above".to_owned()),
        Err(error) => Err(format!("cannot run cargo: {error}")),
    }
}

/// Where cargo put the programs: this one is among them, wherever the target folder is.
fn release_folder() -> Result<PathBuf, String> {
    let own = env::current_exe().map_err(|error| format!("cannot find the target folder: {error}"))?;
    own.parent().map(PathBuf::from).ok_or_else(|| "the target folder has no path".to_owned())
}
