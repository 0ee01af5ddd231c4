//! Our processes in a run: how they start, hear, decide, write and die.

use jiff::SignedDuration;
use knr_core::action::Action;
use knr_core::engine::{Engine, Order, Outcome, Question};
use knr_core::ids::Version;
use knr_core::world::Fact;

use super::{Event, Sim};
use crate::api::{Api, KINDS, Kind, Refusal};
use crate::faults::{ErrorClass, EventFault, WriteFault, travel};
use crate::replica::Request;

/// A request that is not answered is given up after this many milliseconds.
const CALL_LIMIT: u64 = 10_000;
/// Another process takes over after this many milliseconds.
const LEASE: u64 = 15_000;

impl Sim {
    /// Starts a process, which lists everything as it is or was at this version.
    pub(super) fn start_replica(&mut self, id: usize, version: Version) {
        if self.replicas[id].engine.is_some() {
            return;
        }
        self.note("", format_args!("replica {id} starts and lists what was there at version {}", version.0));
        let engine = Engine::new(self.config.clone());
        let replica = &mut self.replicas[id];
        replica.engine = Some(engine);
        replica.life += 1;
        replica.wake = None;
        let life = replica.life;
        for kind in KINDS {
            self.list(id, life, kind, version);
        }
        let facts = vec![Fact::Pools(self.pools.clone()), Fact::Ledger(self.api.ledger().clone())];
        self.at(0, Event::Learn { replica: id, life, facts });
        self.at(LEASE, Event::Elect);
    }

    pub(super) fn lead(&mut self, id: usize) {
        if let Some(engine) = &mut self.replicas[id].engine {
            engine.lead();
            self.replicas[id].leading = true;
            self.note("", format_args!("replica {id} leads"));
            self.decide(id);
        }
    }

    pub(super) fn stand_by(&mut self, id: usize) {
        self.note("", format_args!("replica {id} leads no longer"));
        self.replicas[id].leading = false;
        if let Some(engine) = &mut self.replicas[id].engine {
            engine.stand_by();
        }
        self.at(LEASE, Event::Elect);
    }

    pub(super) fn elect(&mut self) {
        let running = (0..self.replicas.len()).find(|id| self.replicas[*id].engine.is_some());
        if self.leader().is_none()
            && let Some(id) = running
        {
            self.lead(id);
        }
    }

    /// Lists a kind and watches it from there.
    fn list(&mut self, id: usize, life: u32, kind: Kind, version: Version) {
        let delay = travel(kind, self.faults.weather(), &mut self.rng);
        let arrival = self.now + millis(delay);
        let stream = self.replicas[id].stream(kind);
        stream.connected = true;
        stream.connection += 1;
        stream.sent = version;
        stream.delivered = version;
        stream.last_arrival = arrival;
        let facts = vec![self.api.list(kind, version)];
        self.push(arrival, Event::Learn { replica: id, life, facts });
    }

    /// Sends on what watches have to tell, in order, unless something goes wrong.
    pub(super) fn feed_watches(&mut self) {
        for id in 0..self.replicas.len() {
            if self.replicas[id].engine.is_none() {
                continue;
            }
            for kind in KINDS {
                while self.feed_next(id, kind).is_some() {}
            }
        }
    }

    fn feed_next(&mut self, id: usize, kind: Kind) -> Option<()> {
        let life = self.replicas[id].life;
        let stream = self.replicas[id].stream(kind);
        if !stream.connected {
            return None;
        }
        let (connection, sent) = (stream.connection, stream.sent);
        let change = self.api.changes_after(kind, sent)?.first()?.clone();
        let weather = self.faults.weather();
        if self.rng.permille(weather.watch_breaks) {
            self.note("", format_args!("the watch of {kind:?} of replica {id} breaks"));
            let stream = self.replicas[id].stream(kind);
            stream.connected = false;
            stream.connection += 1;
            let pause = self.rng.between(500, 8_000);
            self.at(pause, Event::Reconnect { replica: id, life, kind });
            return None;
        }
        let fault = self.faults.of_event(self.stats.events, &mut self.rng);
        self.stats.events += 1;
        let delay = travel(kind, weather, &mut self.rng);
        let arrival = (self.now + millis(delay)).max(self.replicas[id].stream(kind).last_arrival);
        let stream = self.replicas[id].stream(kind);
        stream.sent = change.version;
        stream.last_arrival = arrival;
        let copies = match fault {
            None => 1,
            Some(EventFault::Twice) => 2,
            Some(EventFault::Lost) => 0,
        };
        if let Some(fault) = fault {
            self.note("", format_args!("event {} of {kind:?} to replica {id}: {fault:?}", change.version.0));
        }
        for _ in 0..copies {
            let (version, fact) = (change.version, Box::new(change.fact()));
            self.push(arrival, Event::Deliver { replica: id, life, connection, kind, version, fact });
        }
        Some(())
    }

    /// Tells every watch how far it has come, so that it can go on from there after a compaction.
    pub(crate) fn send_bookmarks(&mut self) {
        let version = self.api.version();
        for id in 0..self.replicas.len() {
            let life = self.replicas[id].life;
            for kind in KINDS {
                let stream = self.replicas[id].stream(kind);
                if stream.connected && self.rng.permille(500) {
                    stream.sent = version;
                    let (connection, arrival) = (stream.connection, stream.last_arrival.max(self.now));
                    let bookmark = Event::Bookmark { replica: id, life, connection, kind, version };
                    self.push(arrival, bookmark);
                }
            }
        }
    }

    /// A broken watch goes on from what has arrived, or lists again if that is too long ago.
    pub(super) fn reconnect(&mut self, id: usize, life: u32, kind: Kind) {
        if self.replicas[id].life != life || self.replicas[id].engine.is_none() {
            return;
        }
        let delivered = self.replicas[id].stream(kind).delivered;
        if self.api.changes_after(kind, delivered).is_none() {
            self.note("", format_args!("410 for the watch of {kind:?} of replica {id}: it lists again"));
            self.list(id, life, kind, self.api.version());
            return;
        }
        let now = self.now;
        let stream = self.replicas[id].stream(kind);
        stream.connected = true;
        stream.sent = delivered;
        stream.last_arrival = now;
    }

    pub(super) fn learn(&mut self, id: usize, life: u32, facts: Vec<Fact>) {
        let now = self.now + self.replicas[id].clock;
        let replica = &mut self.replicas[id];
        if replica.life != life {
            return;
        }
        if let Some(engine) = &mut replica.engine {
            for fact in facts {
                engine.learn(fact, now);
            }
            self.decide(id);
        }
    }

    pub(super) fn decide(&mut self, id: usize) {
        let now = self.now + self.replicas[id].clock;
        let replica = &mut self.replicas[id];
        let (life, leading) = (replica.life, replica.leading);
        let Some(engine) = &mut replica.engine else { return };
        let plan = engine.decide(now);
        if !leading && !plan.orders.is_empty() {
            self.monitor.violate("", "S6: a replica that does not lead gives orders");
        }
        for order in plan.orders {
            let latency = self.rng.between(1, 4);
            self.at(latency, Event::Arrive(Box::new(Request { replica: id, life, order })));
        }
        for question in plan.questions {
            let latency = self.rng.between(1, 4);
            self.at(latency, Event::Ask { replica: id, life, question });
        }
        let Some(wake) = plan.wake else { return };
        if self.replicas[id].wake.is_none_or(|at| wake < at) {
            self.replicas[id].wake = Some(wake);
            let at = (wake - self.replicas[id].clock).max(self.now);
            self.push(at, Event::Wake { replica: id, life });
        }
    }

    pub(super) fn ask(&mut self, id: usize, life: u32, question: &Question) {
        if self.rng.permille(self.faults.weather().write) {
            self.note("", format_args!("replica {id} gets no answer to a question: {question:?}"));
            return;
        }
        let latency = self.rng.between(1, 4);
        let facts = match question {
            Question::Everything => {
                let version = self.api.version();
                let mut facts: Vec<Fact> = KINDS.iter().map(|kind| self.api.list(*kind, version)).collect();
                facts.push(Fact::Ledger(self.api.ledger().clone()));
                facts
            }
            Question::Node(node) => vec![self.api.reread(node), Fact::Ledger(self.api.ledger().clone())],
            Question::Occupancy(node) => vec![Fact::Occupancy(node.clone(), Api::occupancy(&node.name))],
        };
        self.at(latency, Event::Learn { replica: id, life, facts });
    }

    /// A request reaches the API server, or does not.
    pub(super) fn arrive(&mut self, request: Request) {
        let fault = match request.order.action {
            Action::Tell { .. } => None,
            _ => self.faults.of_write(self.stats.writes, &mut self.rng),
        };
        let node = request.order.action.node().name.to_string();
        let told = fault.map_or(String::new(), |fault| format!(" ({fault:?})"));
        self.note(&node, format_args!("replica {}: {}{told}", request.replica, request.order.action));
        let is_same_life = self.replicas[request.replica].life == request.life;
        self.stats.writes += 1;
        match fault {
            None => {
                let outcome = self.carry_out(&request);
                let latency = self.rng.between(1, 4);
                self.at(latency, Event::Answer(Box::new(request), outcome));
            }
            Some(WriteFault::CrashBefore) if is_same_life => self.crash(request.replica, None),
            Some(WriteFault::CrashAfter) => {
                self.carry_out(&request);
                if is_same_life {
                    self.crash(request.replica, None);
                }
            }
            Some(WriteFault::AnswerLost) => {
                self.carry_out(&request);
                self.at(CALL_LIMIT, Event::Answer(Box::new(request), Outcome::Unknown));
            }
            Some(WriteFault::Late) => {
                let late = Request { life: 0, ..request.clone() };
                self.at(CALL_LIMIT, Event::Answer(Box::new(request), Outcome::Unknown));
                let after = CALL_LIMIT + self.rng.between(0, 3_000);
                self.at(after, Event::Arrive(Box::new(late)));
            }
            Some(WriteFault::Error(class)) => {
                let (outcome, after) = failure(class);
                self.at(after, Event::Answer(Box::new(request), outcome));
            }
            Some(WriteFault::CrashBefore) => {}
        }
    }

    fn carry_out(&mut self, request: &Request) -> Outcome {
        let Request { replica, order, .. } = request;
        let before = self.api.node(order.action.node().name.as_str()).cloned();
        let result = self.api.carry_out(&order.action);
        self.stats.deletions += usize::from(is_deletion(&order.action));
        let node = order.action.node().name.to_string();
        match result {
            Ok(facts) => {
                self.monitor.after(&self.api, &self.config, &order.action, before, self.now);
                if is_deletion(&order.action) && self.faults.is_stale_after(self.stats.deletions) {
                    let past = Version(self.api.version().0.saturating_sub(1));
                    self.crash(*replica, Some(past));
                }
                Outcome::Done(facts)
            }
            Err(refusal) => {
                self.note(&node, format_args!("  refused: {refusal:?}"));
                match refusal {
                    Refusal::NotFound | Refusal::Conflict | Refusal::Invalid(_) => Outcome::Conflict,
                }
            }
        }
    }

    pub(super) fn answer(&mut self, request: &Request, outcome: Outcome) {
        let Request { replica: id, life, order } = request;
        let now = self.now + self.replicas[*id].clock;
        let replica = &mut self.replicas[*id];
        if replica.life != *life {
            return;
        }
        let Some(engine) = &mut replica.engine else { return };
        if let Some(tell) = engine.settle(order, outcome, now) {
            let order = Order { ticket: u64::MAX, action: tell };
            let request = Request { replica: *id, life: *life, order };
            self.at(1, Event::Arrive(Box::new(request)));
        }
        self.decide(*id);
    }

    /// A process dies, and another one takes over when its lease has run out.
    pub(crate) fn crash(&mut self, id: usize, reads: Option<Version>) {
        if self.replicas[id].engine.is_none() {
            return;
        }
        self.note("", format_args!("replica {id} crashes"));
        self.replicas[id].engine = None;
        self.replicas[id].life += 1;
        self.replicas[id].leading = false;
        self.at(LEASE, Event::Elect);
        if let Some(version) = reads {
            self.start_replica(id, version);
        } else {
            let pause = self.rng.between(500, 20_000);
            self.at(pause, Event::Start { replica: id });
        }
    }

    /// The process that leads, if one does.
    pub(crate) fn leader(&self) -> Option<usize> {
        (0..self.replicas.len()).find(|id| self.replicas[*id].leading && self.replicas[*id].engine.is_some())
    }

    /// How many processes there are.
    pub(crate) fn replica_count(&self) -> usize {
        self.replicas.len()
    }

    /// A process comes to lead although another one still does.
    pub(crate) fn split(&mut self) {
        if let Some(old) = self.leader() {
            let new = (old + 1) % self.replicas.len();
            if new != old && !self.replicas[new].leading {
                self.at(0, Event::Lead { replica: new });
                let overlap = self.rng.between(1_000, 40_000);
                self.at(overlap, Event::StandBy { replica: old });
            }
        }
    }

    /// The clock of a machine jumps. A process keeps to its own clock until it is started again.
    pub(crate) fn jump(&mut self, id: usize) {
        let seconds = i64::try_from(self.rng.below(7_200)).unwrap_or(0) - 3_600;
        self.note("", format_args!("the clock of replica {id} is {seconds} s off"));
        self.crash(id, None);
        self.replicas[id].clock = SignedDuration::from_secs(seconds);
    }

    /// Every process takes up another configuration.
    pub(crate) fn reconfigure(&mut self) {
        for id in 0..self.replicas.len() {
            if let Some(engine) = &mut self.replicas[id].engine {
                engine.configure(self.config.clone());
            }
            self.decide(id);
        }
    }

    /// The engines, for the checks at the end.
    pub(crate) fn leading_engine(&self) -> Option<&Engine> {
        self.leader().and_then(|id| self.replicas[id].engine.as_ref())
    }
}

fn is_deletion(action: &Action) -> bool {
    matches!(action, Action::RemoveWorker { .. } | Action::DeleteNode { .. })
}

fn failure(class: ErrorClass) -> (Outcome, u64) {
    match class {
        ErrorClass::Forbidden => (Outcome::Refused("forbidden".to_owned()), 2),
        ErrorClass::Conflict | ErrorClass::Invalid => (Outcome::Conflict, 2),
        ErrorClass::TooMany | ErrorClass::Unavailable => (Outcome::Unavailable, 2),
        ErrorClass::Internal => (Outcome::Unknown, 2),
        ErrorClass::Timeout => (Outcome::Unknown, CALL_LIMIT),
    }
}

fn millis(number: u64) -> SignedDuration {
    SignedDuration::from_millis(i64::try_from(number).unwrap_or(i64::MAX))
}
