//! The memory that reading a model may take.

use std::mem::size_of;

use crate::{Error, error::invalid};

/// Bounds on the models that are accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Bytes that reading the model, and the model itself, may take. More than twice the file's
    /// length and [`Limits::OVERHEAD`] is never taken.
    pub memory: u64,
    /// Levels of a tree below its root.
    pub depth: u32,
}

impl Limits {
    /// Bytes that a file of any length may take in addition to twice its length.
    pub const OVERHEAD: u64 = 1 << 20;
}

impl Default for Limits {
    /// Memory without another limit than the file's length, and trees of 4,096 levels.
    fn default() -> Self {
        Self { memory: u64::MAX, depth: 4096 }
    }
}

/// An account of the memory that is held while a model is read. Memory is charged before it is
/// allocated.
#[derive(Debug)]
pub struct Budget {
    held: u64,
    /// The bytes that the limits allow.
    limit: u64,
    /// The bytes that a file of this length may take.
    for_file: u64,
    depth: u32,
}

impl Budget {
    /// A budget for a file of `size` bytes.
    pub(crate) fn new(limits: &Limits, size: u64) -> Self {
        let for_file = size.saturating_mul(2).saturating_add(Limits::OVERHEAD);
        Self { held: 0, limit: limits.memory, for_file, depth: limits.depth }
    }

    /// A budget of `memory` bytes, for files of any length.
    pub fn of(memory: u64) -> Self {
        Self { held: 0, limit: memory, for_file: u64::MAX, depth: Limits::default().depth }
    }

    /// Bytes that are charged.
    pub fn held(&self) -> u64 {
        self.held
    }

    pub(crate) fn depth(&self) -> u32 {
        self.depth
    }

    /// Charges `count` elements of type `T`.
    ///
    /// # Errors
    /// [`Error::Memory`], and [`Error::Invalid`] if a file of this length may not take so much.
    pub fn charge<T>(&mut self, count: usize) -> Result<(), Error> {
        let needed = self.held.saturating_add(bytes::<T>(count));
        if needed > self.limit {
            return Err(Error::Memory { needed, limit: self.limit });
        }
        if needed > self.for_file {
            return Err(invalid("it needs more memory than twice its length"));
        }
        self.held = needed;
        Ok(())
    }

    /// Returns the charge of `count` elements of type `T`.
    pub fn release<T>(&mut self, count: usize) {
        self.held = self.held.saturating_sub(bytes::<T>(count));
    }

    /// Makes room for `count` further elements: exactly, if the vector is empty. Others grow by at
    /// least a half.
    ///
    /// # Errors
    /// As [`Self::charge`].
    pub fn reserve<T>(&mut self, vector: &mut Vec<T>, count: usize) -> Result<(), Error> {
        let free = vector.capacity() - vector.len();
        if count > free {
            let count = count.max(vector.len() / 2);
            self.charge::<T>(count - free)?;
            vector.reserve_exact(count);
        }
        Ok(())
    }

    /// Appends an element.
    ///
    /// # Errors
    /// As [`Self::charge`].
    pub fn push<T>(&mut self, vector: &mut Vec<T>, element: T) -> Result<(), Error> {
        if vector.len() == vector.capacity() {
            self.reserve(vector, if vector.is_empty() { 16 } else { 1 })?;
        }
        vector.push(element);
        Ok(())
    }

    /// Appends a text.
    ///
    /// # Errors
    /// As [`Self::charge`].
    pub(crate) fn push_text(&mut self, texts: &mut Vec<String>, text: String) -> Result<(), Error> {
        self.charge::<u8>(text.capacity())?;
        self.push(texts, text)
    }

    /// A vector of `count` times the same element.
    ///
    /// # Errors
    /// As [`Self::charge`].
    pub fn filled<T: Clone>(&mut self, element: T, count: usize) -> Result<Vec<T>, Error> {
        self.charge::<T>(count)?;
        Ok(vec![element; count])
    }
}

fn bytes<T>(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX).saturating_mul(size_of::<T>() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_beyond_the_limit_is_refused_before_it_is_allocated() {
        let limits = Limits { memory: 100, ..Limits::default() };
        let mut budget = Budget::new(&limits, 1 << 30);
        let mut vector = Vec::<u64>::new();
        budget.reserve(&mut vector, 12).expect("96 bytes");
        let error = budget.reserve(&mut vector, 13).expect_err("104 bytes");
        assert!(matches!(error, Error::Memory { needed: 104, limit: 100 }), "{error}");
        assert_eq!(vector.capacity(), 12);
        budget.release::<u64>(12);
        budget.charge::<u8>(100).expect("all is free again");
    }

    #[test]
    fn a_file_may_take_twice_its_length() {
        let mut budget = Budget::new(&Limits::default(), 50);
        budget.charge::<u8>((Limits::OVERHEAD + 100) as usize).expect("twice the file");
        assert!(matches!(budget.charge::<u8>(1), Err(Error::Invalid(_))));
    }
}
