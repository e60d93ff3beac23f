//! Decisions about failures, hosts and forms of messages, without I/O.

mod attempts;
mod backoff;
mod budget;
mod class;
mod ejection;
mod form;
mod limiter;

pub use self::{
    attempts::{Attempts, Next},
    backoff::{Backoff, retry_after},
    budget::{BudgetSettings, RetryBudget},
    class::{Class, Cut, class_of_code, class_of_status},
    ejection::{Ejection, EjectionSettings, Outcome, Place},
    form::{Form, Forms},
    limiter::{Aimd, Limiter, Sample},
};
