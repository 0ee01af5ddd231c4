//! All HTTP endpoints: metrics, health, and the server for both.
//!
//! ```text
//!   driver --> Metrics --\
//!                         router --> serve --> /metrics  /healthz  /livez  /readyz
//!   driver --> Health  --/
//! ```

mod health;
mod metrics;
mod router;
mod server;

pub use health::{Health, Vital};
pub use metrics::{ConfigReload, Exposition, Leader, Metrics, NodeMetrics, WorkerCounts};
pub use router::router;
pub use server::serve;
