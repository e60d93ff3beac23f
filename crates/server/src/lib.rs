//! `outrigger serve`: configuration, the gRPC and HTTP surfaces, health, metrics, and the wiring of
//! the parts.
//!
//! [`run()`] is the whole life of the process; [`start`] starts a server within a process that has
//! other work too, such as a test.

mod admission;
mod audit;
mod auth;
mod call;
mod caller;
mod canary_views;
mod compression;
pub mod config;
mod cpus;
mod error;
mod explain;
mod failure;
mod file_error;
mod front;
mod grpc;
mod guard;
mod habit;
mod health;
mod heavy;
mod held;
mod http;
mod limits;
mod listen;
mod live;
mod logs;
pub mod metrics;
mod oip;
mod openapi;
mod page;
mod predict;
mod priority;
mod reload;
mod request_limits;
mod routing;
mod run;
mod runtimes;
mod security;
mod sending;
mod served;
mod spare;
mod statistics;
mod supervise;
mod tls;
mod trial;
mod turn;
mod unknown_names;
mod validation;
mod views;
mod wiring;
mod xgboost_serving;

pub use config::{
    Config, Kind, Kinds, OperatorFile,
    kinds::{Context, Make, Settings},
};
pub use error::Error;
pub use failure::{DOMAIN, reference_markdown as errors_markdown};
pub use file_error::FileError;
pub use logs::filter as log_filter;
pub use openapi::document as openapi_document;
pub use outrigger_core::causes;
pub use outrigger_net::lower_priority;
pub use outrigger_ui::Reload;
pub use run::{Running, run, start, start_reloading};
pub use wiring::Addresses;
