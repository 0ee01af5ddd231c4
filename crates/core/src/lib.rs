//! The rules.

pub mod names;
