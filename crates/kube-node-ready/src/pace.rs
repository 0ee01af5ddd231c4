//! How soon the process looks at what comes in.
//!
//! Each look costs about as much as what is looked at: the process is woken and finds its caches cold. So a few things are
//! gathered first where nobody waits for them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Nobody waits for what is under way: far below what anybody would notice.
const UNHURRIED: Duration = Duration::from_millis(20);
/// About as long as an API server takes to answer, and to show the change to its watchers in a few pieces.
const ANSWERED: Duration = Duration::from_millis(8);

static IS_UNHURRIED: AtomicBool = AtomicBool::new(false);
static HAS_SENT: AtomicBool = AtomicBool::new(false);

/// Says whether anybody waits for what is under way.
pub(crate) fn set_unhurried(unhurried: bool) {
    IS_UNHURRIED.store(unhurried, Ordering::Relaxed);
}

/// Says that all there was to do has been sent.
pub(crate) fn sent() {
    HAS_SENT.store(true, Ordering::Relaxed);
}

/// To be called when there is nothing to do.
pub(crate) fn when_idle() {
    let has_sent = HAS_SENT.swap(false, Ordering::Relaxed);
    if IS_UNHURRIED.load(Ordering::Relaxed) {
        thread::sleep(UNHURRIED);
    } else if has_sent {
        thread::sleep(ANSWERED);
    }
}
