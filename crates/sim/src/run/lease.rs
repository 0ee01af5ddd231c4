//! Which process leads, and how long its right to write lasts.

use jiff::Timestamp;

use super::{Event, Sim, millis};

/// Another process takes over after this many milliseconds.
pub(super) const LEASE: u64 = 15_000;
/// The right to write ends this many milliseconds after the lease was last renewed.
const RENEW_DEADLINE: u64 = 10_000;
/// The lease is renewed this often, in milliseconds.
const RENEW: u64 = 2_000;

impl Sim {
    pub(super) fn lead(&mut self, id: usize) {
        if self.outages.stop_controllers_until(self.now).is_some() {
            self.at(LEASE, Event::Elect);
            return;
        }
        if let Some(engine) = &mut self.replicas[id].engine {
            engine.lead();
            self.replicas[id].leading = true;
            self.replicas[id].writes_until = None;
            self.replicas[id].due = true;
            self.note("", format_args!("replica {id} leads"));
            self.monitor.touched(None);
        }
    }

    pub(super) fn stand_by(&mut self, id: usize) {
        self.note("", format_args!("replica {id} leads no longer"));
        self.monitor.touched(None);
        let replica = &mut self.replicas[id];
        replica.leading = false;
        let dropped = replica.queue.take_back_all();
        replica.harmful.clear();
        replica.queue.drop_events();
        if let Some(engine) = &mut replica.engine {
            for unsent in &dropped {
                engine.withdraw(&unsent.order);
            }
            engine.stand_by();
        }
        self.stats.count_many("order dropped: the lease has ended", dropped.len());
        for waiting in &dropped {
            self.monitor.not_sent(&self.replicas[id].request(id, waiting));
        }
        self.monitor.starts_over(id, self.replicas[id].life);
        self.at(LEASE, Event::Elect);
    }

    /// The lease was last renewed a moment ago and cannot be renewed for now. The right to write ends by the clock. The
    /// process notices that a little later.
    fn lease_runs_out(&mut self, id: usize) -> Timestamp {
        let ago = self.rng.below(RENEW);
        let until = self.now + millis(RENEW_DEADLINE - ago);
        self.replicas[id].writes_until = Some(until);
        until
    }

    /// Nobody can renew a lease any more.
    pub(super) fn leases_run_out(&mut self) {
        for id in 0..self.replicas.len() {
            let life = self.replicas[id].life;
            if self.replicas[id].leading {
                let until = self.lease_runs_out(id);
                let late = self.rng.below(1_000);
                self.push(until + millis(late), Event::LeaseExpires { replica: id, life });
            }
        }
    }

    pub(super) fn lease_expires(&mut self, id: usize, life: u32) {
        let replica = &self.replicas[id];
        let is_cut_off = self.outages.stop_controllers_until(self.now).is_some();
        if replica.life != life || !replica.leading {
            return;
        }
        if is_cut_off {
            self.stand_by(id);
        } else {
            self.replicas[id].writes_until = None;
        }
    }

    pub(super) fn elect(&mut self) {
        let running = (0..self.replicas.len()).find(|id| self.replicas[*id].engine.is_some());
        if self.leader().is_none()
            && let Some(id) = running
        {
            self.lead(id);
        }
    }

    /// Returns the process that leads, if any.
    pub(crate) fn leader(&self) -> Option<usize> {
        (0..self.replicas.len()).find(|id| self.replicas[*id].leading && self.replicas[*id].engine.is_some())
    }

    /// Returns the number of controller processes.
    pub(crate) fn replica_count(&self) -> usize {
        self.replicas.len()
    }

    /// A process becomes the leader while another one still leads.
    pub(crate) fn split(&mut self) {
        if let Some(old) = self.leader()
            && let Some(new) = self.other_than(old)
        {
            self.stats.count("two leaders at once");
            self.at(0, Event::Lead { replica: new });
            let overlap = self.rng.between(1_000, 40_000);
            self.at(overlap, Event::StandBy { replica: old });
        }
    }

    fn other_than(&self, old: usize) -> Option<usize> {
        let new = (old + 1) % self.replicas.len();
        (new != old && !self.replicas[new].leading).then_some(new)
    }

    /// The leader freezes for a while. When it continues, another process may lead, and whatever the old leader still
    /// has to send must not be sent.
    pub(crate) fn freeze(&mut self) {
        let Some(old) = self.leader() else { return };
        let until = self.now + millis(self.rng.between(3_000, 40_000));
        self.note("", format_args!("replica {old} stands still until {until}"));
        self.stats.count("leader frozen");
        self.monitor.touched(None);
        self.replicas[old].frozen_until = Some(until);
        let expires = self.lease_runs_out(old);
        let taken = self.now + millis(LEASE);
        if let Some(new) = self.other_than(old).filter(|_| taken < until) {
            self.push(taken, Event::Lead { replica: new });
        }
        // A process that notices by the clock that its lease has expired may already have decided something.
        let after = self.rng.below(100);
        let (replica, life) = (old, self.replicas[old].life);
        if expires < until {
            self.push(until + millis(after), Event::StandBy { replica });
        } else {
            self.push(until, Event::LeaseExpires { replica, life });
        }
    }

    pub(super) fn is_frozen(&self, id: usize) -> bool {
        self.replicas[id].frozen_until.is_some_and(|until| self.now < until)
    }

    /// Returns the time until which an event has to wait because its process is frozen.
    pub(super) fn waits_until(&self, event: &Event) -> Option<Timestamp> {
        let replica = match event {
            Event::Deliver { replica, .. }
            | Event::Learn { replica, .. }
            | Event::Wake { replica, .. }
            | Event::Reconfigure { replica, .. } => *replica,
            Event::Answer(request, _) => request.replica,
            _ => return None,
        };
        self.replicas[replica].frozen_until.filter(|until| self.now < *until)
    }
}
