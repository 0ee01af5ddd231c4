//! Reads of the node and of Karpenter's pools, which answer questions of the rules.

use jiff::Timestamp;
use knr_core::engine::Question;
use knr_core::view::NodeView;
use knr_core::world::{Fact, Reread, Source};

use super::super::pools;
use super::{Event, Keeper};

impl Keeper {
    /// Reads the node to answer a question.
    pub(super) fn look(&self, question: Question) {
        let (api, happened, node) = (self.api.clone(), self.happened.clone(), self.checks.node.clone());
        let deadline = self.deadline();
        tokio::spawn(async move {
            let _ = happened.send(Event::Seen(question, api.own_node(&node, deadline).await));
        });
    }

    pub(super) fn look_for_pools(&self, view: &NodeView) {
        let (api, happened, view) = (self.api.clone(), self.happened.clone(), view.clone());
        let deadline = self.deadline();
        tokio::spawn(async move {
            if let Some(fact) = pools(&api, &view, deadline).await {
                let _ = happened.send(Event::Pools(fact));
            }
        });
    }

    pub(super) fn saw(&mut self, question: Question, view: Option<NodeView>, now: Timestamp) {
        if let Some(view) = &view {
            self.look_for_pools(view);
        }
        let known = self.known();
        let fact = match (question, view) {
            (Question::Node(node), view) => {
                // If the node is gone, it is gone as of the last known version.
                let known = known.map(|(_, version)| version).unwrap_or_default();
                let node_version = view.as_ref().map_or(known, |view| view.version);
                let (worker, worker_version) = self.runs.now();
                Fact::Reread(Box::new(Reread { node, view, node_version, worker, worker_version }))
            }
            (Question::Everything | Question::StartOver | Question::Occupancy(_), Some(view)) => {
                Fact::Node(view, Source::Answer)
            }
            (Question::Everything | Question::StartOver | Question::Occupancy(_), None) => match known {
                Some((node, version)) => Fact::NodeGone(node, version),
                None => return,
            },
        };
        self.engine.learn(fact, now);
    }
}
