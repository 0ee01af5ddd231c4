//! Nodes with each fault that the lab can inject. They report that they are Ready, and are kept closed.

use std::any::Any;
use std::thread;

use anyhow::{Context, Result};
use jiff::{SignedDuration, Timestamp};
use knr_e2e::{Cluster, Config, Controller, GateLog, Node};
use lab::Fault;
use serde_json::{Value, json};

/// On the first node, so that pods on all other nodes have to leave theirs to reach it.
const WEB: &str = "apiVersion: v1
kind: Pod
metadata: { name: web, namespace: default, labels: { app: web } }
spec:
  nodeName: n1
  containers: [{ name: web, image: 'lab.local/probe:1', imagePullPolicy: Never, args: [serve, ':8080'] }]
---
apiVersion: v1
kind: Service
metadata: { name: web, namespace: default }
spec: { selector: { app: web }, ports: [{ port: 80, targetPort: 8080 }] }
";

/// Once a node has used up its attempts, the next one comes after this long, or on request.
const LONGEST_PAUSE: SignedDuration = SignedDuration::from_hours(1);

/// A fault, its reason in the condition, and parts of the message.
struct Case {
    node: &'static str,
    fault: Fault,
    cause: &'static str,
    shown: &'static [&'static str],
}

const CASES: [Case; 5] = [
    Case {
        node: "no-dns",
        fault: Fault::Dns,
        cause: "DnsTimeout",
        shown: &["dns: kubernetes.default.svc.cluster.local timed out after 3 s at 10."],
    },
    Case {
        node: "no-api",
        fault: Fault::Api,
        cause: "KubernetesTimeout",
        shown: &["kubernetes: ", "firewall"],
    },
    Case {
        node: "no-services",
        fault: Fault::Services,
        cause: "DnsTimeout",
        shown: &["dns: ", "look at kube-proxy", "failed, too: kubernetes, network, services"],
    },
    Case {
        node: "no-pods",
        fault: Fault::Pods,
        cause: "NetworkPodsUnreachable",
        shown: &["network: ", "default/web"],
    },
    Case {
        node: "small-mtu",
        fault: Fault::Mtu,
        cause: "KubernetesAnswerLost",
        shown: &["kubernetes: ", "large packets are lost"],
    },
];

#[test]
fn broken_nodes_stay_closed_until_they_are_fixed() -> Result<()> {
    let cluster = Cluster::start("faults", 1)?;
    cluster.apply(WEB)?;
    let nodes = in_parallel(&CASES, |case| {
        let node = cluster.join(case.node)?;
        node.machine()?.inject(case.fault)?;
        Ok(node)
    })?;
    let broken: Vec<_> = CASES.iter().zip(&nodes).collect();
    let broken = in_parallel(&broken, |&(case, node)| Broken::new(&cluster, case, node))?;
    let config = Config::new()
        .set("reconciliation.maxRetries", 3)
        .set("reconciliation.maxRetryDelaySeconds", LONGEST_PAUSE.as_secs())
        // Here all nodes fail at once, and it is not the cluster's fault.
        .set("limits.deletion.maxFailingPercent", 100)
        .set("worker.retries", 0)
        .set("worker.services", json!(["kube-system/kube-dns", "default/web"]));
    let _controller = Controller::start(&cluster, &config, "a")?;
    in_parallel(&broken, |broken| {
        broken.is_tried_again_later_each_time()?;
        broken.counts_as_failed_and_says_why()
    })?;
    in_parallel(&broken, |broken| {
        broken.once_fixed_is_opened_on_request()?;
        assert_eq!(broken.gate.so_far()?, ["closed", "open"]);
        Ok(())
    })?;
    Ok(())
}

/// A node that is broken.
struct Broken<'a> {
    cluster: &'a Cluster,
    case: &'a Case,
    node: &'a Node<'a>,
    gate: GateLog<'a, 'a>,
}

impl<'a> Broken<'a> {
    fn new(cluster: &'a Cluster, case: &'a Case, node: &'a Node<'a>) -> Result<Self> {
        Ok(Self { cluster, case, node, gate: node.gate_log()? })
    }

    fn is_tried_again_later_each_time(&self) -> Result<()> {
        let not_before = [self.has_failed(1, 1)?, self.has_failed(2, 2)?];
        self.node.wait_for_state("attempt", 3)?;
        for (earliest, worker) in not_before.into_iter().zip(self.workers()?.into_iter().skip(1)) {
            assert!(worker >= earliest, "{worker} is before {earliest}");
        }
        Ok(())
    }

    /// Waits until an attempt has failed, and returns the time of the next one.
    fn has_failed(&self, attempt: u32, pause: i64) -> Result<Timestamp> {
        self.node.wait_for_state("attempt", attempt)?;
        let state = self.node.state()?;
        let next_try = time(&state["nextTry"])?;
        assert_eq!(next_try.duration_since(time(&state["at"])?), SignedDuration::from_secs(pause), "{state}");
        Ok(next_try)
    }

    /// The time at which each of its workers was requested, by the API server's clock, which is also the product's
    /// here.
    fn workers(&self) -> Result<Vec<Timestamp>> {
        let writes = self.node.writes()?;
        let started = writes.iter().filter(|write| write.verb == "create" && write.succeeded());
        started.map(|write| Ok(write.at.parse()?)).collect()
    }

    fn counts_as_failed_and_says_why(&self) -> Result<()> {
        let Self { cluster, case, node, .. } = self;
        let state = cluster.wait_for("the last attempt for a long time", || {
            let state = node.state()?;
            let pause = time(&state["nextTry"])?.duration_since(time(&state["at"])?);
            Ok((state["phase"] == "failed" && pause == LONGEST_PAUSE).then_some(state))
        })?;
        assert_eq!(state["cause"], case.cause, "{state}");
        let attempt = state["attempt"].as_u64().context("no attempt")?;
        let attempt = if attempt <= 3 { format!("{attempt} of 3") } else { attempt.to_string() };
        let expected = format!("closed: attempt {attempt} failed: {}; ", text(&state["reason"]));
        case.shown.iter().for_each(|part| assert!(expected.contains(part), "{expected}"));
        let condition = cluster.wait_for("the condition to show the last attempt", || {
            Ok(node.condition()?.filter(|condition| condition.message.starts_with(&expected)))
        })?;
        assert_eq!((condition.status.as_str(), condition.reason.as_str()), ("False", case.cause));
        cluster.eventually("an event for each attempt", || Ok(self.failures()? >= 3))?;
        cluster.eventually("the last worker to be gone", || Ok(node.workers()?.is_empty()))?;
        assert!(!node.is_open()? && node.label("node-ready/verified")?.is_none());
        assert!(self.says_that_it_is_ready()?, "a gate is for nodes that report Ready");
        Ok(())
    }

    /// Does what the condition advises, word for word.
    fn once_fixed_is_opened_on_request(&self) -> Result<()> {
        let before = self.workers()?.len();
        self.node.machine()?.heal()?;
        let condition = self.node.condition()?.context("it has no condition")?;
        let (_, remedy) = condition.message.split_once("kubectl ").context("no remedy")?;
        let remedy = remedy.split(';').next().unwrap_or_default();
        self.cluster.kubectl(remedy.split(' '))?;
        self.node.wait_until_open()?;
        assert_eq!(self.node.state()?["phase"], "verified");
        assert_eq!(self.workers()?.len(), before + 1, "one attempt was asked for");
        Ok(())
    }

    /// The number of events that report a failed attempt.
    fn failures(&self) -> Result<usize> {
        let events = self.node.events()?;
        let is_failure =
            |event: &&knr_e2e::NodeEvent| event.reason == "VerificationFailed" && event.kind == "Warning";
        Ok(events.iter().filter(is_failure).count())
    }

    fn says_that_it_is_ready(&self) -> Result<bool> {
        let object = self.node.object()?;
        let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
        Ok(conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True"))
    }
}

fn time(value: &Value) -> Result<Timestamp> {
    Ok(text(value).parse()?)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Does the same with all items in parallel.
fn in_parallel<'i, T: Sync, R: Send>(
    items: &'i [T],
    work: impl Fn(&'i T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let work = &work;
    let rethrow = |panic: Box<dyn Any + Send>| std::panic::resume_unwind(panic);
    thread::scope(|scope| {
        let threads: Vec<_> = items.iter().map(|item| scope.spawn(move || work(item))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(rethrow)).collect()
    })
}
