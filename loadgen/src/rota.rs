//! The order and the due times of the nodes' duties: the renewals and reads of their Leases. At first each node has one
//! duty, the creation of its Lease. Then timers decide when a duty is due. With `--max` there are no timers: each lane
//! (a connection) serves its nodes one after the other, as fast as possible.
//!
//! This module owns two timers for each node, and each lane's position among its nodes. It uses neither the clock nor
//! connections, and does not perform duties.

use crate::args::Args;
use crate::fleet::Flight;
use crate::node::Step;
use crate::reactor::nanos;
use crate::ring::Ring;
use crate::schedule::Schedule;

/// The duties (renewals and reads) of all nodes.
#[derive(Debug)]
pub(crate) struct Rota {
    order: Order,
    is_max: bool,
    period_ns: u64,
    /// Time between two reads of the same node's Lease, without the jitter, in nanoseconds; `None` if the run has no
    /// reads. Not used with `--max`.
    read_period_ns: Option<u64>,
    /// Number of reads for each renewal, with `--max`.
    reads: f64,
    nodes: u32,
    /// Number of nodes whose first renewal has ended.
    pub(crate) started: u32,
    /// Timers: node n has timer 2n for renewals and 2n + 1 for reads. A timer is not armed while its renewal or read is
    /// in flight.
    schedule: Schedule,
    /// When timers were last checked, in nanoseconds since the start of the run.
    last_fire: u64,
    /// Scratch buffer for timers that are due, each with its due time.
    fired: Vec<(u32, u64)>,
    rounds: Vec<Round>,
    rng: fastrand::Rng,
}

/// How the rota finds the next duty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// No duties.
    Nothing,
    /// One renewal of every node, which creates or finds the node's Lease.
    Once,
    /// Each lane goes round its nodes without end (`--max`).
    Rounds,
    /// Timers, for duties due before `until`, in nanoseconds since the start of the run.
    Timers { until: u64 },
}

/// A lane's position among the nodes that share the lane.
#[derive(Clone, Debug)]
struct Round {
    /// The indexes of the lane's nodes.
    nodes: Ring,
    /// With `--max`: number of reads that the renewals so far require and that are not sent yet.
    reads_owed: f64,
}

/// What a node has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Duty {
    /// Read the Lease, to check what the server stores.
    Read,
    /// Renew the Lease, or create it.
    Renew,
}

/// A duty whose timer has become due.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Due {
    pub(crate) node: u32,
    pub(crate) duty: Duty,
    /// Due time of the duty, in nanoseconds since the start of the run.
    pub(crate) due: u64,
    /// The generator's own delay, in nanoseconds: the time until the event loop noticed the timer, from the due time
    /// or, if later, from the previous check of the timers.
    pub(crate) late_ns: u64,
}

impl Rota {
    /// Creates a rota in which no node has a duty.
    pub(crate) fn new(args: &Args) -> Self {
        let lanes = args.connections();
        let round = |lane: u32| Round { nodes: Ring::new(lane, lanes, args.nodes), reads_owed: 0.0 };
        Self {
            order: Order::Nothing,
            is_max: args.max,
            period_ns: nanos(args.period),
            read_period_ns: args.read_period_ns(),
            reads: args.reads,
            nodes: args.nodes,
            started: 0,
            schedule: Schedule::new(args.nodes as usize * 2),
            last_fire: 0,
            fired: Vec::new(),
            rounds: (0..lanes).map(round).collect(),
            rng: fastrand::Rng::new(),
        }
    }

    /// Makes the first renewal of every node due.
    pub(crate) fn begin_once(&mut self) {
        self.order = Order::Once;
    }

    /// Starts the load. With timers, each node's duties are first due at random times within their period.
    pub(crate) fn begin_load(&mut self, now: u64) {
        self.order = if self.is_max { Order::Rounds } else { Order::Timers { until: u64::MAX } };
        self.rounds.iter_mut().for_each(|round| round.nodes.restart());
        if self.is_max {
            return;
        }
        for node in 0..self.nodes {
            self.schedule.arm(timer_of(node, Duty::Renew), now + self.rng.u64(0..self.period_ns));
            if let Some(period) = self.read_period_ns {
                self.schedule.arm(timer_of(node, Duty::Read), now + self.rng.u64(0..period));
            }
        }
    }

    /// Ends the load. Duties due before `until` must still be performed, however late. Otherwise the duties that waited
    /// longest would not count in the latencies.
    pub(crate) fn end(&mut self, until: u64) {
        self.order = match self.order {
            Order::Timers { .. } => Order::Timers { until },
            Order::Nothing | Order::Once | Order::Rounds => Order::Nothing,
        };
    }

    /// Whether a duty that was due before the end of the load is not started yet.
    pub(crate) fn is_owed(&self) -> bool {
        let Order::Timers { until } = self.order else { return false };
        // The schedule sorts timers into slots of time. A timer that is armed after its due time goes into the slot of
        // the last check, not into the slot of its due time. So the search must reach the time of the last check.
        self.schedule.next_due(until.max(self.last_fire)) < until
    }

    /// Drops the duties that were due before the end of the load. Calls `tell` with each of them and its due time. A
    /// duty that was due in several periods is passed to `tell` once for each period.
    pub(crate) fn abandon(&mut self, now: u64, mut tell: impl FnMut(u32, Duty, u64)) {
        let Order::Timers { until } = self.order else { return };
        self.order = Order::Nothing;
        self.schedule.fire(now, &mut self.fired);
        for (timer, first) in std::mem::take(&mut self.fired) {
            let (node, duty) = duty_of(timer);
            let mut next = Some(first);
            while let Some(due) = next.filter(|&due| due < until) {
                tell(node, duty, due);
                next = self.due_after(duty, due);
            }
        }
    }

    /// Returns the due time of the next timer, or `horizon` if no timer is due before it.
    pub(crate) fn next_due(&self, horizon: u64) -> u64 {
        let Order::Timers { until } = self.order else { return horizon };
        let due = self.schedule.next_due(horizon);
        if due < until { due } else { horizon }
    }

    /// Calls `tell` with each duty whose timer is due.
    pub(crate) fn fire(&mut self, now: u64, mut tell: impl FnMut(Due)) {
        let Order::Timers { until } = self.order else { return };
        self.schedule.fire(now, &mut self.fired);
        for (timer, due) in self.fired.drain(..).filter(|&(_, due)| due < until) {
            // A timer may have been armed after its due time, because the server was late. That delay does not count as
            // the generator's.
            let late_ns = now - due.max(self.last_fire).min(now);
            let (node, duty) = duty_of(timer);
            tell(Due { node, duty, due, late_ns });
        }
        self.last_fire = now;
    }

    /// Returns the number of nodes that share the lane; 0 if timers decide, or if no node has a duty.
    pub(crate) fn round_len(&self, lane: usize) -> u32 {
        let is_on = matches!(self.order, Order::Once | Order::Rounds);
        self.rounds.get(lane).filter(|_| is_on).map_or(0, |round| round.nodes.len())
    }

    /// Returns the node and the duty that the lane performs next. Returns `None` if each node of the lane had its one
    /// duty.
    pub(crate) fn next(&mut self, lane: usize) -> Option<(u32, Duty)> {
        let Round { nodes, reads_owed } = self.rounds.get_mut(lane)?;
        if self.order == Order::Rounds {
            if nodes.peek().is_none() {
                nodes.restart();
            }
            if *reads_owed >= 1.0 {
                *reads_owed -= 1.0;
                return Some((nodes.peek()?, Duty::Read));
            }
        }
        Some((nodes.next_once()?, Duty::Renew))
    }

    /// Adds the reads that must follow a renewal that [`next`](Self::next) returned.
    pub(crate) fn renewed(&mut self, lane: usize) {
        if let Some(round) = self.rounds.get_mut(lane).filter(|_| self.order == Order::Rounds) {
            round.reads_owed += self.reads;
        }
    }

    /// Ends a duty. With timers, arms the duty's timer again, relative to its last due time.
    pub(crate) fn done(&mut self, flight: Flight) {
        match self.order {
            Order::Once => self.started += 1,
            Order::Timers { until } => {
                let duty = if flight.step == Step::Read { Duty::Read } else { Duty::Renew };
                if let Some(due) = self.due_after(duty, flight.due).filter(|&due| due < until) {
                    self.schedule.arm(timer_of(flight.node, duty), due);
                }
            }
            Order::Nothing | Order::Rounds => {}
        }
    }

    /// Returns when a duty that was due at `due` is due again. Returns `None` for a read if the run has no reads.
    fn due_after(&mut self, duty: Duty, due: u64) -> Option<u64> {
        let period = match duty {
            Duty::Read => self.read_period_ns?,
            Duty::Renew => self.period_ns,
        };
        Some(due + period + self.rng.u64(0..=period / JITTER_FRACTION))
    }
}

fn timer_of(node: u32, duty: Duty) -> u32 {
    node * 2 + u32::from(duty == Duty::Read)
}

fn duty_of(timer: u32) -> (u32, Duty) {
    (timer / 2, if timer.is_multiple_of(2) { Duty::Renew } else { Duty::Read })
}

/// Divisor of a period that gives its maximum jitter. A kubelet prolongs its renewal period at random by up to 4 %, a
/// 25th.
const JITTER_FRACTION: u64 = 25;

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    fn rota(flags: &str) -> Rota {
        let flags = format!("loadgen --nodes 5 --connections 2 --period 1s {flags}");
        Rota::new(&Args::try_parse_from(flags.split_whitespace()).expect("valid flags"))
    }

    fn flight(node: u32, step: Step, due: u64) -> Flight {
        Flight { step, ..crate::fleet::Fleet::begin_read(node, due) }
    }

    #[test]
    fn without_timers_each_lane_repeats_its_renewals_and_due_reads() {
        let mut rota = rota("--max --reads 0.5");
        assert_eq!(rota.round_len(0), 0);
        rota.begin_once();
        assert_eq!((rota.round_len(0), rota.round_len(1)), (3, 2));
        let once: Vec<_> = std::iter::from_fn(|| rota.next(0)).collect();
        assert_eq!(once, [(0, Duty::Renew), (2, Duty::Renew), (4, Duty::Renew)]);
        (0..5).for_each(|node| rota.done(flight(node, Step::Post, 0)));
        assert_eq!(rota.started, 5);
        rota.begin_load(0);
        let rounds: Vec<_> = (0..7)
            .filter_map(|_| {
                let next = rota.next(1)?;
                if next.1 == Duty::Renew {
                    rota.renewed(1);
                }
                Some(next)
            })
            .collect();
        let (renew, read) = (Duty::Renew, Duty::Read);
        assert_eq!(rounds, [(1, renew), (3, renew), (1, read), (1, renew), (3, renew), (1, read), (1, renew)]);
        assert_eq!(rota.next_due(7), 7);
    }

    #[test]
    fn a_timer_is_due_again_one_period_after_it_was_due() {
        let mut rota = rota("--reads 2");
        rota.begin_load(1_000);
        assert_eq!(rota.round_len(0), 0);
        let mut fired = Vec::new();
        rota.fire(1_000_001_000, |due| fired.push(due));
        assert_eq!(fired.iter().filter(|due| due.duty == Duty::Read).count(), 5);
        assert_eq!(fired.len(), 10);
        let Due { node, due, .. } = *fired.iter().find(|due| due.duty == Duty::Renew).expect("a renewal");
        rota.done(flight(node, Step::Put, due));
        let again = rota.next_due(3_000_000_000);
        assert!((due + 1_000_000_000..=due + 1_040_000_000).contains(&again), "{due} {again}");
        rota.end(again);
        assert_eq!((rota.next_due(3_000_000_000), rota.is_owed()), (3_000_000_000, false));
    }

    /// Goal: even if timers are checked late, each renewal that is due before the end of the load counts once per
    /// period, as performed or as abandoned. Method: the load ends at 4 s, and timers are not checked from 1 s to 5 s.
    /// If the test checks them again at 5 s (`looks_again`), the renewals due from 1 s to 4 s are performed late.
    /// Otherwise they are abandoned.
    #[test]
    fn requests_due_before_the_end_count_once_per_period() {
        const S: u64 = 1_000_000_000;
        for looks_again in [true, false] {
            let mut rota = rota("--reads 0");
            rota.begin_load(0);
            let mut told = Vec::new();
            rota.fire(S, |due| told.push(due));
            assert_eq!(told.len(), 5);
            rota.end(4 * S);
            assert!(!rota.is_owed(), "all are under way");
            let mut under_way = std::mem::take(&mut told);
            let mut dues: Vec<(u32, u64)> = Vec::new();
            while let Some(Due { node, due, .. }) = under_way.pop() {
                dues.push((node, due));
                rota.done(flight(node, Step::Put, due));
                if looks_again {
                    rota.fire(5 * S, |due| under_way.push(due));
                    assert!(!rota.is_owed());
                }
            }
            assert_eq!(rota.is_owed(), !looks_again);
            rota.abandon(5 * S, |node, duty, due| {
                assert_eq!(duty, Duty::Renew);
                dues.push((node, due));
            });
            assert!(!rota.is_owed());
            dues.sort_unstable();
            for node in 0..5 {
                let of_node: Vec<u64> = dues.iter().filter(|due| due.0 == node).map(|due| due.1).collect();
                assert!(of_node.windows(2).all(|pair| (S..=S + S / 25).contains(&(pair[1] - pair[0]))), "{of_node:?}");
                assert!(
                    of_node[0] < S && of_node.last().is_some_and(|last| (4 * S - S - S / 25..4 * S).contains(last))
                );
            }
        }
    }
}
