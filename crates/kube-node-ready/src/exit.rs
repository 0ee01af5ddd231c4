//! Exit codes. They are documented in `docs/cli.md`.

use knr_core::config::Problems;

/// Something failed.
pub(crate) const FAILED: u8 = 1;
/// The configuration or the command line is wrong.
pub(crate) const BAD_INPUT: u8 = 2;
/// The API server does not let us do what we must do.
pub(crate) const FORBIDDEN: u8 = 3;

/// The exit code for an error.
pub(crate) fn of(error: &anyhow::Error) -> u8 {
    if error.chain().any(<dyn std::error::Error>::is::<Problems>) { BAD_INPUT } else { FAILED }
}
