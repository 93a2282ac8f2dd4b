//! Counts the objects of a list that arrives in pieces. The list is never whole in memory.

use memchr::memmem::Finder;

/// Counts the objects that begin in the next piece of a list in JSON. Pieces may be cut anywhere; `tail` is kept
/// between them.
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
        // The tail is shorter than the start of an object, so no object counts twice.
        let from = tail.len().saturating_sub(keep);
        tail.drain(..from);
    }
    count as u64
}

/// Start of an object in a list, which occurs nowhere else in the list.
const ITEM: &[u8] = b"{\"metadata\":{\"name\":";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_count_once_however_the_list_is_cut() {
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
