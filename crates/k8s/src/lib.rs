//! The only crate that knows Kubernetes objects.
