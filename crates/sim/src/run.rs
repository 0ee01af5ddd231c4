//! One run: a queue of events on a simulated clock.

mod lease;
mod process;
mod requests;
mod watch;

pub(crate) use process::Decided;
pub(crate) use requests::{ShownFault, failure};

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use knr_core::config::Config;
use knr_core::engine::{Outcome, Question};
use knr_core::feed::Feed;
use knr_core::ids::Version;
use knr_core::world::Fact;

use crate::actors::{self, ActorEvent, Actors};
use crate::api::{Api, News};
use crate::faults::Faults;
use crate::invariants::{self, Monitor};
use crate::keeper::{Keeper, KeeperEvent};
use crate::outages::{OutageKind, Outages};
use crate::refusals::Refusals;
use crate::replica::Replica;
use crate::rng::Rng;
use crate::scenario::{Mode, Scenario};
use crate::stats::Stats;
use crate::story::{Story, StoryMode};
use crate::writers::Request;

/// An event in the queue.
#[derive(Debug)]
pub(crate) enum Event {
    /// A watch delivers news to a replica, in this life and connection.
    Deliver { replica: usize, life: u32, connection: u32, feed: Feed, version: Version, news: News },
    /// A watch delivers a bookmark.
    Bookmark { replica: usize, life: u32, connection: u32, feed: Feed, version: Version },
    /// A watch has received nothing for too long.
    Silence { replica: usize, life: u32, connection: u32, feed: Feed },
    /// A watch is connected again.
    Reconnect { replica: usize, life: u32, feed: Feed },
    /// A request reaches the API server.
    Arrive(Box<Request>),
    /// The answer to a request reaches the replica.
    Answer(Box<Request>, Outcome),
    /// The result of a read reaches the replica.
    Learn { replica: usize, life: u32, facts: Vec<Fact> },
    /// A question reaches the API server.
    Ask { replica: usize, life: u32, question: Question },
    /// The ledger of deletions is read.
    Ledger { replica: usize, life: u32 },
    /// It is time to decide.
    Wake { replica: usize, life: u32 },
    /// A process reads its configuration file.
    Reconfigure { replica: usize, life: u32 },
    /// A process is started.
    Start { replica: usize },
    /// A process becomes the leader.
    Lead { replica: usize },
    /// A process stops leading.
    StandBy { replica: usize },
    /// A process could not renew its lease in time.
    LeaseExpires { replica: usize, life: u32 },
    /// The lease has expired. A process takes it, unless another one has it.
    Elect,
    /// An outage begins.
    OutageBegins(OutageKind),
    /// An outage is over.
    OutageEnds(OutageKind),
    /// The store is restored from a backup.
    Restore,
    /// Something happens to the pod of the `DaemonSet` on a node.
    Keeper(String, KeeperEvent),
    /// Another actor does something.
    Actor(ActorEvent),
}

/// One run.
#[derive(Debug)]
pub(crate) struct Sim {
    /// The simulated time.
    pub(crate) now: Timestamp,
    /// When the run began.
    pub(crate) start: Timestamp,
    queue: BTreeMap<(Timestamp, u64), Event>,
    sequence: u64,
    /// The source of randomness.
    pub(crate) rng: Rng,
    /// The API server.
    pub(crate) api: Api,
    replicas: Vec<Replica>,
    /// Where the nodes are managed from.
    pub(crate) mode: Mode,
    /// The pods of the `DaemonSet`, by the name of their node.
    pub(crate) keepers: BTreeMap<String, Keeper>,
    /// The number of pods that were started so far.
    pub(crate) lives: u32,
    /// The other actors.
    pub(crate) actors: Actors,
    /// The configuration in the file. Processes load it a little later.
    pub(crate) config: Arc<Config>,
    pools_known_after: u64,
    /// The faults of writes and watches.
    pub(crate) faults: Faults,
    /// The outages.
    pub(crate) outages: Outages,
    /// The writes that the API server refuses.
    pub(crate) refusals: Refusals,
    /// The version up to which watches were fed.
    fed: Version,
    has_new_streams: bool,
    /// Checks that no rule is broken.
    pub(crate) monitor: Monitor,
    /// What happened, for failure reports.
    pub(crate) story: Story,
    /// The statistics.
    pub(crate) stats: Stats,
}

impl Sim {
    /// Returns the time at which every run begins.
    #[must_use]
    pub(crate) fn start() -> Timestamp {
        Timestamp::from_second(1_790_000_000).unwrap_or(Timestamp::UNIX_EPOCH)
    }

    /// Returns a run that has not begun.
    #[must_use]
    pub(crate) fn new(scenario: &Scenario, mode: StoryMode) -> Self {
        let start = Self::start();
        let config = Arc::new(scenario.config.clone());
        let replica = |_| Replica::new(Arc::clone(&config), scenario.places);
        let mut api = Api::default();
        for pool in &scenario.pools {
            api.put_pool(pool.clone());
        }
        let mut sim = Self {
            now: start,
            start,
            queue: BTreeMap::new(),
            sequence: 0,
            rng: Rng::new(scenario.seed),
            api,
            replicas: (0..scenario.replicas).map(replica).collect(),
            mode: scenario.mode.clone(),
            keepers: BTreeMap::new(),
            lives: 0,
            actors: Actors::default(),
            config,
            pools_known_after: scenario.pools_known_after,
            faults: scenario.faults.clone(),
            outages: scenario.outages.clone(),
            refusals: scenario.refusals.clone(),
            fed: Version(0),
            has_new_streams: false,
            monitor: Monitor::new(&scenario.pools, start),
            story: Story::new(mode),
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

    /// Schedules an event `after` milliseconds from now.
    pub(crate) fn at(&mut self, after: u64, event: Event) {
        self.push(self.now + millis(after), event);
    }

    /// Schedules an event at a time.
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
                // As in the product, everything that arrives at the same time is taken in before anything is decided.
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
            invariants::look(self);
            if let Some(broken) = self.monitor.broken() {
                return Err(self.story_of(&broken.node, &broken.rule));
            }
        }
        self.now = self.now.max(end);
        Ok(())
    }

    /// Reports which rule was broken, and what led to it.
    #[must_use]
    pub(crate) fn story_of(&self, node: &str, rule: &str) -> String {
        let after = self.now.duration_since(self.start).as_secs_f64();
        format!(
            "{rule}\n  {after:.3} s after the start, and this led to it:\n{}",
            self.story.about(node, self.start)
        )
    }

    /// Ends all faults and disturbances.
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
            Event::Deliver { replica, life, connection, feed, version, news } => {
                if self.arrives(replica, life, connection, &feed, version) {
                    let facts = self.replicas[replica].stream(&feed).memory.facts(news, &feed);
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

/// In every tenth storm the store is restored from a backup. There is none in `DaemonSet` mode: a pod knows nothing but
/// its node, and learns of a restore only when it is started again.
fn is_restored(scenario: &Scenario) -> bool {
    matches!(scenario.faults, Faults::Weather(_)) && scenario.replicas > 0 && scenario.seed % 10 == 7
}

/// Returns a duration of this many milliseconds.
pub(crate) fn millis(number: u64) -> SignedDuration {
    SignedDuration::from_millis(i64::try_from(number).unwrap_or(i64::MAX))
}
