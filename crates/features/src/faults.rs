//! The faults of a call that are reported together.

use outrigger_core::Failure;

use crate::{place::Place, plan::BadFeature};

/// The most faults that are reported of a call.
pub(crate) const MOST: usize = 10;

/// The faults of a call in the order of its requests, as one failure: the reason and the message of
/// the first, and the fields of all.
#[derive(Debug)]
pub(crate) struct Faults {
    failure: Option<Box<Failure>>,
    room: usize,
}

impl Default for Faults {
    fn default() -> Self {
        Self { failure: None, room: MOST }
    }
}

impl Faults {
    /// The number of further faults that are reported.
    pub(crate) fn room(&self) -> usize {
        self.room
    }

    /// True if there is no fault yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.failure.is_none()
    }

    /// Adds faults of features, as many as are reported.
    pub(crate) fn extend(&mut self, faults: impl IntoIterator<Item = Failure>) {
        for fault in faults.into_iter().take(self.room) {
            self.room -= 1;
            match &mut self.failure {
                Some(failure) => failure.violations.extend(fault.violations),
                None => self.failure = Some(Box::new(fault)),
            }
        }
    }

    /// Adds the faults of a treatment at its position and with its id; `path` makes the path in the
    /// request of a feature.
    pub(crate) fn add_treatment(
        &mut self,
        bad: Vec<BadFeature<'_>>,
        (index, id): (usize, &[u8]),
        path: impl Fn(&str) -> String,
        place: &Place,
    ) {
        let faults = bad.into_iter().map(|bad| bad.of_treatment(index, id, &path, place));
        self.extend(faults);
    }

    /// Ends the list with a failure that is no fault of a feature. It is reported only if there is
    /// no fault before it.
    pub(crate) fn end(&mut self, failure: Failure) {
        self.failure.get_or_insert_with(|| Box::new(failure));
        self.room = 0;
    }

    /// True if the call has no fault.
    ///
    /// # Errors
    /// Its faults.
    pub(crate) fn check(&mut self) -> Result<(), Failure> {
        self.failure.take().map_or(Ok(()), |failure| Err(*failure))
    }
}

#[cfg(test)]
mod tests;
