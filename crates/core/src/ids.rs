//! Identities. A node is never identified by its name alone, because names are reused for other machines within
//! minutes.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The text itself.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.into())
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text.into())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }
    };
}

text_id!(
    /// The name of a node.
    NodeName
);
text_id!(
    /// The UID that the API server assigned to an object. Never reused.
    Uid
);
text_id!(
    /// The name of a policy. Empty if it is not known.
    PolicyName
);
text_id!(
    /// A fingerprint of what a worker runs and checks. Empty if it is not known.
    Requires
);
text_id!(
    /// The kernel's boot ID. It changes when the machine is restarted.
    BootId
);

/// One Node object, as opposed to a later one with the same name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeRef {
    pub name: NodeName,
    pub uid: Uid,
}

impl fmt::Display for NodeRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.name, self.uid)
    }
}

/// One worker pod.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WorkerRef {
    pub name: String,
    pub uid: Uid,
}

/// A resource version. Versions of objects of the same kind can be compared: the larger one is later.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u64);

/// The first eight bytes of a hash that other releases compute in the same way.
pub(crate) fn short_hash(bytes: &[u8]) -> u64 {
    let digest = Sha256::digest(bytes);
    let (head, _) = digest.split_at(8);
    head.iter().fold(0, |hash, byte| hash << 8 | u64::from(*byte))
}
