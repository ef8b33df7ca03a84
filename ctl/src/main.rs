//! The binary `weftctl`; everything is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    weft_ctl::run()
}
