//! The bar that shows how far a transfer is, at a terminal only.

use std::io::IsTerminal as _;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

const TEMPLATE: &str = "{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}";

#[derive(Debug)]
pub(super) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// A bar for `total` bytes, unless nobody looks.
    pub(super) fn new(total: u64, quiet: bool) -> Self {
        let target = if quiet || !std::io::stderr().is_terminal() { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let bar = ProgressBar::with_draw_target(Some(total), target);
        if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
            bar.set_style(style);
        }
        Self { bar }
    }

    pub(super) fn begin(&self, name: &str) {
        self.bar.set_message(name.to_owned());
    }

    /// Takes the bar away, so that something else can be said.
    pub(super) fn end(&self) {
        self.bar.finish_and_clear();
    }

    pub(super) fn add(&self, bytes: u64) {
        self.bar.inc(bytes);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.end();
    }
}
