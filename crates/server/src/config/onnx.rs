//! The settings of engines of the kind `onnx`.

use std::path::PathBuf;

use super::{Period, section::section};

section! {
    /// An engine of the kind `onnx`: `outrigger onnx`, over ONNX Runtime (docs/onnx.md).
    Onnx {
        /// The address of its socket: `unix:/path/of/socket`.
        endpoint: String = "unix:/run/outrigger/onnx.sock";
        /// The model store's path in the engine's file system, if it differs from `store.path`.
        store_path: Option<PathBuf> = "";
        /// HTTP/2 connections to it; there is at least one for each serving thread.
        connections: u32 = "2";
        /// The maximum number of concurrent calls to it, of which one version has at most half; further
        /// calls wait, and are answered OVERLOADED if they still wait at their deadline. Calls whose
        /// callers have given up count until the engine has ended them.
        max_in_flight: u32 = "128";
        /// The time within which it must load a model.
        load_timeout: Period = "10m";
    }
}
