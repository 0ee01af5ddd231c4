//! Orders that wait for their turn: what opens a gate first, what only tells of it last.

use std::collections::VecDeque;
use std::time::Duration;

use knr_core::action::{Action, Removal};
use knr_core::engine::{LONGEST_QUEUE, Order};
use knr_core::view::ConditionStatus;
use tokio::time::Instant;

/// How urgent an action is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Urgency {
    /// Work waits for it, or must be kept away.
    Urgent,
    /// It brings the next step.
    Usual,
    /// Nothing waits for it.
    Background,
}

impl Urgency {
    /// That of an action.
    pub(super) fn of(action: &Action) -> Self {
        match action {
            Action::OpenGate { .. } | Action::CloseGate { .. } => Self::Urgent,
            Action::StartWorker { .. }
            | Action::Record { .. }
            | Action::ReserveDeletion { .. }
            | Action::DeleteNode { .. } => Self::Usual,
            Action::RemoveWorker { why: Removal::Heard | Removal::Outdated | Removal::NodeGone, .. } => {
                Self::Usual
            }
            Action::SetCondition { condition, .. } if condition.status != ConditionStatus::True => {
                Self::Usual
            }
            Action::RemoveWorker { why: Removal::Spent, .. }
            | Action::SetCondition { .. }
            | Action::Tell { .. } => Self::Background,
        }
    }
}

/// An order that nobody waits for gives way to others for this long. It must not wait until it is too late to send it.
const GIVES_WAY: Duration = Duration::from_secs(20);

/// How much may be sent now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    /// Anything.
    Anything,
    /// What somebody waits for, and what has given way for long enough.
    Patient,
    /// Only what somebody waits for.
    Foreground,
}

/// Orders that wait.
#[derive(Debug, Default)]
pub(super) struct Queue {
    urgent: VecDeque<Waiting>,
    usual: VecDeque<Waiting>,
    background: VecDeque<Waiting>,
}

/// An order, and since when it has waited.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) order: Order,
    pub(super) since: Instant,
}

impl Queue {
    /// Takes an order.
    pub(super) fn take(&mut self, order: Order) {
        let queue = match Urgency::of(&order.action) {
            Urgency::Urgent => &mut self.urgent,
            Urgency::Usual => &mut self.usual,
            Urgency::Background => &mut self.background,
        };
        queue.push_back(Waiting { order, since: Instant::now() });
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.urgent.len() + self.usual.len() + self.background.len()
    }

    /// Whether there is anything that nobody waits for.
    pub(super) fn has_background(&self) -> bool {
        !self.background.is_empty()
    }

    /// The order whose turn it is.
    pub(super) fn next(&mut self, room: Room) -> Option<Waiting> {
        let foreground = self.urgent.pop_front().or_else(|| self.usual.pop_front());
        foreground.or_else(|| {
            self.background.pop_front_if(|waiting| match room {
                Room::Anything => true,
                Room::Patient => waiting.since.elapsed() >= GIVES_WAY,
                Room::Foreground => false,
            })
        })
    }

    /// Orders that have waited for so long that the rules are about to look into them: they must not be sent any more.
    pub(super) fn drain_late(&mut self) -> Vec<Order> {
        let (now, longest) = (Instant::now(), Duration::try_from(LONGEST_QUEUE).unwrap_or_default());
        let is_late = |waiting: &mut Waiting| now.duration_since(waiting.since) >= longest;
        let mut late = Vec::new();
        for queue in [&mut self.urgent, &mut self.usual, &mut self.background] {
            while let Some(waiting) = queue.pop_front_if(is_late) {
                late.push(waiting.order);
            }
        }
        late
    }

    /// All of them.
    pub(super) fn drain(&mut self) -> Vec<Order> {
        let all = self.urgent.drain(..).chain(self.usual.drain(..)).chain(self.background.drain(..));
        all.map(|waiting| waiting.order).collect()
    }
}

#[cfg(test)]
mod tests {
    use knr_core::action::{Headline, News};
    use knr_core::ids::NodeRef;
    use knr_core::patch::NodePatch;
    use knr_core::view::{Purpose, Stamp};

    use super::*;

    fn node() -> NodeRef {
        NodeRef { name: "n1".into(), uid: "u1".into() }
    }

    fn news() -> News {
        News { headline: Headline::Verified, message: String::new(), warning: false }
    }

    fn order(ticket: u64, action: Action) -> Order {
        Order { ticket, action }
    }

    fn tell(ticket: u64) -> Order {
        order(ticket, Action::Tell { node: node(), news: news() })
    }

    fn start(ticket: u64) -> Order {
        let stamp = Stamp { node: node(), boot: "b".into(), serial: 1, attempt: 1, purpose: Purpose::Verify };
        order(ticket, Action::StartWorker { stamp })
    }

    fn open(ticket: u64) -> Order {
        let (gate, patch) = (String::new(), NodePatch(Vec::new()));
        order(ticket, Action::OpenGate { node: node(), gate, patch, news: news() })
    }

    fn filled() -> Queue {
        let mut queue = Queue::default();
        for order in [tell(1), start(2), open(3), tell(4), open(5)] {
            queue.take(order);
        }
        queue
    }

    #[tokio::test]
    async fn gates_go_first_and_news_last_each_in_order() {
        let mut queue = filled();
        let turns: Vec<u64> =
            std::iter::from_fn(|| queue.next(Room::Anything)).map(|next| next.order.ticket).collect();
        assert_eq!(turns, [3, 5, 2, 1, 4]);
    }

    #[tokio::test]
    async fn without_room_nothing_goes_that_nobody_waits_for() {
        let mut queue = filled();
        let turns: Vec<u64> =
            std::iter::from_fn(|| queue.next(Room::Foreground)).map(|next| next.order.ticket).collect();
        assert_eq!((turns, queue.len()), (vec![3, 5, 2], 2));
    }

    #[tokio::test(start_paused = true)]
    async fn news_give_way_but_not_for_ever() {
        let mut queue = Queue::default();
        queue.take(tell(1));
        tokio::time::advance(Duration::from_secs(19)).await;
        queue.take(tell(2));
        queue.take(open(3));
        let mut turn = || queue.next(Room::Patient).map(|next| next.order.ticket);
        assert_eq!((turn(), turn()), (Some(3), None));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!((turn(), turn()), (Some(1), None));
        assert!(queue.has_background());
    }

    #[tokio::test(start_paused = true)]
    async fn what_has_waited_for_too_long_is_not_sent_any_more() {
        let mut queue = Queue::default();
        queue.take(tell(1));
        tokio::time::advance(Duration::from_secs(29)).await;
        queue.take(open(2));
        assert!(queue.drain_late().is_empty());
        tokio::time::advance(Duration::from_secs(1)).await;
        let late: Vec<u64> = queue.drain_late().into_iter().map(|order| order.ticket).collect();
        assert_eq!((late, queue.len()), (vec![1], 1));
    }
}
