//! Fakes, builders and fixtures for tests.

pub mod engine;
pub mod layers;
pub mod registry;
pub mod saved_model;
