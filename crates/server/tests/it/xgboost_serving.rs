//! The interface of XGBoost Serving.

mod canaries;
pub(crate) mod fixture;
mod guarded;
mod memory;
mod models;
mod predictions;
mod refused;
mod rest;
mod secured;
