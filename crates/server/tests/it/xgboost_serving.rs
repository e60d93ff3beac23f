//! The interface of XGBoost Serving.

mod canaries;
mod fixture;
mod guarded;
mod models;
mod predictions;
mod rest;
