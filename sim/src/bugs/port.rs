//! A deliberate bug in the commands that the journal sends to its worker, the code that writes the store.

use super::Bug;
use crate::clients::{auditor, crud, election, kubelet};
use coordination_apiserver::journal::{Command, Event, Port};
use memchr::memmem;

/// Returns the number of Leases in a piece of a snapshot. Each Lease contains the name of its namespace once.
fn leases(piece: &[u8]) -> usize {
    let namespaces = [auditor::NAMESPACE, crud::NAMESPACE, election::NAMESPACE, kubelet::NAMESPACE];
    namespaces.iter().map(|name| memmem::find_iter(piece, name).count()).sum()
}

/// Wraps a port so that it has a deliberate bug.
#[must_use]
pub fn wrap(port: impl Port + 'static, bug: Option<Bug>) -> Box<dyn Port> {
    match bug {
        Some(Bug::SnapshotMissesChange) => Box::new(OldPieces { port, pieces: Vec::new() }),
        _ => Box::new(port),
    }
}

/// Replaces each piece of a snapshot by an earlier, different piece with the same number of Leases, if there is one. So
/// the snapshot lacks changes.
#[derive(Debug)]
struct OldPieces<P> {
    port: P,
    pieces: Vec<Vec<u8>>,
}

impl<P: Port> Port for OldPieces<P> {
    fn send(&mut self, mut command: Command) {
        if let Command::Commit(commit) = &mut command
            && let Some(piece) = &mut commit.piece
        {
            let count = leases(&piece.bytes);
            match self.pieces.iter().find(|old| leases(old) == count && **old != piece.bytes) {
                Some(old) => piece.bytes.clone_from(old),
                None => self.pieces.push(piece.bytes.clone()),
            }
        }
        self.port.send(command);
    }

    fn next(&mut self) -> Option<Event> {
        self.port.next()
    }
}
