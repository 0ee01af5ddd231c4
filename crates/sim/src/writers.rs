//! Writes on their way to the API server, as the product's `controller/queue.rs` and `controller/schedule.rs` send them: so
//! many at once, gates first, reports last. An order that has not been sent can be taken back.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use knr_core::action::{Action, Removal};
use knr_core::config::Config;
use knr_core::engine::{LONGEST_QUEUE, Order};
use knr_core::ids::NodeName;
use knr_core::view::ConditionStatus;

/// It is quiet once no gate or step was under way for this long.
const QUIET: SignedDuration = SignedDuration::from_millis(250);
/// Conditions and events give way to gates and steps for this long, and removals of workers for longer.
const REPORT_DUE: SignedDuration = SignedDuration::from_secs(20);
const REMOVAL_DUE: SignedDuration = SignedDuration::from_mins(1);
/// An event that could not be sent for this long is dropped.
const EVENT_EXPIRES: SignedDuration = SignedDuration::from_secs(30);

/// An order on its way.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    /// Who gave it.
    pub(crate) replica: usize,
    /// In which of its lives.
    pub(crate) life: u32,
    /// What it asks for.
    pub(crate) order: Order,
    /// When it was decided.
    pub(crate) decided: Timestamp,
    /// Under which configuration.
    pub(crate) config: Arc<Config>,
}

/// Kinds of writes, by how much depends on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Lane {
    Gate,
    Step,
    Condition,
    Removal,
    Event,
}

impl Lane {
    fn of(action: &Action) -> Self {
        match action {
            Action::OpenGate { .. } | Action::CloseGate { .. } => Self::Gate,
            Action::SetCondition { condition, .. } if condition.status == ConditionStatus::True => {
                Self::Condition
            }
            Action::RemoveWorker { why: Removal::Spent, .. } => Self::Removal,
            Action::SendEvent { .. } => Self::Event,
            _ => Self::Step,
        }
    }

    fn is_foreground(self) -> bool {
        matches!(self, Self::Gate | Self::Step)
    }
}

/// A request that waits.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) request: Request,
    /// Since when. An order that was taken back and given again keeps its place.
    since: Timestamp,
}

/// Requests that wait and requests that are under way.
#[derive(Debug)]
pub(crate) struct Writers {
    /// By ticket, and so by when they were decided.
    orders: BTreeMap<u64, Waiting>,
    by_node: BTreeMap<NodeName, u64>,
    lanes: BTreeMap<Lane, BTreeSet<(Timestamp, u64)>>,
    events: VecDeque<Request>,
    /// Places for gates, steps, and conditions that are due; conditions get half of them.
    main: usize,
    /// Places for everything else.
    spare: usize,
    under_way: BTreeMap<Lane, usize>,
    /// When a gate or a step was last sent or answered.
    busy: Timestamp,
}

impl Writers {
    /// Nothing waits yet. `main` places are for what matters, `spare` ones for the rest.
    #[must_use]
    pub(crate) fn new(main: usize, spare: usize) -> Self {
        Self {
            orders: BTreeMap::new(),
            by_node: BTreeMap::new(),
            lanes: BTreeMap::new(),
            events: VecDeque::new(),
            main,
            spare,
            under_way: BTreeMap::new(),
            busy: Timestamp::UNIX_EPOCH,
        }
    }

    /// Forgets everything: the process was started again.
    pub(crate) fn reset(&mut self) {
        *self = Self::new(self.main, self.spare);
    }

    /// Takes an order. If it does the same as one that was taken back, it gets its place.
    pub(crate) fn take(&mut self, request: Request, before: Option<&Waiting>) {
        let same = before.filter(|before| is_same_work(&before.request.order.action, &request.order.action));
        let since = same.map_or(request.decided, |before| before.since);
        let (ticket, action) = (request.order.ticket, &request.order.action);
        drop(self.by_node.get(&action.node().name).copied().and_then(|first| self.remove(first)));
        self.by_node.insert(action.node().name.clone(), ticket);
        self.lanes.entry(Lane::of(action)).or_default().insert((since, ticket));
        self.orders.insert(ticket, Waiting { request, since });
    }

    /// Takes an event.
    pub(crate) fn tell(&mut self, request: Request) {
        self.events.push_back(request);
    }

    /// The request that is sent next, if one may be sent now. It is under way from now on.
    pub(crate) fn next(&mut self, now: Timestamp) -> Option<Request> {
        let lane = self.next_main(now).or_else(|| self.next_spare(now))?;
        let request = if lane == Lane::Event {
            self.events.pop_front()?
        } else {
            let (_, ticket) = self.lanes.get(&lane)?.first().copied()?;
            self.remove(ticket)?.request
        };
        *self.under_way.entry(lane).or_default() += 1;
        if lane.is_foreground() {
            self.busy = now;
        }
        Some(request)
    }

    fn next_main(&self, now: Timestamp) -> Option<Lane> {
        if self.in_foreground() + self.sent(Lane::Condition) >= self.main {
            return None;
        }
        let has_room = self.sent(Lane::Condition) < (self.main / 2).max(1);
        if has_room && self.due(Lane::Condition).is_some_and(|due| due <= now) {
            return Some(Lane::Condition);
        }
        [Lane::Gate, Lane::Step].into_iter().find(|lane| self.oldest(*lane).is_some())
    }

    fn next_spare(&self, now: Timestamp) -> Option<Lane> {
        let is_quiet = self.in_foreground() == 0 && now.duration_since(self.busy) >= QUIET;
        let spare = self.sent(Lane::Removal) + self.sent(Lane::Event);
        let taken = if is_quiet { self.sent(Lane::Condition) + spare } else { spare };
        if taken >= self.spare {
            return None;
        }
        if is_quiet && self.oldest(Lane::Condition).is_some() {
            return Some(Lane::Condition);
        }
        let is_full = self.in_foreground() + self.sent(Lane::Condition) >= self.main;
        let may_go =
            |(lane, due): &(Lane, Timestamp)| is_quiet || *due <= now && !(*lane == Lane::Event && is_full);
        let candidates = [Lane::Removal, Lane::Event].map(|lane| Some((lane, self.due(lane)?)));
        candidates.into_iter().flatten().filter(may_go).min_by_key(|(_, due)| *due).map(|(lane, _)| lane)
    }

    fn sent(&self, lane: Lane) -> usize {
        self.under_way.get(&lane).copied().unwrap_or(0)
    }

    fn in_foreground(&self) -> usize {
        self.sent(Lane::Gate) + self.sent(Lane::Step)
    }

    fn oldest(&self, lane: Lane) -> Option<Timestamp> {
        match lane {
            Lane::Event => self.events.front().map(|request| request.decided),
            _ => self.lanes.get(&lane)?.first().map(|(since, _)| *since),
        }
    }

    fn due(&self, lane: Lane) -> Option<Timestamp> {
        let patience = match lane {
            Lane::Gate | Lane::Step => SignedDuration::ZERO,
            Lane::Condition | Lane::Event => REPORT_DUE,
            Lane::Removal => REMOVAL_DUE,
        };
        self.oldest(lane).map(|since| since + patience)
    }

    /// When something else can be sent, or has to be taken back, even if nothing is answered until then.
    #[must_use]
    pub(crate) fn wake(&self, now: Timestamp) -> Option<Timestamp> {
        let due = [Lane::Condition, Lane::Removal, Lane::Event].map(|lane| self.due(lane));
        let waits_for_quiet = self.in_foreground() == 0 && due.iter().any(Option::is_some);
        let quiet = waits_for_quiet.then(|| self.busy + QUIET);
        let late = self.orders.first_key_value().map(|(_, first)| first.request.decided + LONGEST_QUEUE);
        due.into_iter().chain([quiet, late]).flatten().filter(|at| *at > now).min()
    }

    /// Takes back the orders of these nodes.
    pub(crate) fn take_back<'a>(&mut self, nodes: impl Iterator<Item = &'a NodeName>) -> Vec<Waiting> {
        nodes
            .filter_map(|node| self.by_node.get(node).copied().and_then(|ticket| self.remove(ticket)))
            .collect()
    }

    /// Takes back the orders that were decided so long ago that the rules are about to look into them.
    pub(crate) fn take_back_late(&mut self, now: Timestamp) -> Vec<Waiting> {
        let is_late = |first: &Waiting| first.request.decided + LONGEST_QUEUE <= now;
        let mut late = Vec::new();
        while let Some((ticket, _)) = self.orders.first_key_value().filter(|(_, first)| is_late(first)) {
            let ticket = *ticket;
            late.extend(self.remove(ticket));
        }
        late
    }

    /// Drops the events that are too old, and returns their number.
    pub(crate) fn drop_old_events(&mut self, now: Timestamp) -> usize {
        let before = self.events.len();
        let is_old = |event: &mut Request| now.duration_since(event.decided) >= EVENT_EXPIRES;
        while self.events.pop_front_if(is_old).is_some() {}
        before - self.events.len()
    }

    /// Drops all events.
    pub(crate) fn drop_events(&mut self) {
        self.events.clear();
    }

    /// Forgets all that has not been sent, and returns the orders among it.
    pub(crate) fn clear(&mut self) -> Vec<Waiting> {
        self.drop_events();
        self.by_node.clear();
        self.lanes.clear();
        std::mem::take(&mut self.orders).into_values().collect()
    }

    /// A request was answered.
    pub(crate) fn answered(&mut self, request: &Request, now: Timestamp) {
        let lane = Lane::of(&request.order.action);
        if let Some(number) = self.under_way.get_mut(&lane) {
            *number -= 1;
        }
        if lane.is_foreground() {
            self.busy = now;
        }
    }

    fn remove(&mut self, ticket: u64) -> Option<Waiting> {
        let waiting = self.orders.remove(&ticket)?;
        let action = &waiting.request.order.action;
        self.by_node.remove(&action.node().name);
        if let Some(lane) = self.lanes.get_mut(&Lane::of(action)) {
            lane.remove(&(waiting.since, ticket));
        }
        Some(waiting)
    }
}

fn is_same_work(one: &Action, other: &Action) -> bool {
    match (one, other) {
        (Action::SetCondition { condition: one, .. }, Action::SetCondition { condition: other, .. })
            if one != other =>
        {
            false
        }
        _ => one.is_like(other),
    }
}
