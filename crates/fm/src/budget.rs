//! The memory that reading a model may take.

use crate::Error;

/// An account of the memory that is held while a model is read. Memory is charged before it is
/// allocated.
#[derive(Debug)]
pub(crate) struct Budget {
    held: u64,
    limit: u64,
}

impl Budget {
    /// An account with a limit in bytes.
    pub(crate) fn new(limit: u64) -> Self {
        Self { held: 0, limit }
    }

    /// Bytes that are charged.
    #[cfg(test)]
    pub(crate) fn held(&self) -> u64 {
        self.held
    }

    /// Charges `count` elements of type `T`.
    pub(crate) fn charge<T>(&mut self, count: usize) -> Result<(), Error> {
        let needed = self.held.saturating_add(bytes::<T>(count));
        if needed > self.limit {
            return Err(Error::Memory { needed, limit: self.limit });
        }
        self.held = needed;
        Ok(())
    }

    /// Returns the charge of `count` elements of type `T`.
    pub(crate) fn release<T>(&mut self, count: usize) {
        self.held = self.held.saturating_sub(bytes::<T>(count));
    }

    /// Makes room for `count` further elements. A vector grows by at least a half. While it is
    /// moved, both its old and its new place are charged.
    pub(crate) fn reserve<T>(&mut self, vector: &mut Vec<T>, count: usize) -> Result<(), Error> {
        let old = vector.capacity();
        if count > old - vector.len() {
            let added = count.max(vector.len() / 2).max(16);
            self.charge::<T>(vector.len().saturating_add(added))?;
            vector.reserve_exact(added);
            self.release::<T>(old);
        }
        Ok(())
    }

    /// Appends an element.
    pub(crate) fn push<T>(&mut self, vector: &mut Vec<T>, element: T) -> Result<(), Error> {
        self.reserve(vector, 1)?;
        vector.push(element);
        Ok(())
    }

    /// A vector of `count` times the same element.
    pub(crate) fn filled<T: Clone>(&mut self, element: T, count: usize) -> Result<Vec<T>, Error> {
        self.charge::<T>(count)?;
        Ok(vec![element; count])
    }
}

fn bytes<T>(count: usize) -> u64 {
    (count as u64).saturating_mul(size_of::<T>() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_beyond_the_limit_is_refused_before_it_is_allocated() {
        let mut budget = Budget::new(300);
        let mut vector = Vec::<u64>::new();
        budget.reserve(&mut vector, 16).expect("128 bytes");
        vector.resize(16, 0);
        // Moved to a place of 256 bytes, while the old place is held.
        let error = budget.push(&mut vector, 1).expect_err("384 bytes");
        assert!(matches!(error, Error::Memory { needed: 384, limit: 300 }), "{error:?}");
        assert_eq!(vector.capacity(), 16);
        assert_eq!(budget.held(), 128);
        assert!(budget.charge::<u64>(usize::MAX).is_err());
        budget.release::<u64>(16);
        assert_eq!(budget.held(), 0);
    }
}
