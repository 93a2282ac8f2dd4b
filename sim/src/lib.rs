//! A deterministic simulator of the API server. It runs the server's real service, journal and store in one thread and
//! in virtual time. Clients, a disk or etcd, and faults are simulated, and a checker looks for faults of the server.
//! One seed determines the whole run.
//!
//! ```text
//!   clients ── HTTP ──► node::Server: Service, Journal ── Port ──► Worker, Disk ──► device::Device
//!      │                                                                              ▲
//!      └─► history ─► check                              faults ──────────────────────┘
//! ```

pub mod bugs;
pub mod check;
pub mod clients;
pub mod device;
pub mod etcd;
pub mod faults;
pub mod kernel;
pub mod node;
pub mod run;
pub mod swarm;
pub mod world;
