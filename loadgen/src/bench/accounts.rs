//! Processor time of server and generator, and memory of the server, during a bench.

use super::phase::Phase;
use super::tally::Tally;
use crate::usage::{Window, server_memory};
use loadgen_account::Memory;

/// Processor time and memory that a bench reports.
#[derive(Debug)]
pub(super) struct Accounts {
    server_pids: Vec<u32>,
    /// The measured time, and the processor time used in it.
    pub(super) window: Window,
    /// Memory of the server at four times: the start of the run, the start and the end of Attaching (the phase that
    /// opens watches and idle connections), and the end of Measuring. `None` without `--pid`, or if the bench skips the
    /// phase.
    pub(super) memory: [Option<Memory>; 4],
}

impl Accounts {
    /// Creates the accounts, and reads the server's memory at the start of the run.
    pub(super) fn new(server_pids: &[u32]) -> Self {
        Self {
            server_pids: server_pids.to_vec(),
            window: Window::default(),
            memory: [server_memory(server_pids), None, None, None],
        }
    }

    /// Records the change from the phase `before` to the phase `next`. Reads the server's memory when Attaching begins,
    /// and when Attaching or Measuring ends. Passes the start and the end of the measured time to the tally.
    pub(super) fn note(&mut self, before: Phase, next: Phase, tally: &mut Tally, now: impl Fn() -> u64) {
        let memory = || server_memory(&self.server_pids);
        if before == Phase::Attaching {
            self.memory[2] = memory();
        }
        if before == Phase::Measuring {
            tally.recorder.end(self.window.end(&self.server_pids, &now));
            self.memory[3] = memory();
        }
        if next == Phase::Attaching {
            self.memory[1] = memory();
        }
        if next == Phase::Measuring {
            tally.recorder.begin(self.window.begin(&self.server_pids, &now));
        }
    }
}
