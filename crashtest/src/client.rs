//! A client: a thread with one connection that sends one request after another. The gate starts and stops all clients,
//! and collects the records of their operations.

use crate::gate::Gate;
use crate::history::{Action, Key, Nanos, Op, Outcome, Seen, Space};
use crate::http::{Connection, is_timeout};
use crate::request;
use std::sync::mpsc::Sender;
use std::time::Duration;

/// A client: what it knows of the Leases, and the records of its operations that it has not passed to the gate yet.
#[derive(Debug)]
pub(crate) struct Client {
    number: u32,
    /// Number of the server to which the client connected last.
    server: u32,
    rng: fastrand::Rng,
    /// What the client knows of the nodes' Leases that it alone renews.
    own: Vec<Known>,
    locks: Vec<Known>,
    shared: Vec<Known>,
    ops: Vec<Op>,
    complaints: Sender<String>,
    /// Whether a request without an answer is a violation. In a run with `--replicas` it is no violation, since a fault
    /// can pause a server or etcd for longer than a client waits for an answer.
    expects_answers: bool,
}

/// What a client knows of one Lease.
#[derive(Clone, Copy, Debug)]
struct Known {
    key: Key,
    state: Knowledge,
}

/// The state of a Lease, as a client knows it from the last outcome of an operation on this Lease.
#[derive(Clone, Copy, Debug)]
enum Knowledge {
    /// The state is unknown after a conflict, or after an operation without a known outcome.
    Nothing,
    /// The Lease does not exist, or the client has not used it yet.
    Absent,
    Present(Seen),
}

impl Client {
    /// Creates client `number` of `clients`. `nodes` is the number of the nodes' Leases of all clients together. Each
    /// of these Leases belongs to one client.
    pub(crate) fn new(
        number: u32,
        clients: u32,
        nodes: u32,
        seed: u64,
        complaints: Sender<String>,
        expects_answers: bool,
    ) -> Self {
        let known = |space, number| Known { key: Key { space, number }, state: Knowledge::Absent };
        Self {
            number,
            server: number,
            rng: fastrand::Rng::with_seed(seed.wrapping_add(u64::from(number))),
            own: (0..nodes).filter(|node| node % clients == number).map(|node| known(Space::Nodes, node)).collect(),
            locks: (0..LOCKS).map(|lock| known(Space::Locks, lock)).collect(),
            shared: (0..SHARED).map(|lease| known(Space::Shared, lease)).collect(),
            ops: Vec::new(),
            complaints,
            expects_answers,
        }
    }

    /// Sends requests until the run ends.
    pub(crate) fn run(mut self, gate: &Gate) {
        let mut generation = 0;
        while let Some(next) = gate.enter(generation) {
            generation = next;
            self.work(gate);
            gate.park(&mut self.ops);
        }
    }

    /// Sends requests while the gate is open and operations are left.
    fn work(&mut self, gate: &Gate) {
        let mut connection: Option<Connection> = None;
        // When the client noticed that its replica had been killed, in nanoseconds since the start of the run. `None`
        // if no replica was killed since the client's last acknowledged write.
        let mut lost: Option<Nanos> = None;
        while gate.is_open() {
            if gate.servers() > 1 && self.rng.u32(0..MOVES_ONE_IN) == 0 {
                connection = None;
            }
            let Some(mut open) = connection.take().or_else(|| self.connect(gate)) else {
                std::thread::sleep(PAUSE);
                continue;
            };
            let Some(id) = gate.next_operation() else { return };
            let action = self.choose(gate);
            let begin = gate.now();
            let done = request::perform(&mut open, self.number, id, action);
            // A request without a response may still take effect. The run later sets `end` to the latest time at which
            // it can.
            let (mut end, mut outcome) = (Nanos::MAX, Outcome::Unknown);
            match done {
                Ok((Ok(answered), keeps)) => {
                    if answered != Outcome::Unknown {
                        end = gate.now();
                    }
                    outcome = answered;
                    connection = keeps.then_some(open);
                }
                Ok((Err(complaint), _)) => _ = self.complaints.send(complaint),
                Err(e) if self.expects_answers && is_timeout(&e) => {
                    _ = self.complaints.send(format!("{action:?}: no answer in {:?}", gate.patience));
                }
                Err(_) if gate.replica_is_killed() => _ = lost.get_or_insert_with(|| gate.now()),
                Err(_) => {}
            }
            if action.is_write() && matches!(outcome, Outcome::Lease(_) | Outcome::Deleted) {
                gate.wrote();
                lost.take().into_iter().for_each(|lost| gate.took_over(lost));
            }
            self.learn(action, &outcome);
            if matches!(outcome, Outcome::Refused(_)) {
                // The server is loading, busy or full. If there are several replicas, the client moves to another one,
                // as a load balancer does.
                connection = connection.filter(|_| gate.servers() == 1);
                std::thread::sleep(PAUSE);
            }
            self.ops.push(Op { id, client: self.number, action, begin, end, outcome });
        }
    }

    /// Connects to the next server, in the order of the servers' numbers.
    fn connect(&mut self, gate: &Gate) -> Option<Connection> {
        self.server = self.server.wrapping_add(1);
        gate.connect(self.server).ok()
    }

    /// Chooses the next operation at random.
    fn choose(&mut self, gate: &Gate) -> Action {
        let dice = self.rng.u32(0..1_000);
        let (known, space) = match dice {
            0..550 => (&self.own, Space::Nodes),
            550..730 => (&self.locks, Space::Locks),
            730..930 => (&self.shared, Space::Shared),
            930..970 => {
                let number = gate.next_sweep_name();
                return Action::Create(Key { space: Space::Sweep, number });
            }
            970..972 => return Action::DeleteCollection(Space::Sweep),
            972..985 => return Action::List(Some(Space::Locks)),
            985..993 => return Action::List(Some(Space::Shared)),
            _ => return Action::List(Some(Space::Sweep)),
        };
        let Some(known) = self.rng.choice(known) else { return Action::Get(LOCK_0) };
        let key = known.key;
        match (known.state, space) {
            (Knowledge::Nothing, Space::Shared) if self.rng.bool() => Action::Patch(key),
            (Knowledge::Nothing, _) => Action::Get(key),
            (Knowledge::Absent, _) => Action::Create(key),
            (Knowledge::Present(seen), Space::Shared) => match self.rng.u32(0..100) {
                0..60 => Action::Patch(key),
                60..70 => Action::Put { key, uid: seen.uid, from: seen.version },
                70..85 => Action::Get(key),
                85..95 => Action::Delete { key, uid: seen.uid, from: None },
                _ => Action::Delete { key, uid: seen.uid, from: Some(seen.version) },
            },
            (Knowledge::Present(seen), _) => match self.rng.u32(0..100) {
                0..90 => Action::Put { key, uid: seen.uid, from: seen.version },
                90..99 => Action::Get(key),
                _ => Action::Delete { key, uid: seen.uid, from: Some(seen.version) },
            },
        }
    }

    /// Updates what the client knows of the operation's Lease.
    fn learn(&mut self, action: Action, outcome: &Outcome) {
        let Some(key) = action.key() else { return };
        let known = match key.space {
            Space::Nodes => &mut self.own,
            Space::Locks => &mut self.locks,
            Space::Shared => &mut self.shared,
            Space::Sweep => return,
        };
        let Some(known) = known.iter_mut().find(|known| known.key == key) else { return };
        known.state = match outcome {
            Outcome::Lease(seen) => Knowledge::Present(*seen),
            Outcome::Deleted | Outcome::NotFound => Knowledge::Absent,
            Outcome::Refused(_) => known.state,
            Outcome::Conflict | Outcome::Unknown | Outcome::List { .. } => Knowledge::Nothing,
        };
    }
}

/// In a run with several replicas, the average number of operations after which a client moves to the next server.
const MOVES_ONE_IN: u32 = 500;
/// Number of Leases that are locks. All clients take and renew these Leases.
const LOCKS: u32 = 8;
/// Number of Leases that all clients patch, create and delete.
const SHARED: u32 = 32;
/// The first lock. One of the watchers watches only this Lease.
pub(crate) const LOCK_0: Key = Key { space: Space::Locks, number: 0 };
/// Time before the next attempt after a failed connection or a refusal.
const PAUSE: Duration = Duration::from_millis(2);

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, TcpListener};
    use std::sync::mpsc;

    #[test]
    fn a_server_that_does_not_answer_is_reported_unless_faults_may_pause_it() {
        // The kernel accepts the connections, but nobody reads the requests.
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = listener.local_addr().expect("an address").port();
        for expects_answers in [true, false] {
            let gate = Gate::new(vec![port], Duration::from_millis(20), 1);
            let (complain, complaints) = mpsc::channel();
            let mut client = Client::new(0, 1, 1, 5, complain, expects_answers);
            gate.open();
            client.work(&gate);
            assert!(matches!(client.ops.as_slice(), [Op { outcome: Outcome::Unknown, end: Nanos::MAX, .. }]));
            assert_eq!(complaints.try_iter().count(), usize::from(expects_answers));
        }
    }
}
