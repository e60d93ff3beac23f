//! Tests of the whole server in one process: real listeners, store, image layouts and state
//! machines, with a fake engine that each test controls.

mod auth;
mod batcher;
mod batching;
mod canaries;
mod canary_batches;
mod certificates;
mod collector;
mod compression;
mod contributions;
mod engines;
mod http;
mod life;
mod limits;
mod logged;
mod memory;
mod metrics;
mod models;
mod oip;
mod oip_engine;
mod oip_rest;
mod overload;
mod predict;
mod priority;
mod reload;
mod shutdown;
mod stack;
mod streams;
mod tls;
mod traces;
mod trials;
mod turns;
mod ui;
mod validation;
mod xgboost_serving;
