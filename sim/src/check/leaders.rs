//! Checks of leader elections: a lock has one leader at a time.

use super::history::History;
use super::timeline::named;

/// Adds to `complaints` the periods in which a lock had two leaders.
pub(super) fn check(history: &History, complaints: &mut Vec<String>) {
    for (index, one) in history.terms.iter().enumerate() {
        for other in &history.terms[index + 1..] {
            let begun_us = one.from_us.max(other.from_us);
            let ended_us = one.until_us.min(other.until_us);
            if one.lock == other.lock && one.client != other.client && begun_us < ended_us {
                complaints.push(format!(
                    "{} had two leaders for {} ms: clients {} and {}",
                    named(&one.lock),
                    (ended_us - begun_us) / 1000,
                    one.client.0,
                    other.client.0
                ));
            }
        }
    }
}
