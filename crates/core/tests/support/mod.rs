//! A cluster in memory that answers as a Kubernetes API server would, for the tests of the rules.
#![allow(dead_code, reason = "each test file uses its part of it")]

pub(crate) mod cluster;
pub(crate) mod random;
