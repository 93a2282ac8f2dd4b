//! A run with several replicas over etcd. Faults occur one after the other, while clients and watchers continue.

use crate::args::Args;
use crate::etcd::Etcd;
use crate::fault::Fault;
use crate::gate::Gate;
use crate::process::{Program, Server, Storage, free_port, signal};
use crate::proxy::Network;
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// The processes of a run with replicas: etcd and the servers.
#[derive(Debug)]
pub(crate) struct Replicas {
    etcd: Etcd,
    replicas: Vec<Replica>,
    /// Number of faults that have begun so far, by kind.
    pub(crate) faults: BTreeMap<Fault, u64>,
    /// For each replica, the time from its first start until it was ready.
    pub(crate) starts: Vec<Duration>,
    /// For each kill of etcd's leader, two times since the kill: until etcd accepted a write, and until a replica
    /// acknowledged a write.
    pub(crate) leaders_lost: Vec<(Duration, Duration)>,
}

#[derive(Debug)]
struct Replica {
    program: Program,
    network: Network,
    /// The server's process; `None` while the replica is dead.
    server: Option<Server>,
}

impl Replicas {
    /// Starts etcd and all replicas, and waits until they are ready.
    ///
    /// # Errors
    /// If a process cannot be started, or is not ready in time.
    pub(crate) fn start(args: &Args, server: &Path, etcd: &Path, folder: &Path) -> Result<Self, String> {
        let etcd = Etcd::start(etcd, folder, args.etcd_members)?;
        let mut replicas = Vec::new();
        for number in 0..args.replicas {
            let told = |e: std::io::Error| format!("no free port: {e}");
            let network = Network::new();
            let ports = etcd.ports().into_iter().map(|port| network.lead_to(port)).collect::<Result<Vec<_>, _>>();
            let urls: Vec<_> = ports.map_err(told)?.iter().map(|port| format!("https://127.0.0.1:{port}")).collect();
            let program = Program {
                file: server.to_owned(),
                port: free_port().map_err(told)?,
                storage: Storage::Etcd(urls.join(","), etcd.certs.clone()),
                log: folder.join(format!("log-{number}")),
                window: args.watch_window_events,
            };
            replicas.push(Replica { program, network, server: None });
        }
        let mut all = Self { etcd, replicas, faults: BTreeMap::new(), starts: Vec::new(), leaders_lost: Vec::new() };
        all.await_all()?;
        Ok(all)
    }

    /// Returns the ports of the replicas.
    pub(crate) fn ports(&self) -> Vec<u16> {
        self.replicas.iter().map(|replica| replica.program.port).collect()
    }

    /// Ends all faults, and waits until every replica is ready.
    ///
    /// # Errors
    /// If a replica is not ready in time, or has ended by itself.
    pub(crate) fn await_all(&mut self) -> Result<(), String> {
        for member in 0..self.etcd.len() {
            self.etcd.pause(member, false)?;
            self.etcd.revive(member)?;
        }
        self.etcd.await_quorum()?;
        for replica in &mut self.replicas {
            replica.network.heal();
            if replica.server.is_none() {
                replica.server = Some(replica.program.start()?);
            }
        }
        // Only the first start of each replica is measured. A replica that was started again during a fault may have
        // been ready before this wait, so the measured time would be too long.
        let is_first = self.starts.is_empty();
        for server in self.replicas.iter_mut().filter_map(|replica| replica.server.as_mut()) {
            let ready = server.wait_ready()?;
            self.starts.extend(is_first.then_some(ready));
        }
        Ok(())
    }

    /// Returns the line that the first running replica logged about its store at its start.
    pub(crate) fn store_line(&self) -> String {
        let server = self.replicas.iter().find_map(|replica| replica.server.as_ref());
        server.map(Server::store_line).unwrap_or_default()
    }

    /// Runs one fault from its beginning to its end: a fault of the kind `only`, or of a random kind. Calls `show`
    /// repeatedly while the fault lasts.
    ///
    /// # Errors
    /// If a process cannot be started, or has ended by itself.
    pub(crate) fn fault(
        &mut self,
        only: Option<Fault>,
        rng: &mut fastrand::Rng,
        gate: &Gate,
        mut show: impl FnMut(),
    ) -> Result<(), String> {
        let fault = only.unwrap_or_else(|| Fault::draw(rng));
        gate.set_replica_is_killed(fault == Fault::ReplicaKilled);
        *self.faults.entry(fault).or_default() += 1;
        let replica = rng.usize(..self.replicas.len());
        let member = match fault {
            Fault::LeaderKilled | Fault::LeaderPaused => self.etcd.leader().unwrap_or(0),
            _ => rng.usize(..self.etcd.len()),
        };
        let for_ms = self.begin(fault, replica, member, rng)?;
        let begun = Instant::now();
        if fault == Fault::LeaderKilled {
            self.leaders_lost.push(await_writes(&self.etcd, gate));
        }
        while begun.elapsed() < Duration::from_millis(for_ms) {
            show();
            thread::sleep(Duration::from_millis(10));
        }
        self.end(fault, replica, member)
    }

    /// Begins a fault, and returns its duration in ms.
    fn begin(&mut self, fault: Fault, replica: usize, member: usize, rng: &mut fastrand::Rng) -> Result<u64, String> {
        let other = (member + 1) % self.etcd.len();
        let Replica { network, server, .. } = &mut self.replicas[replica];
        Ok(match fault {
            Fault::ReplicaKilled => {
                if let Some(mut server) = server.take() {
                    server.kill()?;
                }
                rng.u64(0..1_000)
            }
            Fault::ReplicaPaused => {
                if let Some(server) = server {
                    signal(server.id(), Signal::STOP)?;
                }
                // Most pauses are short. Some pauses are longer than the 3 s that a client waits for a response.
                if rng.u8(..4) == 0 { rng.u64(5_000..20_000) } else { rng.u64(1_000..4_000) }
            }
            Fault::ReplicaStopped => {
                if let Some(mut server) = server.take() {
                    server.terminate()?;
                }
                rng.u64(0..500)
            }
            Fault::MemberKilled | Fault::LeaderKilled => {
                self.etcd.kill(member);
                rng.u64(0..3_000)
            }
            Fault::LeaderPaused => {
                self.etcd.pause(member, true)?;
                rng.u64(500..5_000)
            }
            Fault::QuorumLost => {
                self.etcd.kill(member);
                self.etcd.kill(other);
                if rng.u8(..4) == 0 { 10_000 } else { rng.u64(500..4_000) }
            }
            Fault::ConnectionsCut => {
                network.cut();
                rng.u64(0..500)
            }
            Fault::ConnectionsDelayed => {
                network.set(rng.u64(1..400), false, false);
                rng.u64(500..4_000)
            }
            Fault::RequestsSwallowed => {
                network.set(0, true, false);
                rng.u64(500..6_000)
            }
            Fault::AnswersSwallowed => {
                network.set(0, false, true);
                rng.u64(500..6_000)
            }
            Fault::Compacted => {
                self.etcd.compact();
                rng.u64(0..300)
            }
        })
    }

    fn end(&mut self, fault: Fault, replica: usize, member: usize) -> Result<(), String> {
        let other = (member + 1) % self.etcd.len();
        let Replica { network, server, program } = &mut self.replicas[replica];
        match fault {
            Fault::ReplicaKilled | Fault::ReplicaStopped => *server = Some(program.start()?),
            Fault::ReplicaPaused => {
                if let Some(server) = server {
                    signal(server.id(), Signal::CONT)?;
                }
            }
            Fault::MemberKilled | Fault::LeaderKilled => self.etcd.revive(member)?,
            Fault::LeaderPaused => self.etcd.pause(member, false)?,
            Fault::QuorumLost => {
                self.etcd.revive(member)?;
                self.etcd.revive(other)?;
            }
            Fault::ConnectionsCut | Fault::ConnectionsDelayed | Fault::RequestsSwallowed | Fault::AnswersSwallowed => {
                network.heal();
            }
            Fault::Compacted => {}
        }
        Ok(())
    }
}

/// After a kill of etcd's leader, waits until writes succeed again. Returns two durations, which both begin with the
/// kill: the first ends when etcd accepts a write, the second when a replica acknowledges a write.
fn await_writes(etcd: &Etcd, gate: &Gate) -> (Duration, Duration) {
    let (begun, begun_nanos) = (Instant::now(), gate.now());
    thread::scope(|scope| {
        let etcd = scope.spawn(|| {
            etcd.await_write(WRITES_MAX);
            begun.elapsed()
        });
        // Before an election, a replica may still acknowledge a write that the dead leader had committed. So
        // acknowledgements in the first `ELECTION_MIN` do not count.
        thread::sleep(ELECTION_MIN);
        let late = begun_nanos + u64::try_from(ELECTION_MIN.as_nanos()).unwrap_or_default();
        while gate.last_write() < late && begun.elapsed() < WRITES_MAX {
            thread::sleep(Duration::from_millis(5));
        }
        (etcd.join().unwrap_or(WRITES_MAX), begun.elapsed())
    })
}

/// Maximum wait after a kill of etcd's leader until writes succeed.
const WRITES_MAX: Duration = Duration::from_secs(15);
/// Minimum duration of an election in etcd.
const ELECTION_MIN: Duration = Duration::from_millis(300);
