//! The place of a model in an image.

/// The place in an image that holds a model of one framework.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PackageLayout {
    /// The model's directory, relative to `/data`.
    pub directory: &'static str,
    /// A file that the model's directory must hold.
    pub file: &'static str,
    /// The largest size allowed for that file, in bytes.
    pub max_file: u64,
    /// The model may also be one level down, in the only directory whose name is a
    /// number.
    pub versioned: bool,
}
