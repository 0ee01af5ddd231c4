//! A built-in check that the configuration has disabled.

use futures::FutureExt;
use futures::future::{BoxFuture, ready};

use crate::check::{About, Check, Context, Outcome};

pub(crate) struct Off(pub(crate) &'static About);

impl Check for Off {
    fn name(&self) -> &str {
        self.0.name
    }

    fn about(&self) -> &'static About {
        self.0
    }

    fn run<'a>(&'a self, _: &'a Context) -> BoxFuture<'a, Outcome> {
        ready(Outcome::Skipped("switched off by worker.skipChecks".to_owned())).boxed()
    }
}
