//! State that the clients share: the gate that starts and stops them, the number of operations, and the records.

use crate::history::{Nanos, Op};
use crate::http::Connection;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The gate that clients pass before they send requests, with the state that they share.
#[derive(Debug)]
pub(crate) struct Gate {
    begun: Instant,
    /// Ports of the servers.
    ports: Vec<u16>,
    /// Time after which a connection fails if the server sends nothing.
    pub(crate) patience: Duration,
    operations_max: u64,
    operations: AtomicU64,
    sweep_names: AtomicU64,
    /// Whether clients may send requests. The run closes the gate after it has ended the server, and before it lists
    /// all Leases.
    is_open: AtomicBool,
    /// Whether the last fault that began was the kill of a replica. If so, a client that loses its connection measures
    /// for how long it cannot write.
    replica_is_killed: AtomicBool,
    /// When a client last received the acknowledgement of a write, in nanoseconds since the start of the run.
    last_write: AtomicU64,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    generation: u64,
    is_over: bool,
    /// Number of clients that have passed the gate and not returned to it since, so that they may be sending requests.
    working: u32,
    ops: Vec<Op>,
    /// For each client of a killed replica, the time for which it could not write: from when the client noticed the
    /// kill until its next acknowledged write.
    takeovers: Vec<Duration>,
}

impl Gate {
    /// Creates a closed gate.
    pub(crate) fn new(ports: Vec<u16>, patience: Duration, operations_max: u64) -> Self {
        Self {
            begun: Instant::now(),
            ports,
            patience,
            operations_max,
            operations: AtomicU64::new(0),
            sweep_names: AtomicU64::new(0),
            is_open: AtomicBool::new(false),
            replica_is_killed: AtomicBool::new(false),
            last_write: AtomicU64::new(0),
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Connects to server `number`, modulo the number of servers.
    pub(crate) fn connect(&self, number: u32) -> io::Result<Connection> {
        let at = usize::try_from(number).unwrap_or_default() % self.ports.len().max(1);
        let port = self.ports.get(at).copied().unwrap_or_default();
        Connection::open(port, self.patience)
    }

    /// Returns the number of servers.
    pub(crate) fn servers(&self) -> usize {
        self.ports.len()
    }

    /// Returns the time since the start of the run, in nanoseconds.
    pub(crate) fn now(&self) -> Nanos {
        u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Returns the number of the next operation; `None` if the run has no more operations.
    pub(crate) fn next_operation(&self) -> Option<u64> {
        let number = self.operations.fetch_add(1, Ordering::Relaxed);
        (number < self.operations_max).then_some(number)
    }

    /// Returns the number for the name of a new Lease in the namespace [`Sweep`](crate::history::Space::Sweep). Each
    /// call returns the next number.
    pub(crate) fn next_sweep_name(&self) -> u32 {
        u32::try_from(self.sweep_names.fetch_add(1, Ordering::Relaxed)).unwrap_or(u32::MAX)
    }

    /// Returns the number of operations that have begun.
    pub(crate) fn operations(&self) -> u64 {
        self.operations.load(Ordering::Relaxed).min(self.operations_max)
    }

    /// Whether clients may send requests.
    pub(crate) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Acquire)
    }

    /// Records whether the fault that now begins is the kill of a replica.
    pub(crate) fn set_replica_is_killed(&self, is_killed: bool) {
        self.replica_is_killed.store(is_killed, Ordering::Release);
    }

    /// Whether the last fault that began was the kill of a replica.
    pub(crate) fn replica_is_killed(&self) -> bool {
        self.replica_is_killed.load(Ordering::Acquire)
    }

    /// Records that a client has just received the acknowledgement of a write.
    pub(crate) fn wrote(&self) {
        self.last_write.fetch_max(self.now(), Ordering::AcqRel);
    }

    /// Returns when a client last received the acknowledgement of a write.
    pub(crate) fn last_write(&self) -> Nanos {
        self.last_write.load(Ordering::Acquire)
    }

    /// Checks that a client has received the acknowledgement of a write in the last `max`. In the first `max` after
    /// `opened`, the time at which the gate opened, the check always succeeds.
    ///
    /// # Errors
    /// If no write was acknowledged in the last `max`.
    pub(crate) fn check_writes(&self, opened: Nanos, max: Duration) -> Result<(), String> {
        let since = Duration::from_nanos(self.now().saturating_sub(self.last_write().max(opened)));
        if since < max { Ok(()) } else { Err(format!("no write was acknowledged for {max:?}")) }
    }

    /// Records the time since `lost`. A client noticed the kill of its replica at `lost`, and now has an acknowledged
    /// write again.
    pub(crate) fn took_over(&self, lost: Nanos) {
        let took = Duration::from_nanos(self.now().saturating_sub(lost));
        self.lock().takeovers.push(took);
    }

    /// Removes and returns the times for which clients could not write, as recorded by [`took_over`](Self::took_over).
    pub(crate) fn takeovers(&self) -> Vec<Duration> {
        std::mem::take(&mut self.lock().takeovers)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the gate is open in a later generation than `last`, and returns this generation. Each opening of the
    /// gate begins a generation. Returns `None` if the client must end.
    pub(crate) fn enter(&self, last: u64) -> Option<u64> {
        let mut state = self.lock();
        loop {
            if state.is_over {
                return None;
            }
            if state.generation > last && self.is_open() {
                state.working += 1;
                return Some(state.generation);
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Records that the client sends no more requests until the gate opens again. Moves the client's records to the
    /// gate.
    pub(crate) fn park(&self, ops: &mut Vec<Op>) {
        let mut state = self.lock();
        state.ops.append(ops);
        state.working = state.working.saturating_sub(1);
        self.changed.notify_all();
    }

    /// Opens the gate, and begins a new generation: all clients may send requests.
    pub(crate) fn open(&self) {
        let mut state = self.lock();
        state.generation += 1;
        self.is_open.store(true, Ordering::Release);
        self.changed.notify_all();
    }

    /// Closes the gate. Clients that work stop after their current operation. Clients that wait at the gate do not
    /// enter.
    pub(crate) fn close(&self) {
        let _state = self.lock();
        self.is_open.store(false, Ordering::Release);
    }

    /// Waits until all clients have stopped sending requests ([`park`](Self::park)). Removes and returns their records.
    /// The gate must be closed.
    pub(crate) fn wait_parked(&self) -> Vec<Op> {
        let mut state = self.lock();
        while state.working > 0 {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        std::mem::take(&mut state.ops)
    }

    /// Ends each client as soon as it waits at the gate.
    pub(crate) fn end(&self) {
        self.lock().is_over = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_time_without_acknowledged_writes_is_an_error() {
        let gate = Gate::new(vec![1], Duration::from_secs(1), 1);
        std::thread::sleep(Duration::from_millis(20));
        let max = Duration::from_millis(10);
        assert!(gate.check_writes(0, max).is_err());
        assert_eq!(gate.check_writes(gate.now(), Duration::from_secs(60)), Ok(()));
        gate.wrote();
        assert_eq!(gate.check_writes(0, Duration::from_secs(60)), Ok(()));
        std::thread::sleep(max);
        assert!(gate.check_writes(0, max).is_err());
    }

    #[test]
    fn a_gate_that_closes_at_once_does_not_wait_for_clients_outside() {
        let gate = Arc::new(Gate::new(vec![1], Duration::from_secs(1), 1));
        let client = {
            let gate = gate.clone();
            std::thread::spawn(move || {
                let mut generation = 0;
                while let Some(next) = gate.enter(generation) {
                    generation = next;
                    gate.park(&mut Vec::new());
                }
            })
        };
        for _ in 0..1_000 {
            gate.open();
            gate.close();
            assert!(gate.wait_parked().is_empty());
        }
        gate.end();
        client.join().expect("the client ends");
    }
}
