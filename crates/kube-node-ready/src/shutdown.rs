//! Signals: the first one starts an orderly shutdown, the second one ends the process at once.

use anyhow::{Context, Result};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::exit;

/// Returns a token that is cancelled by SIGTERM or SIGINT.
pub(crate) fn on_signal() -> Result<CancellationToken> {
    let mut terminate = signal(SignalKind::terminate()).context("SIGTERM cannot be handled")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("SIGINT cannot be handled")?;
    let token = CancellationToken::new();
    let cancelled = token.clone();
    tokio::spawn(async move {
        for _ in 0..2 {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            if cancelled.is_cancelled() {
                tracing::warn!("received a second signal to stop; exiting at once");
                std::process::exit(exit::FAILED.into());
            }
            tracing::info!("received a signal to stop");
            cancelled.cancel();
        }
    });
    Ok(token)
}
