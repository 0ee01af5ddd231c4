//! The page about failures, generated from the tables of failures.

use std::fmt::Write as _;

use knr_core::explain::Reason;
use knr_core::fault::{Blame, Kind, WAITING_REASONS, WorkerFailure};

const INTRODUCTION: &str = include_str!("failures.md");

pub(crate) fn page() -> String {
    let workers = WorkerFailure::ALL.iter().map(|it| (it.word(), it.blame(), it.meaning(), it.remedy()));
    let kinds = Kind::ALL.iter().map(|it| (it.word(), it.blame(), it.meaning(), it.remedy()));
    let mut text = INTRODUCTION.to_owned();
    text.push_str("\n## Failures of checks\n\n");
    text.push_str("The `kind` in the [report](checks.md#the-report) of a worker. A kind that is not in this table, such as one of ");
    text.push_str("your own image, is the fault of the node or of the cluster.\n\n");
    table(&mut text, "Kind", kinds);
    text.push_str("\n## Failures of workers\n\n");
    text.push_str("The reason of the condition if a worker failed and its report names no failed check.\n\n");
    table(&mut text, "Reason", workers);
    text.push_str("\n## Nodes that wait\n\n");
    text.push_str("The reason of the condition while it is `Unknown`, if no run of the checks explains it. None of these counts as a failure.\n\n");
    text.push_str("| Reason | Meaning | Look at |\n| --- | --- | --- |\n");
    for reason in Reason::ALL {
        let (meaning, remedy) = reason.meaning();
        let _ = writeln!(text, "| `{}` | {meaning} | {remedy} |", reason.word());
    }
    text.push_str("\n## Workers that wait\n\n");
    text.push_str("Reasons with which the kubelet reports that a container will not start until something is changed. A worker ");
    text.push_str("that waits for any other reason has `worker.pendingTimeoutSeconds` to start.\n\n");
    text.push_str("| Reason of the container | Failure |\n| --- | --- |\n");
    for (reason, failure) in WAITING_REASONS {
        let _ = writeln!(text, "| `{reason}` | `{}` |", failure.word());
    }
    text
}

type Row = (&'static str, Blame, &'static str, &'static str);

fn table(text: &mut String, word: &str, rows: impl Iterator<Item = Row>) {
    let _ = writeln!(text, "| {word} | Whose fault | Meaning | Look at |\n| --- | --- | --- | --- |");
    for (word, blame, meaning, remedy) in rows {
        let _ = writeln!(text, "| `{word}` | {} | {meaning} | {remedy} |", whose(blame));
    }
}

const fn whose(blame: Blame) -> &'static str {
    match blame {
        Blame::Node => "node",
        Blame::Cluster => "cluster",
        Blame::Unclear => "node or cluster",
        Blame::Installation => "installation",
    }
}
