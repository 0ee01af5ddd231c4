//! Two replicas, one of which leads. The leader is frozen, cut off, killed, and asked to stop. Each time the other one
//! takes over, and only the leader writes.

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use jiff::{SignedDuration, Timestamp};
use knr_e2e::{ACCOUNT, Cluster, Controller, Hold, NAMESPACE, Node, Outage, Write};
use lab::AuditEvent;

/// From the last renewal of a leader that is gone to the first renewal of the next: the lease duration of six seconds,
/// plus two.
const TAKEOVER: SignedDuration = SignedDuration::from_secs(8);
/// A lease that was released is taken at once.
const AT_ONCE: SignedDuration = SignedDuration::from_secs(2);
/// How long the replicas are observed while nothing happens, and how often a leader may renew its lease in that time.
const IDLE: Duration = Duration::from_secs(20);
const RENEWALS: usize = 22;

#[test]
fn one_replica_leads_whatever_becomes_of_the_other() -> Result<()> {
    let cluster = Cluster::start("leaders", 4)?;
    let hold = Hold::start(&cluster)?;
    let mut first = Controller::start(&cluster, &hold.config(), "a")?;
    first.wait_until_leading()?;
    let mut second = Controller::start(&cluster, &hold.config(), "b")?;
    second.wait_until_ready()?;

    let scene = Scene { cluster: &cluster, hold: &hold };
    scene.a_leader_is_frozen_and_wakes_up_too_late(&first, &second)?;
    scene.a_leader_is_cut_off(&second, &first)?;
    let node = scene.node_at_work("n4")?;
    scene.a_leader_is_killed(&first, &second)?;
    first.restart()?;
    first.wait_until_ready()?;
    scene.a_leader_is_asked_to_go(&second, &first)?;
    scene.is_verified_by_one_worker(&node)?;
    assert_eq!(made(&cluster.writes()?), 4, "four nodes");
    second.restart()?;
    second.wait_until_ready()?;
    scene.idle_replicas_see_to_the_lease_alone(&first, &second)
}

struct Scene<'c> {
    cluster: &'c Cluster,
    hold: &'c Hold,
}

impl<'c> Scene<'c> {
    /// When it resumes, it believes that it leads, and learns of a node that needs a worker.
    fn a_leader_is_frozen_and_wakes_up_too_late(&self, old: &Controller, new: &Controller) -> Result<()> {
        let (node, newcomer) = (self.node_at_work("n1")?, self.cluster.node("n2")?);
        old.freeze()?;
        newcomer.close()?;
        new.wait_until_leading()?;
        newcomer.wait_for_worker("Running")?;
        old.thaw()?;
        self.stands_by(old)?;
        self.is_verified_by_one_worker(&node)?;
        self.is_verified_by_one_worker(&newcomer)?;
        self.handed_over(old, new, TAKEOVER)
    }

    /// The old leader is not notified. The requests that it sends in the meantime arrive once it is reconnected.
    fn a_leader_is_cut_off(&self, old: &Controller, new: &Controller) -> Result<()> {
        let node = self.node_at_work("n3")?;
        old.cut_off(Outage::Silent);
        new.wait_until_leading()?;
        self.stands_by(old)?;
        self.is_verified_by_one_worker(&node)?;
        old.reconnect();
        let began = self.handover()?.began;
        self.cluster.eventually("the old leader to hear of the new one", || {
            let mut events = self.requests()?.into_iter();
            Ok(events
                .any(|event| event.verb == "get" && event.code == 200 && event.at > began && of(old, &event)))
        })?;
        self.handed_over(old, new, TAKEOVER)
    }

    fn a_leader_is_killed(&self, old: &Controller, new: &Controller) -> Result<()> {
        old.kill()?;
        new.wait_until_leading()?;
        self.handed_over(old, new, TAKEOVER)
    }

    fn a_leader_is_asked_to_go(&self, old: &Controller, new: &Controller) -> Result<()> {
        let end = old.terminate()?;
        assert_eq!(end.code(), Some(0));
        new.wait_until_leading()?;
        self.handed_over(old, new, AT_ONCE)
    }

    fn idle_replicas_see_to_the_lease_alone(&self, leader: &Controller, standby: &Controller) -> Result<()> {
        let before = self.requests()?.len();
        thread::sleep(IDLE);
        let requests = self.requests()?.split_off(before);
        let other: Vec<_> = requests.iter().filter(|request| request.resource != "leases").collect();
        assert!(other.is_empty(), "{other:#?}");
        let renewals: Vec<_> = requests.iter().filter(|request| request.is_write()).collect();
        assert!(renewals.iter().all(|renewal| of(leader, renewal)), "{renewals:#?}");
        assert!((1..=RENEWALS).contains(&renewals.len()), "{renewals:#?}");
        let reads: Vec<_> = requests.iter().filter(|request| !request.is_write()).collect();
        assert!(reads.iter().all(|read| of(standby, read)) && reads.len() <= RENEWALS, "{reads:#?}");
        Ok(())
    }

    /// A closed node whose worker runs and does not end.
    fn node_at_work(&self, name: &str) -> Result<Node<'c>> {
        let node = self.cluster.node(name)?;
        node.close()?;
        node.wait_for_worker("Running")?;
        Ok(node)
    }

    /// Releases its worker and waits until the node is open and the worker is removed. No other worker was created for
    /// it.
    fn is_verified_by_one_worker(&self, node: &Node) -> Result<()> {
        self.hold.release(node)?;
        self.cluster.eventually(&format!("{} to be verified and tidied up", node.name()), || {
            Ok(node.is_verified()? && node.workers()?.is_empty())
        })?;
        let writes = node.writes()?;
        assert_eq!((made(&writes), node.state()?["serial"].as_u64()), (1, Some(1)), "{writes:#?}");
        Ok(())
    }

    fn stands_by(&self, replica: &Controller) -> Result<()> {
        self.cluster.eventually(&format!("replica {} to stand by", replica.name()), || {
            Ok(replica.metrics()?.value("kube_node_ready_leader", &[]) == Some(0.0))
        })
    }

    /// The new leader took over in time, and the old one has written nothing since.
    fn handed_over(&self, old: &Controller, new: &Controller, limit: SignedDuration) -> Result<()> {
        let Handover { from, to, ended, began } = self.handover()?;
        assert_eq!((from.as_str(), to.as_str()), (old.name(), new.name()));
        let took = began.parse::<Timestamp>()?.duration_since(ended.parse()?);
        assert!(took <= limit, "{ended} to {began} are {took:#}");
        let mut late = self.cluster.writes()?;
        late.retain(|write| write.replica == from && write.at > began);
        assert!(late.is_empty(), "{to} leads since {began}, and {from} wrote: {late:#?}");
        Ok(())
    }

    /// The last time that the lease passed from one replica to another.
    fn handover(&self) -> Result<Handover> {
        let held: Vec<Write> =
            self.requests()?.into_iter().filter(AuditEvent::is_write).map(Write::from).collect();
        let held: Vec<_> =
            held.iter().filter(|write| write.resource == "leases" && write.succeeded()).collect();
        let last = held.array_windows().rev().find(|[before, after]| before.replica != after.replica);
        let [before, after] = last.context("the lease was never handed over")?;
        let (from, to) = (before.replica.clone(), after.replica.clone());
        Ok(Handover { from, to, ended: before.at.clone(), began: after.at.clone() })
    }

    /// All requests of the replicas so far.
    fn requests(&self) -> Result<Vec<AuditEvent>> {
        let user = format!("system:serviceaccount:{NAMESPACE}:{ACCOUNT}");
        let mut events = self.cluster.audit()?;
        events.retain(|event| event.user == user);
        Ok(events)
    }
}

/// One replica stops renewing the lease, and another one takes it.
struct Handover {
    from: String,
    to: String,
    /// The time of the old leader's last renewal.
    ended: String,
    /// The time of the new leader's first renewal.
    began: String,
}

/// The number of workers that were created.
fn made(writes: &[Write]) -> usize {
    let creations = writes.iter().filter(|write| write.verb == "create" && write.resource == "pods");
    creations.filter(|write| write.succeeded()).count()
}

fn of(replica: &Controller, event: &AuditEvent) -> bool {
    Write::from(event.clone()).replica == replica.name()
}
