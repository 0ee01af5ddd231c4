//! The scopes of a call: the namespace, and the name if it is always the same.

use std::collections::BTreeSet;

use knr_core::config::Config;
use knr_core::feed::Feed;
use knr_core::names;
use knr_core::policy::Policies;

use crate::api::{NODE_EVENTS, Namespaces};
use crate::calls::{Call, Place};

/// A scope of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Scope {
    /// The namespace; `None` for the whole cluster.
    pub(crate) namespace: Option<String>,
    /// The name of the object; `None` for any.
    pub(crate) name: Option<String>,
}

/// Returns all scopes of a call.
pub(crate) fn of(call: Call, config: &Config, namespaces: &Namespaces) -> Vec<Scope> {
    let one = |namespace: &str| vec![Some(namespace.to_owned())];
    let namespaces = match call.rule().place {
        Place::Cluster => vec![None],
        Place::Workers => one(&namespaces.workers),
        Place::Own => one(&namespaces.own),
        Place::Lease => one(&namespaces.lease),
        Place::NodeEvents => one(NODE_EVENTS),
        Place::Gates => {
            let feeds = Feed::of_init_pods(&Policies::from(config));
            let named: BTreeSet<Option<&str>> = feeds.iter().map(Feed::namespace).collect();
            named.into_iter().map(|namespace| namespace.map(str::to_owned)).collect()
        }
    };
    namespaces.into_iter().map(|namespace| Scope { namespace, name: name(call, config) }).collect()
}

/// Returns the name of the only object that a call is about, if there is one.
pub(crate) fn name(call: Call, config: &Config) -> Option<String> {
    match call {
        Call::GetLedger | Call::UpdateLedger => Some(names::LEDGER.to_owned()),
        Call::GetLease | Call::UpdateLease | Call::WatchLease => {
            Some(config.leader_election.lease_name.clone())
        }
        _ => None,
    }
}
