//! A file or directory exists.

use std::io::ErrorKind;

use futures::FutureExt;
use futures::future::BoxFuture;
use knr_core::config::FileSpec;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use crate::check::{About, Check, Context, Kind, Outcome, Trouble, span};

pub(crate) static ABOUT: About = About {
    name: "file",
    summary: "A file or directory exists, as the worker sees it.",
    kinds: &[
        (Kind::Missing, "look at the node, and at worker.volumes and worker.volumeMounts"),
        (Kind::Timeout, "the file system does not answer: look at the disk or the network it is on"),
        (
            Kind::Io,
            "look at the permissions of the directories, the file system, and the log of the node's kernel",
        ),
    ],
};

/// See [`ABOUT`].
pub(crate) struct File {
    name: String,
    path: String,
}

impl File {
    pub(crate) fn new(name: &str, spec: &FileSpec) -> Self {
        Self { name: name.to_owned(), path: spec.path.clone() }
    }
}

impl Check for File {
    fn name(&self) -> &str {
        &self.name
    }

    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn run<'a>(&'a self, cx: &'a Context) -> BoxFuture<'a, Outcome> {
        async move {
            let (path, start) = (self.path.clone(), Instant::now());
            let (sender, receiver) = oneshot::channel();
            // A separate thread: a file system that hangs may block it indefinitely, and nobody joins it.
            std::thread::spawn(move || sender.send(std::fs::metadata(path).map(drop)));
            match timeout_at(cx.deadline, receiver).await {
                Ok(Ok(Ok(()))) => Outcome::Pass(self.path.clone()),
                Ok(Ok(Err(error)))
                    if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
                {
                    Trouble::new(Kind::Missing, format!("{} does not exist", self.path)).into()
                }
                Ok(Ok(Err(error))) => Trouble::new(Kind::Io, format!("{}: {error}", self.path)).into(),
                Ok(Err(_)) => Trouble::new(Kind::Io, format!("{}: the lookup failed", self.path)).into(),
                Err(_) => {
                    let detail = format!("{}: no answer after {}", self.path, span(start.elapsed()));
                    Trouble::new(Kind::Timeout, detail).into()
                }
            }
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{self, context, soon};

    async fn at(path: &str) -> Outcome {
        let check = File::new("plugin", &FileSpec { path: path.to_owned() });
        testing::outcome(&check, &context(soon())).await
    }

    #[tokio::test]
    async fn a_file_or_a_folder_will_do() {
        let program = std::env::current_exe().unwrap().display().to_string();
        assert_eq!(at(&program).await, Outcome::Pass(program));
        assert_eq!(at("/").await, Outcome::Pass("/".to_owned()));
    }

    #[tokio::test]
    async fn what_is_not_there_is_missing() {
        for path in ["/no/such/file", "/dev/null/file"] {
            let trouble = Trouble::new(Kind::Missing, format!("{path} does not exist"));
            assert_eq!(at(path).await, Outcome::Fail(trouble));
        }
    }

    #[tokio::test]
    async fn what_cannot_be_looked_at_is_reported() {
        let long = format!("/{}", "x".repeat(300));
        let Outcome::Fail(trouble) = at(&long).await else { panic!("found") };
        assert_eq!(trouble.kind, Kind::Io, "{trouble:?}");
    }
}
