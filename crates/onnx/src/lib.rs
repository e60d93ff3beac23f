//! ONNX models, and the engine that runs them: the client of `outrigger onnx`, a process over ONNX
//! Runtime that answers the Open Inference Protocol on a Unix socket (`outrigger-onnxruntime`).
//!
//! A model is the file `model.onnx` in the image's directory `/data/onnx`, with its weights or with
//! files of weights beside it. Its inputs and outputs are those of its graph.

mod bound;
mod client;
mod engine;
mod file;
mod framework;
mod task;

pub use client::Config;
pub use engine::Engine;
pub use file::{FILE, OnnxError, read};
pub use framework::ONNX;
pub use outrigger_rpc::Endpoint;
