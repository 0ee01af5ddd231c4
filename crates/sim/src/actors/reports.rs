//! The reports of workers. Whose fault each shows is written down here a second time, so that a mistake in the
//! product's table of failures is noticed.

use knr_core::fault::Blame;
use serde_json::{Value, json};

use crate::outages::OutageKind;
use crate::rng::Rng;

/// A report of a worker whose checks failed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Report {
    /// Whose fault it is.
    pub(super) blame: Blame,
    /// What is special about it, for the statistics.
    pub(super) what: &'static str,
    /// The checks that failed, each with the kind of its failure.
    failed: &'static [(&'static str, &'static str)],
}

const fn report(blame: Blame, what: &'static str, failed: &'static [(&'static str, &'static str)]) -> Report {
    Report { blame, what, failed }
}

const OF_THE_CLUSTER: &str = "report: the cluster's fault";
const OF_THE_INSTALLATION: &str = "report: the installation's fault";
const SEVERAL: &str = "report: several failures, one of them the node's own";
const UNKNOWN: &str = "report: a kind that is not in the table";

const TIMEOUT: Report = report(Blame::Node, "report: the node's own fault", &[("dns", "timeout")]);
const UNREACHABLE: Report =
    report(Blame::Node, "report: the node's own fault", &[("network", "unreachable"), ("dns", "io")]);
const BUSY: Report = report(Blame::Cluster, OF_THE_CLUSTER, &[("kubernetes", "busy")]);
const SERVFAIL: Report = report(Blame::Cluster, OF_THE_CLUSTER, &[("dns", "servfail")]);
const NO_ENDPOINTS: Report = report(Blame::Cluster, OF_THE_CLUSTER, &[("services", "no-endpoints")]);
const NO_DNS: Report =
    report(Blame::Cluster, OF_THE_CLUSTER, &[("dns", "timeout"), ("services", "no-dns-endpoints")]);
const BUSY_AND_FORBIDDEN: Report =
    report(Blame::Cluster, OF_THE_CLUSTER, &[("services", "forbidden"), ("kubernetes", "busy")]);
const BUSY_AND_TIMEOUT: Report =
    report(Blame::Cluster, OF_THE_CLUSTER, &[("kubernetes", "busy"), ("dns", "timeout")]);
const FORBIDDEN: Report = report(Blame::Installation, OF_THE_INSTALLATION, &[("services", "forbidden")]);

const BROKEN_MACHINE: &[Report] = &[
    TIMEOUT,
    TIMEOUT,
    TIMEOUT,
    report(
        Blame::Node,
        SEVERAL,
        &[("kubernetes", "busy"), ("dns", "no-nameserver"), ("network", "unreachable")],
    ),
    report(Blame::Node, SEVERAL, &[("services", "forbidden"), ("dns", "timeout")]),
    report(Blame::Node, UNKNOWN, &[("gpu", "gpu-lost")]),
    report(
        Blame::Node,
        UNKNOWN,
        &[("services", "no-endpoints"), ("gpu", "gpu-lost"), ("dns", "no-nameserver")],
    ),
];
const DNS_IS_DOWN: &[Report] = &[TIMEOUT, UNREACHABLE, SERVFAIL, NO_DNS];
const API_SERVER_IS_DOWN: &[Report] = &[TIMEOUT, BUSY];
const BY_CHANCE: &[Report] =
    &[BUSY, SERVFAIL, NO_ENDPOINTS, NO_DNS, BUSY_AND_FORBIDDEN, BUSY_AND_TIMEOUT, FORBIDDEN, FORBIDDEN];

/// Why the checks fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    Machine,
    Outage(OutageKind),
    /// Something that has nothing to do with the machine.
    Chance,
}

impl Report {
    /// Draws the report of a worker.
    pub(super) fn draw(cause: Cause, rng: &mut Rng) -> Self {
        let reports = match cause {
            Cause::Machine => BROKEN_MACHINE,
            Cause::Outage(OutageKind::ApiServer) => API_SERVER_IS_DOWN,
            Cause::Outage(_) => DNS_IS_DOWN,
            Cause::Chance => BY_CHANCE,
        };
        *rng.pick(reports).unwrap_or(&TIMEOUT)
    }

    /// Returns the text that the worker leaves behind.
    pub(super) fn text(&self) -> String {
        let failed = |(check, kind): &(&str, &str)| json!({"name": check, "outcome": {"fail": {"kind": kind, "detail": format!("{check} failed")}}});
        let mut checks: Vec<Value> = vec![json!({"name": "mtu", "outcome": "pass"})];
        checks.extend(self.failed.iter().map(failed));
        json!({ "checks": checks }).to_string()
    }
}
