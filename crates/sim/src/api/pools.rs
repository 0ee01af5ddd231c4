//! Karpenter's pools.

use std::sync::Arc;

use knr_core::ids::Version;
use knr_core::view::PoolView;

use super::{Api, Object};

/// A pool as the API server stores it.
#[derive(Debug, Clone)]
pub(crate) struct PoolObject {
    pub(crate) version: Version,
    /// The part that the rules see.
    pub(crate) view: PoolView,
}

impl Api {
    /// All pools.
    pub(crate) fn pools(&self) -> Vec<PoolView> {
        self.pools.values().map(|pool| pool.view.clone()).collect()
    }

    /// A pool.
    #[must_use]
    pub(crate) fn pool(&self, name: &str) -> Option<&PoolView> {
        self.pools.get(name).map(|pool| &pool.view)
    }

    /// Creates or changes a pool.
    pub(crate) fn put_pool(&mut self, view: PoolView) {
        self.version += 1;
        let pool = Arc::new(PoolObject { version: Version(self.version), view });
        self.pools.insert(pool.view.name.clone(), pool.clone());
        self.note(Object::Pool(pool), false);
    }

    /// Removes a pool.
    pub(crate) fn remove_pool(&mut self, name: &str) {
        if let Some(pool) = self.pools.remove(name) {
            self.version += 1;
            self.note(Object::Pool(pool), true);
        }
    }
}
