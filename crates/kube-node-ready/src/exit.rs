//! Exit codes. They are documented in `docs/cli.md`.

use knr_core::config::Problems;

/// Something failed.
pub(crate) const FAILED: u8 = 1;
/// The configuration or the command line is wrong.
pub(crate) const BAD_INPUT: u8 = 2;
/// The API server denies a permission that the command needs.
pub(crate) const FORBIDDEN: u8 = 3;

/// An input of the program is wrong, such as a file or an argument.
#[derive(Debug)]
pub(crate) struct BadInput(pub(crate) String);

impl std::fmt::Display for BadInput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadInput {}

/// The exit code for an error.
pub(crate) fn of(error: &anyhow::Error) -> u8 {
    let is_bad_input =
        |cause: &(dyn std::error::Error + 'static)| cause.is::<Problems>() || cause.is::<BadInput>();
    if error.chain().any(is_bad_input) { BAD_INPUT } else { FAILED }
}
