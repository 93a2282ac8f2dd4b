//! Tests of the journal with its worker, over an engine in memory.

mod damage;
mod forms;
mod generate;
mod inspect;
mod migration;
mod recovery;
mod replicas;
mod rig;
mod thread;
mod upkeep;
mod writes;
