//! Test cases generated from bytes; the fuzz targets share them.

mod answers;
pub(crate) mod check;
mod entropy;
mod joined;
pub(crate) mod json;
mod lists;
mod models;
mod objects;
mod requests;
mod wire;
