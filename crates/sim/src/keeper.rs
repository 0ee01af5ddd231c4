//! The pod of the `DaemonSet` on one machine. It applies the rules to one node, from that node itself, as the product's
//! `daemonset/keeper.rs` does. To the rules, a run of the checks in its own process is a worker like any other.

mod life;
mod monitoring;

use std::sync::Arc;

use jiff::Timestamp;
use knr_core::action::{Action, worker_name};
use knr_core::config::Config;
use knr_core::engine::{Engine, Outcome, Question};
use knr_core::explain::{Access, Phase};
use knr_core::ids::{NodeName, NodeRef, Uid, Version, WorkerRef};
use knr_core::view::{Ending, Stage, Stamp, WorkerView};
use knr_core::world::{Fact, Source};

use crate::api;
use crate::writers::Request;
pub(crate) use monitoring::Monitoring;

/// Something that happens to the pod on a machine. The first number is the life of the pod.
#[derive(Debug)]
pub(crate) enum KeeperEvent {
    /// The kubelet starts it, for this node.
    Start(Uid),
    /// It is time to decide.
    Wake(u32),
    /// A write reaches the API server.
    Arrive(Box<Request>),
    /// The answer to a write arrives.
    Answer(Box<Request>, Outcome),
    /// The node is read, because of a question.
    Look(u32, Question),
    /// The result of a read arrives.
    Learn(u32, Vec<Fact>),
    /// A run of the checks ends.
    Ran(u32, u64),
    /// The checks were run on a verified node.
    Monitored(u32),
    /// The checks failed too often in a row, and the API server can still be reached.
    Confirmed(u32),
    /// It crashes, and its kubelet starts it again.
    Crash(u32),
    /// It is told to stop.
    Stop(u32),
    /// Its grace period is over.
    Kill(u32),
}

/// The pod on one machine.
#[derive(Debug)]
pub(crate) struct Keeper {
    /// The rules.
    pub(crate) engine: Engine,
    /// The configuration it was started with.
    config: Arc<Config>,
    node: NodeRef,
    life: u32,
    /// The current run.
    run: Option<WorkerView>,
    /// The number of events so far. It takes the place of the API server's versions.
    events: u64,
    monitoring: Option<Monitoring>,
    /// The checks have just failed, so the run that the rules are about to ask for counts as failed.
    evidence: bool,
    stopping: bool,
    wake: Option<Timestamp>,
}

impl Keeper {
    /// Begins a run, and returns the number under which its end is reported.
    fn begin(&mut self, stamp: &Stamp) -> (u64, Fact) {
        self.events += 1;
        let id = WorkerRef {
            name: worker_name(&stamp.node.uid),
            // No two runs have the same UID, so that the monitor can tell them apart.
            uid: format!("run-{}-{}-{}", stamp.node.uid, self.life, self.events).into(),
        };
        let view = api::new_worker(id, stamp.clone(), Version(self.events), Stage::Running);
        self.run = Some(view.clone());
        (self.events, Fact::Worker(view, Source::Answer))
    }

    /// Returns the current run, if it began under this number and has not ended.
    fn current(&self, number: u64) -> Option<&WorkerView> {
        self.run.as_ref().filter(|run| run.version == Version(number) && run.stage == Stage::Running)
    }

    /// Ends the current run.
    fn end(&mut self, ending: Ending) -> Option<Fact> {
        self.events += 1;
        let run = self.run.as_mut()?;
        run.version = Version(self.events);
        run.stage = Stage::Ended(ending);
        Some(Fact::Worker(run.clone(), Source::Watch))
    }

    /// Removes a run that is no longer wanted.
    fn remove(&mut self, worker: &WorkerRef, node: &NodeName) -> Fact {
        self.run.take_if(|run| run.id == *worker);
        self.events += 1;
        Fact::WorkerGone(worker.clone(), node.clone(), Version(self.events), Source::Answer)
    }

    fn is_verified(&self) -> bool {
        self.engine
            .explanations()
            .any(|(_, shown)| shown.phase == Phase::Verified && shown.access == Access::Open)
    }

    /// Returns the version at which the node was last seen.
    fn known(&self) -> Option<Version> {
        let mut views = self.engine.world().entries().filter_map(|(_, entry)| entry.view.as_ref());
        views.next().map(|view| view.version)
    }
}

/// Returns the configuration for one node, without everything that only a controller can do.
fn for_one_node(mut config: Config) -> Config {
    config.gates.clear();
    config.node_management.after.clear();
    config.node_management.delete_failed_nodes = false;
    config
}

/// Runs of the checks begin and end in this process, so the outcome of such an action is known at once.
fn is_local(action: &Action) -> bool {
    matches!(action, Action::StartWorker { .. } | Action::RemoveWorker { .. })
}

/// Returns whether the action should have closed a node, but possibly did not.
fn is_in_vain(action: &Action, outcome: &Outcome) -> bool {
    matches!(action, Action::CloseGate { .. }) && !matches!(outcome, Outcome::Done(_) | Outcome::Conflict)
}
