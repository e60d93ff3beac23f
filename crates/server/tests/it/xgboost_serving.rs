//! The interface of XGBoost Serving.

mod canaries;
pub(crate) mod fixture;
mod guarded;
mod models;
mod predictions;
mod rest;
mod secured;
