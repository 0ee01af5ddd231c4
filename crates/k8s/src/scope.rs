//! Where exactly a call goes: which namespace, and which name if it is always the same one.

use knr_core::config::Config;
use knr_core::names;

use crate::api::{NODE_EVENTS, Namespaces};
use crate::calls::{Call, Place};
use crate::watch::Feed;

/// Where a call goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Scope {
    /// None for the whole cluster.
    pub(crate) namespace: Option<String>,
    /// None for any name.
    pub(crate) name: Option<String>,
}

/// Where a call goes.
pub(crate) fn of(call: Call, config: &Config, namespaces: &Namespaces) -> Scope {
    let namespace = match call.rule().place {
        Place::Cluster => None,
        Place::Workers => Some(namespaces.workers.clone()),
        Place::Own => Some(namespaces.own.clone()),
        Place::Lease => Some(namespaces.lease.clone()),
        Place::NodeEvents => Some(NODE_EVENTS.to_owned()),
        Place::Gates => Feed::init_pods(config).and_then(|feed| feed.namespace().map(str::to_owned)),
    };
    let name = match call {
        Call::GetLedger | Call::UpdateLedger => Some(names::LEDGER.to_owned()),
        Call::GetLease | Call::UpdateLease | Call::WatchLease => {
            Some(config.leader_election.lease_name.clone())
        }
        _ => None,
    };
    Scope { namespace, name }
}
