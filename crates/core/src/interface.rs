//! A model's inputs and outputs, independent of its framework.

use std::{fmt, sync::Arc};

use crate::DType;

/// The tensors of one way to call a model, as declared by the model's own files or by its engine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Interface {
    /// The input tensors, sorted by name, without duplicates.
    pub inputs: Vec<TensorSpec>,
    /// The output tensors, sorted by name, without duplicates.
    pub outputs: Vec<TensorSpec>,
}

/// One input or output of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorSpec {
    /// The name used in calls.
    pub name: Arc<str>,
    /// The type of its elements.
    pub dtype: ElementType,
    /// The allowed sizes.
    pub shape: Shape,
    /// True for an input with a default value in the model: a call may leave it out. Always false
    /// for outputs.
    pub optional: bool,
    /// The names of the positions in the last dimension, in order; empty if the model has none.
    pub columns: Arc<[Arc<str>]>,
    /// True if the names have an underscore for each blank, as LightGBM writes them.
    pub has_no_blanks: bool,
    /// The categories of columns, in the order of their codes.
    pub categories: Arc<[Categories]>,
}

/// The categories that a model's file has for a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Categories {
    /// The column; None if the file has no more than the order of the columns with categories.
    pub column: Option<usize>,
    /// The categories as texts, in the order of their codes.
    pub words: Vec<String>,
}

/// The type of a tensor's elements, as a model declares it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ElementType {
    /// A type that Outrigger can send and receive.
    Known(DType),
    /// A type that Outrigger cannot send or receive, by its name, such as `uint8`.
    Unsupported(Arc<str>),
    /// No dense tensor: sparse, ragged, or several tensors under one name.
    Composite,
}

/// The sizes a tensor may have, as a model declares them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shape {
    /// Any number of dimensions of any size.
    Any,
    /// The sizes, outermost first; `None` for a dimension of any size. Empty for a scalar.
    Sizes(Vec<Option<u64>>),
}

impl Interface {
    /// Creates an interface from these tensors and sorts them by name.
    pub fn new(mut inputs: Vec<TensorSpec>, mut outputs: Vec<TensorSpec>) -> Self {
        inputs.sort_by(|a, b| a.name.cmp(&b.name));
        outputs.sort_by(|a, b| a.name.cmp(&b.name));
        Self { inputs, outputs }
    }

    /// The input called `name`.
    pub fn input(&self, name: &str) -> Option<&TensorSpec> {
        self.inputs.iter().find(|spec| &*spec.name == name)
    }

    /// The output called `name`.
    pub fn output(&self, name: &str) -> Option<&TensorSpec> {
        self.outputs.iter().find(|spec| &*spec.name == name)
    }
}

impl TensorSpec {
    /// Creates a tensor that every call must include.
    pub fn new(name: impl Into<Arc<str>>, dtype: ElementType, shape: Shape) -> Self {
        let columns = Arc::default();
        let categories = Arc::default();
        let optional = false;
        let has_no_blanks = false;
        Self { name: name.into(), dtype, shape, optional, columns, has_no_blanks, categories }
    }
}

impl From<DType> for ElementType {
    fn from(dtype: DType) -> Self {
        Self::Known(dtype)
    }
}

impl Shape {
    /// A shape with these sizes; a negative one stands for any size.
    pub fn of(sizes: &[i64]) -> Self {
        Self::Sizes(sizes.iter().map(|size| u64::try_from(*size).ok()).collect())
    }

    /// Whether a tensor of these sizes has this shape.
    pub fn admits(&self, sizes: &[i64]) -> bool {
        let Self::Sizes(declared) = self else { return true };
        let fits = |(declared, size): (&Option<u64>, &i64)| {
            declared.is_none_or(|declared| u64::try_from(*size) == Ok(declared))
        };
        declared.len() == sizes.len() && declared.iter().zip(sizes).all(fits)
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(dtype) => dtype.fmt(f),
            Self::Unsupported(name) => f.write_str(name),
            Self::Composite => f.write_str("sparse or composite"),
        }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Sizes(sizes) = self else { return f.write_str("any shape") };
        let size = |size: &Option<u64>| size.map_or_else(|| "?".to_owned(), |it| it.to_string());
        write!(f, "[{}]", sizes.iter().map(size).collect::<Vec<_>>().join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_are_found_by_name_and_sorted() {
        let spec = |name: &str| TensorSpec::new(name, DType::Float32.into(), Shape::Any);
        let interface = Interface::new(vec![spec("b"), spec("a")], vec![spec("c")]);
        assert_eq!(&*interface.inputs[0].name, "a");
        assert_eq!(interface.input("b"), Some(&spec("b")));
        assert_eq!(interface.input("c"), None);
        assert_eq!(interface.output("c"), Some(&spec("c")));
    }

    #[test]
    fn a_shape_admits_its_sizes_and_says_them() {
        let shape = Shape::of(&[-1, 3]);
        assert_eq!(shape.to_string(), "[?, 3]");
        assert!(shape.admits(&[7, 3]) && shape.admits(&[0, 3]));
        assert!(!shape.admits(&[7, 4]) && !shape.admits(&[7]) && !shape.admits(&[7, 3, 1]));
        assert!(!Shape::of(&[3]).admits(&[-1]));
        assert!(Shape::Any.admits(&[1, 2, 3]) && Shape::Any.admits(&[]));
        assert_eq!(Shape::Any.to_string(), "any shape");
    }
}
