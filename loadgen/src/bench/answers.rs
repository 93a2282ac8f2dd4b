//! The meaning of responses in a bench: checks of the Leases in them, and the requests that must follow.
//!
//! This module owns the state of the Leases, the number of finished requests of the phase, and the counts. It uses
//! neither connections nor the clock. It chooses a request only if a response makes that request necessary.

use super::args::{BenchArgs, Verb};
use super::lane::{Ask, Notes, Tag};
use super::lease::{self, Leases};
use super::list::items_in;
use super::tally::Tally;
use crate::error_kind::{ErrorKind, excerpt};
use crate::http::Told;
use crate::node;
use crate::operation::Operation;

/// What the responses so far have shown, and how many requests are finished.
#[derive(Debug)]
pub(super) struct Work {
    verb: Verb,
    pub(super) leases: Leases,
    pub(super) tally: Tally,
    /// Number of finished requests of this phase. A request does not count if another request for the same Lease must
    /// follow.
    done: u32,
    /// Number of renewals that failed or were lost. A failed renewal causes no event, so it does not count towards the
    /// limit `--lag`.
    pub(super) failed_writes: u64,
    /// Number of successful responses to lists and to deletions of the collection.
    bulk_answers: u32,
    /// resourceVersion from which watches start; 0 until a list has shown it.
    pub(super) watch_from: u64,
}

impl Work {
    /// Creates the state before the first request.
    pub(super) fn new(args: &BenchArgs) -> Self {
        let mut leases = Leases::new(args.media_type(), &args.namespace, args.leases);
        if args.verb == Verb::Echo {
            leases.make(args.body_bytes() as usize);
        }
        Self { verb: args.verb, leases, tally: Tally::new(), done: 0, failed_writes: 0, bulk_answers: 0, watch_from: 0 }
    }

    /// Returns the number of finished requests of this phase.
    pub(super) fn done(&self) -> u32 {
        self.done
    }

    /// Sets the number of finished requests to 0, at the start of a phase.
    pub(super) fn restart(&mut self) {
        self.done = 0;
    }

    /// Handles an outcome of the request with this tag. A request that must follow is added to `notes`.
    pub(super) fn handle(&mut self, tag: Tag, told: Told<'_>, notes: &mut Notes, now: u64) {
        let Tag { lease, ask, asked } = tag;
        let operation = self.operation(ask);
        let (status, body, end) = match told {
            Told::Answer { status, body, end } => (status, body, end),
            Told::Unserved | Told::Refused => return self.lose(tag, ErrorKind::Refused, None),
            Told::Lost { kind, why } => return self.lose(tag, kind, Some(why)),
        };
        if matches!(ask, Ask::List | Ask::DeleteCollection) && status == 200 {
            self.tally.list_bytes += body.len() as u64;
            self.tally.list_items += items_in(&mut notes.tail, body);
        }
        if !end {
            return;
        }
        self.leases.end(lease);
        let outcome = match (ask, status) {
            (Ask::Get, 404) => {
                notes.is_fresh = true;
                return notes.follow.push((lease, Ask::Post));
            }
            // The Lease exists already: read it.
            (Ask::Post, 409) if self.verb != Verb::Create => {
                notes.is_fresh = false;
                return notes.follow.push((lease, Ask::Get));
            }
            (Ask::Put, 409) => {
                // No other client writes, so a conflict is an error. A GET reads the Lease again, since the next PUT
                // needs its present version.
                self.doubt(tag);
                self.tally.recorder.failed(operation, ErrorKind::Status(409), || node::name_of(lease));
                return notes.follow.push((lease, Ask::Get));
            }
            (Ask::Get, 200) | (Ask::Post, 201) => self.leases.learn(lease, body),
            (Ask::Put, 200) if self.verb == Verb::Echo => self.leases.echoed(lease, body),
            (Ask::Put, 200) => self.leases.written(lease, body),
            (Ask::Read, 200) => self.leases.read(lease, body),
            (Ask::List | Ask::DeleteCollection, 200) => {
                self.bulk_answers += 1;
                Ok(())
            }
            (Ask::Version, 200) => lease::version_in(body).map(|version| self.watch_from = version),
            _ => {
                self.done += 1;
                self.doubt(tag);
                let words = || excerpt(body).into_owned();
                return self.tally.recorder.failed(operation, ErrorKind::Status(status), words);
            }
        };
        if let Err(wrong) = outcome {
            self.tally.violated(format!("{}: {wrong:?} after {ask:?}", node::name_of(lease)));
        }
        self.done += 1;
        self.tally.recorder.answered(operation, asked, now);
    }

    /// Returns the operation under which the results count a request.
    fn operation(&self, ask: Ask) -> Operation {
        match ask {
            Ask::Get | Ask::Read => Operation::Read,
            Ask::Post => Operation::Create,
            Ask::Put if self.verb == Verb::Echo => Operation::Echo,
            Ask::Put => Operation::Renew,
            Ask::Version | Ask::List => Operation::List,
            Ask::DeleteCollection => Operation::DeleteCollection,
        }
    }

    /// Handles a request that is still in flight at the end of the run.
    #[cold]
    pub(super) fn abandon(&mut self, tag: Tag) {
        let why = match tag.ask {
            Ask::Version | Ask::List | Ask::DeleteCollection => format!("{:?}", tag.ask),
            Ask::Get | Ask::Post | Ask::Put | Ask::Read => format!("{:?} of {}", tag.ask, node::name_of(tag.lease)),
        };
        self.lose(tag, ErrorKind::Unanswered, Some(&why));
    }

    /// Counts a request that gets no response as an error.
    #[cold]
    fn lose(&mut self, tag: Tag, kind: ErrorKind, why: Option<&str>) {
        let lease = tag.lease;
        let operation = self.operation(tag.ask);
        self.leases.end(lease);
        self.doubt(tag);
        self.done += 1;
        self.tally.recorder.failed(operation, kind, || why.map_or_else(|| node::name_of(lease), str::to_owned));
    }

    /// Records that a request has failed or was lost. The `renewTime` in events of its Lease is then not checked until
    /// the next acknowledged renewal.
    #[cold]
    fn doubt(&mut self, tag: Tag) {
        self.leases.doubt(tag.lease);
        self.failed_writes += u64::from(tag.ask == Ask::Put);
    }

    /// Checks that every list had all Leases, and that a deletion of the collection deleted all Leases. The response to
    /// such a deletion contains the deleted Leases.
    pub(super) fn check_lists(&mut self, args: &BenchArgs) {
        let (answers, items) = (u64::from(self.bulk_answers), self.tally.list_items);
        if self.verb.is_bulk() && !args.protobuf && items != answers * u64::from(args.leases) {
            self.tally.violated(format!("{items} objects in {answers} answers of {}", args.leases));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::args::tests::parse;

    #[test]
    fn a_wrong_number_of_listed_or_deleted_objects_is_a_violation() {
        for (words, items, is_fine) in [
            ("list", 20, true),
            ("list", 19, false),
            ("delete-collection", 20, true),
            ("delete-collection", 0, false),
            ("delete-collection --protobuf", 0, true),
            ("read", 0, true),
        ] {
            let args = parse(&format!("{words} --leases 20")).expect("valid");
            let mut work = Work::new(&args);
            (work.bulk_answers, work.tally.list_items) = (1, items);
            work.check_lists(&args);
            assert_eq!(work.tally.violations() == 0, is_fine, "{words}: {items}");
        }
    }
}
