//! The engine whose models run on servers of the Open Inference Protocol: Triton, MLServer, KServe
//! or a hosted endpoint. metadata.json names the model on the server, and the configuration alone the
//! servers' addresses. A package may carry the model's directory, which is then published to the
//! servers' repository.

mod bound;
mod code;
mod engine;
mod fleet;
mod framework;
mod interface;
mod keeper;
mod names;
mod repository;
mod requirements;
mod servers;
mod task;
mod versions;

pub use self::{
    engine::{Engine, Settings},
    framework::OIP,
};
