//! The programs under test, built once per run with the profile and into the target folder of the running test.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Where `weftctl` and `weftd` are: beside each other, as after an installation.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    folder: PathBuf,
}

impl Programs {
    /// Builds them if this is the first call.
    pub(crate) fn built() -> Self {
        static FOLDER: OnceLock<PathBuf> = OnceLock::new();
        Self { folder: FOLDER.get_or_init(build).clone() }
    }

    /// Copies of them, and of this test program, in `folder`, for a user who cannot look into the target folder.
    pub(crate) fn copied_to(&self, folder: &Path) -> Self {
        for name in ["weftctl", "weftd"] {
            std::fs::copy(self.folder.join(name), folder.join(name)).unwrap();
        }
        Self { folder: folder.to_owned() }
    }

    pub(crate) fn weftctl(&self) -> PathBuf {
        self.folder.join("weftctl")
    }
}

fn build() -> PathBuf {
    // target/PROFILE/deps/e2e-HASH
    let own = std::env::current_exe().unwrap();
    let folder = own.ancestors().nth(2).unwrap().to_owned();
    // The dev profile's folder has another name than the profile.
    let profile = match folder.file_name().unwrap().to_str().unwrap() {
        "debug" => "dev",
        other => other,
    };
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    cargo.args(["build", "--quiet", "--locked", "--package", "weft-daemon", "--package", "weft-ctl", "--bins", "--profile", profile]);
    cargo.arg("--target-dir").arg(folder.parent().unwrap());
    let status = cargo.status().unwrap();
    assert!(status.success(), "cargo could not build weftd and weftctl: {status}");
    folder
}
