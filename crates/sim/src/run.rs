//! One run: a queue of what happens next, on a clock of its own.

mod lease;
mod process;
mod requests;
mod watch;

pub(crate) use process::Decided;
pub(crate) use requests::{CALL_LIMIT, Told, failure};

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use knr_core::config::Config;
use knr_core::engine::{Outcome, Question};
use knr_core::feed::Feed;
use knr_core::ids::Version;
use knr_core::view::PoolView;
use knr_core::world::Fact;

use crate::actors::{self, ActorEvent, Actors};
use crate::api::Api;
use crate::faults::Faults;
use crate::invariants::Monitor;
use crate::keeper::{Keeper, KeeperEvent};
use crate::outages::{OutageKind, Outages};
use crate::refusals::Refusals;
use crate::replica::Replica;
use crate::rng::Rng;
use crate::scenario::{Mode, Scenario};
use crate::stats::Stats;
use crate::story::{Story, Telling};
use crate::writers::Request;

/// What happens next.
#[derive(Debug)]
pub(crate) enum Event {
    /// A watch brings something to a replica: which, in which life and connection.
    Deliver { replica: usize, life: u32, connection: u32, feed: Feed, version: Version, facts: Vec<Fact> },
    /// A watch tells how far it has come.
    Bookmark { replica: usize, life: u32, connection: u32, feed: Feed, version: Version },
    /// A watch has heard nothing for too long.
    Silence { replica: usize, life: u32, connection: u32, feed: Feed },
    /// A watch is connected again.
    Reconnect { replica: usize, life: u32, feed: Feed },
    /// A request reaches the API server.
    Arrive(Box<Request>),
    /// Its answer reaches the replica.
    Answer(Box<Request>, Outcome),
    /// What was read reaches the replica.
    Learn { replica: usize, life: u32, facts: Vec<Fact> },
    /// A question reaches the API server.
    Ask { replica: usize, life: u32, question: Question },
    /// Karpenter's pools are read.
    Pools { replica: usize, life: u32 },
    /// The ledger of deletions is read.
    Ledger { replica: usize, life: u32 },
    /// It is time to decide.
    Wake { replica: usize, life: u32 },
    /// A process looks at the file with its configuration.
    Reconfigure { replica: usize, life: u32 },
    /// A process is started.
    Start { replica: usize },
    /// A process comes to lead.
    Lead { replica: usize },
    /// A process leads no longer.
    StandBy { replica: usize },
    /// A process could not renew its lease in time.
    LeaseExpires { replica: usize, life: u32 },
    /// The lease has run out: somebody takes it, if nobody has.
    Elect,
    /// An outage begins.
    OutageBegins(OutageKind),
    /// An outage is over.
    OutageEnds(OutageKind),
    /// The store is restored from a backup.
    Restore,
    /// Something happens to the pod of the `DaemonSet` on a node.
    Keeper(String, KeeperEvent),
    /// Somebody else does something.
    Actor(ActorEvent),
}

/// One run.
#[derive(Debug)]
pub(crate) struct Sim {
    /// The time.
    pub(crate) now: Timestamp,
    /// When it began.
    pub(crate) start: Timestamp,
    queue: BTreeMap<(Timestamp, u64), Event>,
    sequence: u64,
    /// Chance.
    pub(crate) rng: Rng,
    /// The API server.
    pub(crate) api: Api,
    replicas: Vec<Replica>,
    /// From where nodes are looked after.
    pub(crate) mode: Mode,
    /// The pods of the `DaemonSet`, by the name of their node.
    pub(crate) keepers: BTreeMap<String, Keeper>,
    /// How many of these pods were started.
    pub(crate) lives: u32,
    /// Everybody else.
    pub(crate) actors: Actors,
    /// The configuration in the file. Processes take it up a little later.
    pub(crate) config: Arc<Config>,
    /// Karpenter's pools.
    pub(crate) pools: Vec<PoolView>,
    pools_known_after: u64,
    /// What goes wrong.
    pub(crate) faults: Faults,
    /// Outages.
    pub(crate) outages: Outages,
    /// What the API server refuses.
    pub(crate) refusals: Refusals,
    /// The version up to which watches were fed.
    fed: Version,
    has_new_streams: bool,
    /// Who watches that no rule is broken.
    pub(crate) monitor: Monitor,
    /// What happened.
    pub(crate) story: Story,
    /// What it came to.
    pub(crate) stats: Stats,
}

impl Sim {
    /// When every run begins.
    #[must_use]
    pub(crate) fn start() -> Timestamp {
        Timestamp::from_second(1_790_000_000).unwrap_or(Timestamp::UNIX_EPOCH)
    }

    /// A run that has not begun.
    #[must_use]
    pub(crate) fn new(scenario: &Scenario, telling: Telling) -> Self {
        let start = Self::start();
        let config = Arc::new(scenario.config.clone());
        let replica = |_| Replica::new(Arc::clone(&config), scenario.places);
        let mut sim = Self {
            now: start,
            start,
            queue: BTreeMap::new(),
            sequence: 0,
            rng: Rng::new(scenario.seed),
            api: Api::default(),
            replicas: (0..scenario.replicas).map(replica).collect(),
            mode: scenario.mode.clone(),
            keepers: BTreeMap::new(),
            lives: 0,
            actors: Actors::default(),
            config,
            pools: scenario.pools.clone(),
            pools_known_after: scenario.pools_known_after,
            faults: scenario.faults.clone(),
            outages: scenario.outages.clone(),
            refusals: scenario.refusals.clone(),
            fed: Version(0),
            has_new_streams: false,
            monitor: Monitor::new(&scenario.pools, start),
            story: Story::new(telling),
            stats: Stats::default(),
        };
        for replica in 0..scenario.replicas {
            sim.at(0, Event::Start { replica });
        }
        if scenario.replicas > 0 {
            sim.at(100, Event::Lead { replica: 0 });
        }
        for outage in scenario.outages.all() {
            sim.push(outage.begins, Event::OutageBegins(outage.kind));
            sim.push(outage.ends, Event::OutageEnds(outage.kind));
        }
        if is_restored(scenario) {
            let half = scenario.stormy / 2;
            sim.push(start + half, Event::Restore);
        }
        for feature in scenario.features() {
            sim.stats.count(feature);
        }
        actors::schedule(&mut sim, scenario);
        sim
    }

    /// Lets something happen so many milliseconds from now.
    pub(crate) fn at(&mut self, after: u64, event: Event) {
        self.push(self.now + millis(after), event);
    }

    /// Lets something happen at some time.
    pub(crate) fn push(&mut self, at: Timestamp, event: Event) {
        self.sequence += 1;
        self.queue.insert((at, self.sequence), event);
    }

    /// Runs until this long after the start, or until a rule is broken.
    pub(crate) fn run_for(&mut self, span: SignedDuration) -> Result<(), String> {
        let end = self.start + span;
        loop {
            let next = self.queue.first_key_value().map(|((at, _), _)| *at);
            if next.is_none_or(|at| at > self.now) {
                // All that comes at the same time is taken in before anything is decided, as in the product.
                self.take_turns();
            }
            let Some(((at, _), event)) = self.queue.pop_first() else { break };
            if at > end {
                self.push(at, event);
                break;
            }
            self.now = self.now.max(at);
            self.stats.steps += 1;
            if let Some(until) = self.waits_until(&event) {
                self.push(until, event);
                continue;
            }
            self.handle(event);
            actors::notice(self);
            self.feed_watches();
            if let Some(broken) = self.monitor.broken() {
                return Err(self.tell(&broken.node, &broken.rule));
            }
        }
        self.now = self.now.max(end);
        Ok(())
    }

    /// What went wrong and how it came to that.
    #[must_use]
    pub(crate) fn tell(&self, node: &str, rule: &str) -> String {
        let after = self.now.duration_since(self.start).as_secs_f64();
        format!(
            "{rule}\n  {after:.3} s after the start, and this led to it:\n{}",
            self.story.about(node, self.start)
        )
    }

    /// From now on nothing goes wrong any more.
    pub(crate) fn calm_down(&mut self) {
        self.faults = Faults::None;
        self.note("", "from here on nothing goes wrong any more");
        actors::calm_down(self);
        let leading: Vec<usize> = (0..self.replicas.len()).filter(|id| self.replicas[*id].leading).collect();
        for replica in leading.into_iter().skip(1) {
            self.handle(Event::StandBy { replica });
        }
    }

    /// Adds a line to the story.
    pub(crate) fn note(&mut self, node: &str, line: impl std::fmt::Display) {
        self.story.note(self.now, node, line);
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Deliver { replica, life, connection, feed, version, facts } => {
                if self.arrives(replica, life, connection, &feed, version) {
                    self.learn(replica, life, facts);
                }
            }
            Event::Bookmark { replica, life, connection, feed, version } => {
                self.arrives(replica, life, connection, &feed, version);
            }
            Event::Silence { replica, life, connection, feed } => {
                self.silence(replica, life, connection, &feed);
            }
            Event::Reconnect { replica, life, feed } => self.reconnect(replica, life, &feed),
            Event::Arrive(request) => self.arrive(*request),
            Event::Answer(request, outcome) => self.answer(&request, outcome),
            Event::Learn { replica, life, facts } => self.learn(replica, life, facts),
            Event::Ask { replica, life, question } => self.ask(replica, life, &question),
            Event::Pools { replica, life } => self.read_pools(replica, life),
            Event::Ledger { replica, life } => self.read_ledger(replica, life),
            Event::Wake { replica, life } => {
                if self.replicas[replica].life == life {
                    self.replicas[replica].wake = None;
                    self.replicas[replica].due = true;
                }
            }
            Event::Reconfigure { replica, life } => self.take_up_config(replica, life),
            Event::Start { replica } => self.handle_start(replica),
            Event::Lead { replica } => self.lead(replica),
            Event::StandBy { replica } => self.stand_by(replica),
            Event::LeaseExpires { replica, life } => self.lease_expires(replica, life),
            Event::Elect => self.elect(),
            Event::OutageBegins(kind) => self.outage_begins(kind),
            Event::OutageEnds(kind) => self.note("", format_args!("the {} is over", kind.name())),
            Event::Restore => self.restore(),
            Event::Keeper(name, event) => self.keeper_event(&name, event),
            Event::Actor(event) => actors::act(self, event),
        }
    }

    fn handle_start(&mut self, replica: usize) {
        if let Some(back) = self.outages.stop_controllers_until(self.now) {
            let pause = self.rng.between(500, 5_000);
            self.push(back + millis(pause), Event::Start { replica });
            return;
        }
        let is_stale = self.rng.permille(self.faults.weather().stale_list);
        let back = if is_stale { self.rng.below(12) } else { 0 };
        self.start_replica(replica, Version(self.api.version().0.saturating_sub(back)));
    }

    fn outage_begins(&mut self, kind: OutageKind) {
        self.note("", format_args!("an {} begins", kind.name()));
        self.stats.count(kind.name());
        match kind {
            OutageKind::Dns | OutageKind::Registry => {}
            OutageKind::ApiServer | OutageKind::Partition => {
                self.break_all_watches();
                self.leases_run_out();
            }
        }
    }
}

/// In every tenth storm the store is restored from a backup. A pod of the `DaemonSet` knows nothing but its node, and learns
/// of that only when it is started again.
fn is_restored(scenario: &Scenario) -> bool {
    matches!(scenario.faults, Faults::Weather(_)) && scenario.replicas > 0 && scenario.seed % 10 == 7
}

/// So many milliseconds.
pub(crate) fn millis(number: u64) -> SignedDuration {
    SignedDuration::from_millis(i64::try_from(number).unwrap_or(i64::MAX))
}
