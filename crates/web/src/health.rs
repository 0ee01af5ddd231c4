//! Liveness and readiness, reported by the tasks that do the work and not by the one that answers the probes.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The health of this process. Clones share it.
#[derive(Debug, Clone)]
pub struct Health(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    began: Instant,
    vitals: Mutex<Vec<Arc<Pulse>>>,
    /// Why this process is not ready; `None` if it is.
    not_ready: Mutex<Option<String>>,
}

/// A task that has to show signs of life, or else the process counts as dead. Clones refer to the same task.
///
/// If it is dropped without [`Vital::retire`], it becomes overdue: a task that has ended does not beat.
#[derive(Debug, Clone)]
pub struct Vital {
    began: Instant,
    pulse: Arc<Pulse>,
}

#[derive(Debug)]
struct Pulse {
    kind: Kind,
    name: &'static str,
    limit: Duration,
    /// When it last beat, in microseconds since the health was created.
    last: AtomicU64,
    retired: AtomicBool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Watch,
    Other,
}

/// The state of a vital at one point in time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reading {
    pub(crate) kind: Kind,
    pub(crate) name: &'static str,
    pub(crate) age: Duration,
    limit: Duration,
}

impl Health {
    /// Returns the health of a process that is starting: alive, but not ready.
    #[must_use]
    pub fn new() -> Self {
        Self(Arc::new(Shared {
            began: Instant::now(),
            vitals: Mutex::default(),
            not_ready: Mutex::new(Some("starting".to_owned())),
        }))
    }

    /// Expects a task to beat at least this often from now on. It replaces one with the same name.
    #[must_use]
    pub fn vital(&self, name: &'static str, limit: Duration) -> Vital {
        self.expect(Kind::Other, name, limit)
    }

    /// Expects a watch to beat at least this often from now on. Its age is exported as a metric, labelled by resource.
    #[must_use]
    pub fn watch(&self, resource: &'static str, limit: Duration) -> Vital {
        self.expect(Kind::Watch, resource, limit)
    }

    /// Declares this process not ready, for this reason.
    pub fn not_ready(&self, reason: impl Into<String>) {
        *lock(&self.0.not_ready) = Some(reason.into());
    }

    /// Declares this process ready.
    pub fn ready(&self) {
        *lock(&self.0.not_ready) = None;
    }

    pub(crate) fn why_not_ready(&self) -> Option<String> {
        lock(&self.0.not_ready).clone()
    }

    /// Returns everything that is expected to beat, sorted by name.
    pub(crate) fn readings(&self) -> Vec<Reading> {
        let now = micros(self.0.began.elapsed());
        let vitals = lock(&self.0.vitals);
        vitals.iter().filter(|pulse| !pulse.is_retired()).map(|pulse| pulse.read(now)).collect()
    }

    fn expect(&self, kind: Kind, name: &'static str, limit: Duration) -> Vital {
        let vital = Vital {
            began: self.0.began,
            pulse: Arc::new(Pulse {
                kind,
                name,
                limit,
                last: AtomicU64::new(micros(self.0.began.elapsed())),
                retired: AtomicBool::new(false),
            }),
        };
        let mut vitals = lock(&self.0.vitals);
        vitals.retain(|pulse| !pulse.is_retired() && (pulse.kind, pulse.name) != (kind, name));
        vitals.push(vital.pulse.clone());
        vitals.sort_by_key(|pulse| pulse.name);
        vital
    }
}

impl Default for Health {
    fn default() -> Self {
        Self::new()
    }
}

impl Vital {
    /// Shows a sign of life.
    pub fn beat(&self) {
        self.pulse.last.store(micros(self.began.elapsed()), Ordering::Relaxed);
    }

    /// Ends the expectation that it beats, for good.
    pub fn retire(&self) {
        self.pulse.retired.store(true, Ordering::Relaxed);
    }
}

impl Pulse {
    fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Relaxed)
    }

    fn read(&self, now: u64) -> Reading {
        let age = Duration::from_micros(now.saturating_sub(self.last.load(Ordering::Relaxed)));
        Reading { kind: self.kind, name: self.name, age, limit: self.limit }
    }
}

impl Reading {
    pub(crate) fn is_overdue(&self) -> bool {
        self.age > self.limit
    }
}

impl fmt::Display for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, name, age, limit } = self;
        let kind = match kind {
            Kind::Watch => "watch of ",
            Kind::Other => "",
        };
        let (age, limit) = (age.as_secs_f64(), limit.as_secs_f64());
        if self.is_overdue() {
            write!(f, "[-] {kind}{name}: silent for {age:.1} s, {:.1} s too long", age - limit)
        } else {
            write!(f, "[+] {kind}{name}: heard {age:.1} s ago, {limit:.1} s allowed")
        }
    }
}

/// Returns whether all of them have beaten in time.
pub(crate) fn is_alive(readings: &[Reading]) -> bool {
    !readings.iter().any(Reading::is_overdue)
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

/// The data behind these locks is always consistent, so a panic while one was held does not matter.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(30);

    fn overdue(health: &Health) -> Vec<String> {
        health.readings().iter().filter(|reading| reading.is_overdue()).map(Reading::to_string).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn silence_is_death_one_moment_after_the_limit() {
        let health = Health::new();
        tokio::time::advance(LIMIT * 10).await;
        let nodes = health.watch("nodes", LIMIT);
        let _turns = health.vital("loop", LIMIT * 2);
        tokio::time::advance(LIMIT).await;
        assert!(is_alive(&health.readings()), "{:?}", health.readings());
        tokio::time::advance(Duration::from_millis(1500)).await;
        assert_eq!(overdue(&health), ["[-] watch of nodes: silent for 31.5 s, 1.5 s too long"]);
        assert!(!is_alive(&health.readings()));
        nodes.clone().beat();
        assert!(is_alive(&health.readings()));
        tokio::time::advance(LIMIT).await;
        assert_eq!(overdue(&health), ["[-] loop: silent for 61.5 s, 1.5 s too long"]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_retired_or_replaced_is_not_waited_for() {
        let health = Health::new();
        let pools = health.watch("pools", LIMIT);
        let _old = health.vital("loop", LIMIT);
        tokio::time::advance(LIMIT * 2).await;
        assert_eq!(overdue(&health).len(), 2);
        let _new = health.vital("loop", LIMIT);
        assert_eq!(overdue(&health), ["[-] watch of pools: silent for 60.0 s, 30.0 s too long"]);
        pools.retire();
        assert_eq!(health.readings().len(), 1, "{:?}", health.readings());
        pools.beat();
        assert_eq!(health.readings().len(), 1, "retired is for good");
    }

    #[tokio::test(start_paused = true)]
    async fn a_vital_whose_task_has_ended_is_overdue() {
        let health = Health::new();
        drop(health.vital("loop", LIMIT));
        tokio::time::advance(LIMIT * 2).await;
        assert!(!is_alive(&health.readings()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_and_something_else_may_share_a_name() {
        let health = Health::new();
        let (_watch, _other) = (health.watch("nodes", LIMIT), health.vital("nodes", LIMIT));
        assert_eq!(health.readings().len(), 2);
    }

    #[test]
    fn ready_is_what_was_said_last() {
        let health = Health::new();
        assert_eq!(health.why_not_ready().as_deref(), Some("starting"));
        health.clone().ready();
        assert_eq!(health.why_not_ready(), None);
        health.not_ready("shutting down");
        assert_eq!(health.why_not_ready().as_deref(), Some("shutting down"));
    }
}
