//! Counts the objects of a list that arrives in pieces. The list is never whole in memory.

use memchr::memmem::Finder;

/// Returns the number of objects in this piece of a JSON list. An object belongs to the piece in which its first bytes
/// ([`ITEM`]) are complete. Pieces may be cut anywhere. `tail` is the end of the previous pieces, and is updated for
/// the next piece.
pub(super) fn items_in(tail: &mut Vec<u8>, piece: &[u8]) -> u64 {
    let finder = Finder::new(ITEM);
    let keep = ITEM.len() - 1;
    tail.extend_from_slice(piece.get(..keep).unwrap_or(piece));
    let mut count = finder.find_iter(tail).count();
    if piece.len() > keep {
        count += finder.find_iter(piece).count();
        tail.clear();
        tail.extend_from_slice(piece.get(piece.len() - keep..).unwrap_or_default());
    } else {
        // The tail is shorter than [`ITEM`], so no object counts twice.
        let from = tail.len().saturating_sub(keep);
        tail.drain(..from);
    }
    count as u64
}

/// The bytes at the start of each object in a list. They occur nowhere else in the list.
const ITEM: &[u8] = b"{\"metadata\":{\"name\":";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_items_are_counted_once_for_any_chunk_boundaries() {
        let item = r#"{"metadata":{"name":"node-1","managedFields":[{"f:metadata":{}}]},"spec":{}}"#;
        let list =
            format!(r#"{{"kind":"LeaseList","metadata":{{"resourceVersion":"1"}},"items":[{item},{item},{item}]}}"#);
        for size in 1..list.len() {
            let mut tail = Vec::new();
            let count: u64 = list.as_bytes().chunks(size).map(|piece| items_in(&mut tail, piece)).sum();
            assert_eq!(count, 3, "in pieces of {size}");
        }
    }
}
