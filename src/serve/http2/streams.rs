//! The request or response in progress on each stream.

use super::Http2;
use super::receive::{Kept, Unserved};
use crate::api::job::Job;
use crate::api::waiting::Waiting;
use crate::http2::{self, ErrorCode, StreamKey};
use crate::serve::Service;
use crate::watch::WatcherKey;
use bytes::Bytes;
use std::collections::BinaryHeap;

/// A stream with a request or response in progress.
#[derive(Debug)]
pub(super) struct StreamWork {
    pub(super) key: StreamKey,
    pub(super) work: Work,
}

#[derive(Debug)]
pub(super) enum Work {
    /// The request was served once, and now waits for an event, such as the outcome of its write.
    Waiting {
        waiting: Waiting,
        /// Size of the request in bytes. It counts towards the connection's limit of waiting bytes, even if head and
        /// body are not stored.
        bytes: usize,
        /// The head and body of the request, if the server may have to serve it again.
        kept: Option<Box<Kept>>,
    },
    /// The head of the request is received. Its body is incomplete.
    Receiving(http2::RequestHead, Box<Unserved>),
    /// The response is a job (made in steps, such as a list), and its head is not sent yet. The flag tells whether the
    /// method is HEAD.
    Begun(Box<Job>, bool),
    /// The head of the response is sent.
    Sending {
        /// The piece of the body that is not sent yet.
        unsent: Bytes,
        /// Source of the next piece of the body.
        source: Source,
        /// Start of the wait for a flow-control window, in ms; `None` if the response does not wait. The start moves to
        /// the present each time that enough bytes were sent.
        stalled_ms: Option<u64>,
        /// Number of body bytes sent since `stalled_ms`.
        gone_bytes: usize,
    },
}

/// Source of the rest of a response.
#[derive(Debug)]
pub(super) enum Source {
    /// No source: the unsent piece is the last of the response.
    End,
    /// The next steps of a job, such as a list.
    Job(Box<Job>),
    /// The events of a watch.
    Watch(WatcherKey),
}

impl Http2 {
    pub(super) fn put_sending(&mut self, key: StreamKey, unsent: Bytes, source: Source) {
        self.unsent_bytes += unsent.len();
        self.put(key, Work::Sending { unsent, source, stalled_ms: None, gone_bytes: 0 });
    }

    pub(super) fn put(&mut self, key: StreamKey, work: Work) {
        if self.streams.len() <= key.slot() {
            self.streams.resize_with(key.slot() + 1, || None);
        }
        if let Some(before) = self.streams[key.slot()].replace(StreamWork { key, work }) {
            self.let_go(before);
        }
    }

    /// Stores a job until its next step. The job's response has no head yet.
    pub(super) fn put_begun(&mut self, key: StreamKey, job: Box<Job>, head_only: bool) {
        if job.is_waiting() {
            self.waiting_jobs.push(key);
        } else {
            self.jobs.push_back(key);
        }
        self.put(key, Work::Begun(job, head_only));
        self.jobs_open += 1;
    }

    /// Removes and returns the stream's job if its response has no head yet.
    pub(super) fn take_begun(&mut self, key: StreamKey) -> Option<(Box<Job>, bool)> {
        if !matches!(work_mut(&mut self.streams, key), Some(Work::Begun(..))) {
            return None;
        }
        let Some(StreamWork { work: Work::Begun(job, head_only), .. }) = self.streams.get_mut(key.slot())?.take()
        else {
            return None;
        };
        self.jobs_open -= 1;
        Some((job, head_only))
    }

    /// Removes the request or response in progress on a stream.
    pub(super) fn forget(&mut self, key: StreamKey) {
        if let Some(stream) = self.streams.get_mut(key.slot()).and_then(|place| place.take_if(|s| s.key == key)) {
            self.let_go(stream);
        }
    }

    /// Subtracts a removed request or response from the connection's byte and job counts.
    fn let_go(&mut self, stream: StreamWork) {
        match stream.work {
            Work::Receiving(_, unserved) => {
                self.received_bytes -= unserved.bytes();
                self.skip_received();
            }
            Work::Begun(..) => self.jobs_open -= 1,
            Work::Sending { unsent, source, .. } => {
                self.unsent_bytes -= unsent.len();
                self.jobs_open -= usize::from(matches!(source, Source::Job(_)));
            }
            Work::Waiting { bytes, .. } => self.waiting_bytes -= bytes,
        }
    }

    /// Returns the streams for which `bytes_of` returns a size, the largest first. The function scans all streams. So a
    /// caller calls it only once, even if it must drop most streams after a limit has shrunk.
    pub(super) fn largest_first(
        &self,
        bytes_of: impl Fn(&StreamWork) -> Option<usize>,
    ) -> BinaryHeap<(usize, StreamKey)> {
        self.streams.iter().flatten().filter_map(|stream| Some((bytes_of(stream)?, stream.key))).collect()
    }

    /// Resets a stream that is past its deadline or whose response cannot be completed.
    pub(super) fn cancel(&mut self, key: StreamKey, service: &mut Service, output: &mut Vec<u8>) {
        self.connection.reset(key, ErrorCode::CANCEL, output);
        self.on_reset(key, service);
    }
}

/// Replaces a stream's unsent piece by `rest`, and updates `unsent_bytes`.
pub(super) fn keep_unsent(unsent: &mut Bytes, rest: Bytes, unsent_bytes: &mut usize) {
    *unsent_bytes = *unsent_bytes - unsent.len() + rest.len();
    *unsent = rest;
}

/// Returns the request or response in progress on a stream.
pub(super) fn work_mut(streams: &mut [Option<StreamWork>], key: StreamKey) -> Option<&mut Work> {
    let stream = streams.get_mut(key.slot())?.as_mut()?;
    (stream.key == key).then_some(&mut stream.work)
}
