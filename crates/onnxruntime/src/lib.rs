//! The engine for ONNX models: a process that runs them with ONNX Runtime, and answers the Open
//! Inference Protocol on a Unix socket. `outrigger-onnx` is its client.
//!
//! A model is the file `model.onnx` in a directory, with its weights or with files of weights beside
//! it. A file that names weights elsewhere, or operators that ONNX Runtime does not have, is refused
//! ([`outrigger_onnx::read`]): neither paths nor libraries come from a model.
//!
//! ONNX Runtime is opened at run time ([`library`]), as the Python package `onnxruntime` has it.

pub mod library;
mod models;
mod serve;
mod service;
mod session;
mod value;

pub use serve::{Error, Options, run};
pub use session::{Model, ModelError};
