//! The product on a real cluster.
