//! The only crate that knows Kubernetes objects.
//!
//! ```text
//!   API server --> watch --> observe --> facts        (what is)
//!   API server <-- act <---- objects <-- actions      (what to do)
//! ```
//!
//! | to find | look in |
//! |---|---|
//! | every request that is ever sent, and by whom | [`calls`] |
//! | permissions, made from that list | [`rbac`], [`access`] |
//! | how nodes, pods and pools become facts | [`watch`], `observe`, `read` |
//! | how an answer is read | `answer` |
//! | how actions become requests | [`act`], [`objects`] |
//! | who leads | [`lease`] |
//! | whether an installation works | [`doctor`] |
//! | how all gates are opened in the end | [`release`] |

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
