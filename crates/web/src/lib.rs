//! Every HTTP endpoint.
