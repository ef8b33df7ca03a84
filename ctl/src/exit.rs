//! Exit codes, and how a failure becomes one.

use std::process::ExitCode;

/// The codes as `--help` lists them.
pub(crate) const HELP: &str = "\
Exit codes:
  0    done
  1    failed
  2    the command line, a configuration or a topology is wrong
  3    no daemon, lab or host answers
  4    the kernel does not permit it
  5    data arrived damaged: the digests differ
  130  interrupted by Ctrl-C (128 + signal for others)
  `lab exec` and `lab run` end with the code of their command.";

/// Why a command did not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Everything without a code of its own.
    Failed,
    /// What the user wrote cannot be.
    Usage,
    /// The other side does not answer.
    Unreachable,
    /// The kernel refuses.
    NotPermitted,
    /// Data differ from what was sent.
    Damaged,
    /// Ended by the signal with this number.
    Signal(u8),
}

impl Exit {
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Unreachable => 3,
            Self::NotPermitted => 4,
            Self::Damaged => 5,
            Self::Signal(number) => 128 + number % 128,
        }
    }

    /// The inverse of [`Self::code`], for a failure reported by another process of ours.
    pub(crate) const fn from_code(code: u8) -> Self {
        match code {
            2 => Self::Usage,
            3 => Self::Unreachable,
            4 => Self::NotPermitted,
            5 => Self::Damaged,
            128.. => Self::Signal(code - 128),
            _ => Self::Failed,
        }
    }
}

/// An error with an exit code of its own; errors without one end with [`Exit::Failed`].
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Failure {
    exit: Exit,
    message: String,
}

/// An error that ends the program with `exit`.
pub(crate) fn failure(exit: Exit, message: impl Into<String>) -> anyhow::Error {
    Failure { exit, message: message.into() }.into()
}

/// The exit code that `error` asks for.
pub(crate) fn of(error: &anyhow::Error) -> Exit {
    error.downcast_ref::<Failure>().map_or(Exit::Failed, |failure| failure.exit)
}

/// Prints a failure and turns the outcome into what `main` returns.
pub(crate) fn report(outcome: anyhow::Result<u8>) -> ExitCode {
    match outcome {
        Ok(code) => code.into(),
        Err(error) => {
            eprintln!("weftctl: {error:#}");
            of(&error).code().into()
        }
    }
}
