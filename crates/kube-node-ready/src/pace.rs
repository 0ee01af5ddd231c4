//! How soon the process looks at what comes in.
//!
//! Each look costs about as much as what is looked at: the process is woken and finds its caches cold. As long as only
//! such things are under way as nobody waits for, a few of them are gathered first.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// What is gathered is looked at after this long: far below what anybody would notice.
const GATHERED: Duration = Duration::from_millis(10);

static UNHURRIED: AtomicBool = AtomicBool::new(false);

/// Says whether anybody waits for what is under way.
pub(crate) fn set_unhurried(unhurried: bool) {
    UNHURRIED.store(unhurried, Ordering::Relaxed);
}

/// To be called when there is nothing to do.
pub(crate) fn when_idle() {
    if UNHURRIED.load(Ordering::Relaxed) {
        thread::sleep(GATHERED);
    }
}
