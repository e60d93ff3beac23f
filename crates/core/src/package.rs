//! The place of a model in an image.

/// Where an image holds a model of one framework.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PackageLayout {
    /// The model's directory, relative to `/data`.
    pub directory: &'static str,
    /// A file that the model's directory must hold.
    pub file: &'static str,
    /// Bytes which that file may have.
    pub max_file: u64,
    /// The model may also be one level down, in the only directory whose name is a
    /// number.
    pub versioned: bool,
}
