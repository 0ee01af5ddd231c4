//! An in-memory cluster that answers like a Kubernetes API server, for the tests of the rules.
#![allow(dead_code, reason = "each test file uses its part of it")]

pub(crate) mod cluster;
pub(crate) mod random;
