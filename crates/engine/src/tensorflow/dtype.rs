//! Element types by their number in `tensorflow.DataType`.

use std::fmt;

/// An element type. It can hold any number; [`DType::size`] returns `None` for unknown
/// types.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DType(pub i32);

impl DType {
    /// `DT_FLOAT`
    pub const FLOAT: Self = Self(1);
    /// `DT_INT32`
    pub const INT32: Self = Self(3);
    /// `DT_STRING`
    pub const STRING: Self = Self(7);

    /// Size in bytes of an element whose value is plain bytes. `None` for strings,
    /// resources and unknown types.
    pub const fn size(self) -> Option<usize> {
        match self.0 {
            4 | 6 | 10 | 11 | 12 | 24..=28 => Some(1),
            5 | 14..=17 | 19 => Some(2),
            1 | 3 | 13 | 22 => Some(4),
            2 | 8 | 9 | 23 => Some(8),
            18 => Some(16),
            _ => None,
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "dtype {}", self.0)
    }
}
