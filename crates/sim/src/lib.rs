//! The rules inside a hostile simulated cluster.
