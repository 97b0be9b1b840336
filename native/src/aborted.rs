//! The producers whose aborted transactions are open at a position (KIP-98); `record_set` skips their batches.

use std::collections::HashSet;

/// The producers whose batches must be skipped at the current position. The Fetch response's list of aborted
/// transactions and the abort markers in the log determine these producers.
#[derive(Debug, Default)]
pub struct AbortedTransactions {
    /// Transactions that have not begun yet, as (first offset, producer id), in descending order.
    pending: Vec<(i64, i64)>,
    skipping: HashSet<i64>,
}

impl AbortedTransactions {
    /// Takes a Fetch response's list of (producer id, first offset), in any order.
    pub fn new(list: impl IntoIterator<Item = (i64, i64)>) -> Self {
        let mut pending: Vec<_> =
            list.into_iter().map(|(producer_id, first_offset)| (first_offset, producer_id)).collect();
        pending.sort_unstable_by(|a, b| b.cmp(a));
        Self { pending, skipping: HashSet::new() }
    }

    /// Returns whether no aborted transaction is left, so that markers need not be parsed.
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty() && self.skipping.is_empty()
    }

    /// Begins the transactions whose first offset is at or before `last_offset`, the end of the next batch in order.
    pub fn advance(&mut self, last_offset: i64) {
        while let Some(&(first_offset, producer_id)) = self.pending.last() {
            if first_offset > last_offset {
                break;
            }
            self.skipping.insert(producer_id);
            self.pending.pop();
        }
    }

    /// Ends the producer's transaction, at its abort marker.
    pub fn end(&mut self, producer_id: i64) {
        self.skipping.remove(&producer_id);
    }

    pub fn contains(&self, producer_id: i64) -> bool {
        self.skipping.contains(&producer_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_producer_is_skipped_from_its_first_offset_to_its_marker() {
        let mut aborted = AbortedTransactions::new([(9, 30), (7, 10), (9, 5)]);
        aborted.advance(4);
        assert!(!aborted.contains(9) && !aborted.is_empty());
        aborted.advance(12);
        assert!(aborted.contains(9) && aborted.contains(7));
        aborted.end(9);
        assert!(!aborted.contains(9) && aborted.contains(7));
        aborted.advance(30);
        assert!(aborted.contains(9));
        aborted.end(9);
        assert!(!aborted.is_empty());
        aborted.end(7);
        assert!(aborted.is_empty());
    }
}
