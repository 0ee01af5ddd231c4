//! Every plan, without sampling: for short lives of a node, each fault at each point where it can occur.

use jiff::SignedDuration;

use crate::actors::{ActorEvent, Fit};
use crate::faults::{EventFault, Faults, Planned, WRITE_FAULTS};
use crate::invariants;
use crate::run::Sim;
use crate::scenario::Scenario;
use crate::stats::Stats;
use crate::story::StoryMode;

/// Longer than two full relist intervals.
const LIFE: SignedDuration = SignedDuration::from_mins(25);

/// A life of a node that is short enough to try every fault on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    /// It joins, passes, and opens.
    Sound,
    /// It fails at first, and passes later.
    Recovers,
    /// It never passes.
    NeverFit,
    /// An operator removes the label of a verified node.
    LabelRemoved,
    /// A verified node is restarted.
    Reboots,
    /// It is deleted while its worker runs, and another machine joins under its name.
    NameReused,
    /// Its worker is evicted.
    WorkerEvicted,
    /// An operator deletes its worker.
    WorkerDeleted,
    /// It has a startup gate as well.
    Startup,
}

/// All lives.
pub const LIVES: [Life; 9] = [
    Life::Sound,
    Life::Recovers,
    Life::NeverFit,
    Life::LabelRemoved,
    Life::Reboots,
    Life::NameReused,
    Life::WorkerEvicted,
    Life::WorkerDeleted,
    Life::Startup,
];

/// The results of trying every plan.
#[derive(Debug, Default)]
pub struct Matrix {
    /// Plans that were tried.
    pub plans: usize,
    /// Writes in the lives without faults.
    pub writes: usize,
    /// Events in the lives without faults.
    pub events: usize,
    /// The most writes that a node has cost without faults, including Kubernetes events.
    pub writes_per_node: usize,
    /// The most workers that were started for a node in any run.
    pub most_workers: usize,
    /// The statistics of all runs.
    pub stats: Stats,
    /// The broken rules, each with its story.
    pub failures: Vec<String>,
}

impl Life {
    fn scenario(self, faults: Faults) -> Scenario {
        let mut scenario = Scenario { faults, ..Scenario::plain() };
        let n1 = || "n1".to_owned();
        match self {
            Self::Sound => {}
            Self::Recovers => scenario.fit = Some(Fit::From(Sim::start() + SignedDuration::from_secs(12))),
            Self::NeverFit => {
                scenario.fit = Some(Fit::Never);
                scenario.config.reconciliation.max_retries = 2;
            }
            Self::LabelRemoved => scenario.script = vec![(40_000, ActorEvent::LabelRemoved(n1()))],
            Self::Reboots => scenario.script = vec![(40_000, ActorEvent::Reboots(n1()))],
            Self::NameReused => {
                scenario.script = vec![(2_500, ActorEvent::Leaves(n1())), (8_000, ActorEvent::Joins(n1()))];
            }
            Self::WorkerEvicted => scenario.script = vec![(1_500, ActorEvent::Evicted(n1()))],
            Self::WorkerDeleted => scenario.script = vec![(1_500, ActorEvent::WorkerDeleted(n1()))],
            Self::Startup => {
                scenario.config.gates = vec![knr_core::config::StartupGate::default()];
                scenario.has_init_pods = true;
            }
        }
        scenario
    }

    fn run(self, faults: Faults) -> (Sim, Result<(), String>) {
        let scenario = self.scenario(faults);
        let run = |mode| {
            let mut sim = Sim::new(&scenario, mode);
            let result = sim.run_for(LIFE).and_then(|()| invariants::at_end(&sim));
            (sim, result)
        };
        match run(StoryMode::Off) {
            (sim, Ok(())) => (sim, Ok(())),
            (_, Err(_)) => run(StoryMode::On),
        }
    }
}

/// Tries each fault on a life.
#[must_use]
pub fn singles(life: Life) -> Matrix {
    let (plans, mut matrix) = all_plans(life);
    for plan in plans {
        matrix.attempt(life, &[plan]);
    }
    matrix
}

/// Tries each pair of faults on a life.
#[must_use]
pub fn pairs(life: Life) -> Matrix {
    let (plans, mut matrix) = all_plans(life);
    for (index, first) in plans.iter().enumerate() {
        for second in &plans[index + 1..] {
            matrix.attempt(life, &[*first, *second]);
        }
    }
    matrix
}

fn all_plans(life: Life) -> (Vec<Planned>, Matrix) {
    let (sim, result) = life.run(Faults::None);
    let Stats { writes, events, deletions, .. } = sim.stats;
    let writes_per_node = sim.monitor.most_writes();
    let mut matrix = Matrix { writes, events, writes_per_node, ..Matrix::default() };
    if let Err(story) = result {
        matrix.failures.push(format!("{life:?} without any fault: {story}"));
    }
    let by_write = (0..writes).flat_map(|at| WRITE_FAULTS.map(|fault| Planned::Write(at, fault)));
    let by_event = (0..events)
        .flat_map(|at| [EventFault::Lost, EventFault::Twice].map(|fault| Planned::Event(at, fault)));
    let by_deletion = (1..=deletions).map(Planned::StaleRead);
    (by_write.chain(by_event).chain(by_deletion).collect(), matrix)
}

impl Matrix {
    fn attempt(&mut self, life: Life, plan: &[Planned]) {
        self.plans += 1;
        let (sim, result) = life.run(Faults::Planned(plan.to_vec()));
        self.most_workers = self.most_workers.max(sim.monitor.most_workers());
        self.stats.add(sim.stats);
        if let Err(story) = result {
            self.failures.push(format!("{life:?} with {plan:?}: {story}"));
        }
    }
}
