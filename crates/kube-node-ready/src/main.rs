//! kube-node-ready.

fn main() {}
