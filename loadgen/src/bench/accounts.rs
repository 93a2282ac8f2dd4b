//! What server and generator took of the machine in the course of a bench.

use super::phase::Phase;
use crate::usage::{Usage, server_memory};
use process_account::Memory;
use std::time::Duration;

/// What is reported of the machine.
#[derive(Debug)]
pub(super) struct Accounts {
    server_pids: Vec<u32>,
    /// When the measurement began and when it ended, in nanoseconds of the run, and what had been used until then.
    window: [(u64, Usage); 2],
    /// Memory of the server before anything was asked, before watchers and idle connections, with them, and at the end.
    pub(super) memory: [Option<Memory>; 4],
}

impl Accounts {
    /// Before the beginning.
    pub(super) fn new(server_pids: &[u32]) -> Self {
        Self {
            server_pids: server_pids.to_vec(),
            window: Default::default(),
            memory: [server_memory(server_pids), None, None, None],
        }
    }

    /// Notes what one phase ends with and the next begins with. `now` is asked last, since a look takes its time.
    pub(super) fn note(&mut self, before: Phase, next: Phase, now: impl Fn() -> u64) {
        let usage = || {
            let usage = Usage::now(&self.server_pids);
            (now(), usage)
        };
        let memory = || server_memory(&self.server_pids);
        if before == Phase::Attaching {
            self.memory[2] = memory();
        }
        if before == Phase::Measuring {
            self.window[1] = usage();
            self.memory[3] = memory();
        }
        if next == Phase::Attaching {
            self.memory[1] = memory();
        }
        if next == Phase::Measuring {
            self.window[0] = usage();
        }
    }

    /// When the measurement began, in nanoseconds of the run.
    pub(super) fn measured_since(&self) -> u64 {
        self.window[0].0
    }

    /// When it ended, likewise.
    pub(super) fn measured_until(&self) -> u64 {
        self.window[1].0
    }

    /// How long it took.
    pub(super) fn seconds(&self) -> f64 {
        let [(from, _), (to, _)] = self.window;
        Duration::from_nanos(to.saturating_sub(from)).as_secs_f64()
    }

    /// Processor time of the server in it, in microseconds.
    pub(super) fn server_us(&self) -> Option<f64> {
        let [(_, from), (_, to)] = self.window;
        Some(to.server_since(&from)?.as_secs_f64() * 1e6)
    }

    /// The generator's own.
    pub(super) fn generator_us(&self) -> f64 {
        let [(_, from), (_, to)] = self.window;
        to.generator_since(&from).as_secs_f64() * 1e6
    }
}
