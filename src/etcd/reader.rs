//! Reads the store that replicas keep in etcd, for the command `inspect`. All reads see etcd at one revision, and
//! nothing is written.

use super::background::LocalRuntime;
use super::client::{Client, Failure};
use super::config::Config;
use super::keys::Keys;
use super::load::{check_count, check_format, entry, journal, one, snapshots};
use super::messages::KeyValue;
use crate::engine::{Engine, EngineError, Entry, Position, SnapshotId, Write, entries_after};
use crate::journal::base_end;
use std::io;

/// A store in etcd at one revision.
#[derive(Debug)]
pub struct EtcdReader {
    client: Client,
    keys: Keys,
    runtime: LocalRuntime,
    /// Revision of all reads.
    revision: i64,
    /// Entries of the journal, in order; `None` before the entries are read.
    entries: Option<Vec<Entry>>,
}

impl EtcdReader {
    /// Connects to etcd, and selects the newest revision for all reads.
    ///
    /// # Errors
    /// [`EngineError`] if etcd does not answer within [`Config::patience`], or if the keys belong to another product.
    pub fn open(config: Config) -> Result<Self, EngineError> {
        let runtime = LocalRuntime::new()?;
        let keys = Keys::new(&config.prefix);
        let (client, revision) = runtime.block_on(async {
            let client = Client::new(config)?;
            check_format(&client, &keys).await?;
            let read = client.range(one(keys.format(), 0)).await;
            let read = read.map_err(|failure| failure.into_error(client.config()))?;
            Ok::<_, EngineError>((client, read.header.map_or(0, |header| header.revision)))
        })?;
        Ok(Self { client, keys, runtime, revision, entries: None })
    }

    fn wait<T>(&self, read: impl Future<Output = Result<T, Failure>>) -> Result<T, EngineError> {
        self.runtime.block_on(read).map_err(|failure| failure.into_error(self.client.config()))
    }

    fn read(&self, key: Vec<u8>) -> Result<Option<KeyValue>, EngineError> {
        Ok(self.wait(self.client.range(one(key, self.revision)))?.kvs.pop())
    }

    fn value(&self, key: Vec<u8>) -> Result<Option<Vec<u8>>, EngineError> {
        Ok(self.read(key)?.map(|kv| kv.value))
    }

    /// Checks that no entry of the journal is missing, as a replica does at startup. Without a manifest, the number of
    /// deleted entries is unknown, so the check passes.
    fn check_count(&self) -> Result<(), EngineError> {
        let Some(manifest) = self.value(self.keys.manifest())? else { return Ok(()) };
        let head = self.read(self.keys.head())?.unwrap_or_default();
        let positions = self.entries.iter().flatten().map(|entry| entry.position);
        check_count(self.client.config(), base_end(&manifest), positions, head.version.cast_unsigned())
    }
}

impl Engine for EtcdReader {
    fn manifest(&mut self) -> Result<Option<Vec<u8>>, EngineError> {
        self.value(self.keys.manifest())
    }

    fn chunk(&mut self, snapshot: SnapshotId, index: u32) -> Result<Option<Vec<u8>>, EngineError> {
        self.value(self.keys.chunk(snapshot, index))
    }

    fn snapshots(&mut self) -> Result<Vec<SnapshotId>, EngineError> {
        self.wait(snapshots(&self.client, &self.keys, self.revision))
    }

    fn entries(&mut self, after: Position, bytes_max: usize) -> Result<Vec<Entry>, EngineError> {
        if self.entries.is_none() {
            let kvs = self.wait(journal(&self.client, &self.keys, self.revision))?;
            self.entries = Some(kvs.into_iter().map(entry).collect());
        }
        let found = entries_after(self.entries.as_deref().unwrap_or_default(), after, bytes_max);
        if found.is_empty() {
            self.check_count()?;
        }
        Ok(found)
    }

    fn commit(&mut self, _: Vec<Write>, _: &mut dyn FnMut(Entry)) -> Result<(), EngineError> {
        let cause = io::ErrorKind::ReadOnlyFilesystem.into();
        Err(EngineError::Io { what: "cannot write what is only read".to_owned(), cause })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_failed_opening_names_the_reason() {
        let endpoints = vec!["http://127.0.0.1:1".to_owned()];
        let config = Config { endpoints, patience: Some(Duration::from_millis(200)), ..Config::default() };
        let error = EtcdReader::open(config).expect_err("no etcd").to_string();
        assert!(error.starts_with("cannot reach etcd at http://127.0.0.1:1") && error.contains("refused"), "{error}");
    }
}
