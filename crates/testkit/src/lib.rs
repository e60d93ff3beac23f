//! Fakes, builders and fixtures for tests.
