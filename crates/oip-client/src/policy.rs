//! Decisions about failures and forms of messages, without I/O.

mod attempts;
mod class;
mod form;

pub use outrigger_resilience::{
    Aimd, Backoff, BudgetSettings, Class, Cut, Ejection, EjectionSettings, Limiter, Outcome, Place,
    RetryBudget, Sample,
};

pub use self::{
    attempts::{Attempts, Next},
    class::{class_of_code, class_of_status},
    form::{Form, Forms},
};
