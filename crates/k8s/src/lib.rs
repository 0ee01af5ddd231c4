//! The only crate that knows Kubernetes objects.
//!
//! ```text
//!   API server --> watch --> observe --> facts        (the state of the cluster)
//!   API server <-- act <---- objects <-- actions      (the decisions of the rules)
//! ```
//!
//! | to find | look in |
//! |---|---|
//! | every request that is ever sent, and by whom | [`calls`] |
//! | permissions, generated from that list | [`rbac`], [`access`] |
//! | how nodes, pods and pools become facts | [`watch`], `observe`, `read` |
//! | how an answer is parsed | `answer` |
//! | how actions become requests | [`act`], [`objects`] |
//! | leader election | [`lease`] |
//! | whether an installation works | [`doctor`] |
//! | how all gates are opened on uninstall | [`release`] |

pub mod access;
pub mod act;
mod answer;
pub mod api;
pub mod calls;
pub mod connect;
pub mod doctor;
pub mod lease;
pub mod objects;
mod observe;
pub mod rbac;
mod read;
pub mod release;
mod scope;
#[cfg(test)]
mod testing;
pub mod watch;
