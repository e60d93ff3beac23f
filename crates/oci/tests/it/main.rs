//! The client against a scripted registry, the real docker-registry, and
//! layout directories.

#![allow(clippy::unwrap_used)] // tests, helpers included

mod auth;
mod blob;
mod cosign;
mod docker;
mod identity;
mod image;
mod layout;
mod peer;
mod push;
mod signatures;
mod support;
mod trust;
