//! The product as its operators see it: permissions, command line, configuration, metrics, logs, and shutdown.

mod by_hand;
mod permissions;
mod process;
mod stop;
mod watching;

use std::thread;

use anyhow::{Result, anyhow};
use knr_e2e::Cluster;

#[test]
fn operators_see_what_they_need_to_know() -> Result<()> {
    let cluster = Cluster::start("operators", 3)?;
    // Nothing that is run by hand needs the controller's permissions, which come and go in the meantime.
    side_by_side(
        || permissions::exactly_what_is_missing_is_named(&cluster),
        || by_hand::everything(&cluster),
    )?;
    watching::metrics_logs_and_edits(&cluster)?;
    stop::in_order_or_at_once(&cluster)?;
    by_hand::the_script_runs_the_controller_of_this_checkout(&cluster)
}

fn side_by_side(one: impl FnOnce() -> Result<()> + Send, other: impl FnOnce() -> Result<()>) -> Result<()> {
    thread::scope(|scope| {
        let one = scope.spawn(one);
        let other = other();
        one.join().map_err(|_| anyhow!("the other scenario panicked"))??;
        other
    })
}
