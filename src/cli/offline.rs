//! The flags of the commands that work on a store while no server runs.

use super::checks::{check_files, check_folder};
use super::etcd::EtcdArgs;
use clap::ValueEnum;
use std::path::PathBuf;

/// Flags of `inspect`.
#[derive(Clone, Debug, clap::Args)]
pub struct InspectArgs {
    /// Folder of the store.
    ///
    /// [default: coordination-apiserver/data in the user's state folder, $XDG_STATE_HOME or ~/.local/state]
    #[arg(long, value_name = "DIR", conflicts_with = "etcd_servers")]
    pub data_dir: Option<PathBuf>,

    /// The etcd to read in place of a folder.
    #[command(flatten)]
    pub etcd: EtcdArgs,

    /// Print each change of the journal, one JSON object a line, instead of a summary of the store.
    #[arg(long)]
    pub changes: bool,
}

/// Flags of `migrate-storage`.
#[derive(Clone, Debug, clap::Args)]
pub struct MigrateArgs {
    /// Storage that has the Leases.
    #[arg(long, value_name = "KIND", value_enum)]
    pub from: DurableKind,

    /// Storage to which the Leases are copied. Its store must be new: no server has used it.
    #[arg(long, value_name = "KIND", value_enum)]
    pub to: DurableKind,

    /// Folder of the store on disk.
    ///
    /// [default: coordination-apiserver/data in the user's state folder, $XDG_STATE_HOME or ~/.local/state]
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,

    /// Access to etcd.
    #[command(flatten)]
    pub etcd: EtcdArgs,
}

/// A store that outlives its servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DurableKind {
    /// In a data folder.
    Disk,
    /// In etcd.
    Etcd,
}

impl InspectArgs {
    /// Checks the flags beyond clap's rules.
    ///
    /// # Errors
    /// The first error.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.etcd.etcd_servers.is_empty() && self.etcd.is_used() {
            return Err("the flags --etcd-... need --etcd-servers".into());
        }
        check_folder("--data-dir", self.data_dir.as_deref())?;
        check_files(&self.etcd.named_files().collect::<Vec<_>>())?;
        self.etcd.check()
    }
}

impl MigrateArgs {
    /// Checks the flags beyond clap's rules.
    ///
    /// # Errors
    /// The first error.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.from == self.to {
            return Err("--from and --to are the same".into());
        }
        if self.etcd.etcd_servers.is_empty() {
            return Err("migrate-storage needs --etcd-servers".into());
        }
        check_folder("--data-dir", self.data_dir.as_deref())?;
        check_files(&self.etcd.named_files().collect::<Vec<_>>())?;
        self.etcd.check()
    }
}
