//! A client of servers that speak the Open Inference Protocol: Triton, MLServer, KServe, and
//! hosted endpoints of the same protocol.
//!
//! The decisions after a failure are values without I/O, which take the time as a
//! [`outrigger_core::Moment`]: [`Class`] sorts failures, [`Attempts`] decides on the next attempt
//! of one message, [`RetryBudget`] bounds the retries of all, [`Ejection`] withdraws a host that
//! fails its calls, and a [`Limiter`] bounds the calls that a host has in flight.

mod client;
mod config;
mod control;
mod dial;
mod failure;
mod grpc;
mod host;
mod hosts;
mod message;
mod parts;
mod plain;
mod policy;
mod rest;
mod room;
mod rotation;

pub use self::policy::{
    Aimd, Attempts, Backoff, BudgetSettings, Class, Cut, Ejection, EjectionSettings, Form, Forms,
    Limiter, Next, Outcome, Place, RetryBudget, Sample, class_of_code, class_of_status,
};
pub use self::{
    client::Client,
    config::{Config, HostConfig, InvalidConfig},
    control::ModelRef,
    failure::{Failure, Status},
    message::{Reply, Request},
    parts::part_of,
    plain::Answered,
    room::Ledger,
};
