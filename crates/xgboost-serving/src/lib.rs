//! The requests of XGBoost Serving's interface: messages and JSON documents, read as rows of ids with
//! weights, which are written once as the tensors of a model's sparse inputs. Synchronous, without
//! I/O.

mod json;
mod request;
mod rows;

use outrigger_core::{Failure, Reason};

pub use request::{Answer, Asked, no_spec};

/// The kinds of models that XGBoost Serving calls platforms. Each has a method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Platform {
    /// Trees.
    Xgboost,
    /// Trees and a factorisation machine of two classes.
    Alphafm,
    /// Trees and a factorisation machine of any number of classes.
    AlphafmSoftmax,
}

/// The inputs of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Input {
    /// The features of the trees, which a factorisation machine sees too.
    Trees,
    /// The features of a factorisation machine alone.
    Machine,
}

impl Platform {
    /// The inputs that a request must have.
    const fn inputs(self) -> &'static [Input] {
        match self {
            Self::Xgboost => &[Input::Trees],
            Self::Alphafm | Self::AlphafmSoftmax => &[Input::Trees, Input::Machine],
        }
    }

    /// The bits of an id that count. XGBoost gets the lower 32; a machine takes whole ids.
    const fn bits(self) -> u64 {
        match self {
            Self::Xgboost => 0xFFFF_FFFF,
            Self::Alphafm | Self::AlphafmSoftmax => u64::MAX,
        }
    }
}

impl Input {
    const ALL: [Self; 2] = [Self::Trees, Self::Machine];
    const COUNT: usize = Self::ALL.len();

    /// The name in requests, which is that of the model's input.
    const fn name(self) -> &'static str {
        match self {
            Self::Trees => "xgboost_features",
            Self::Machine => "fm_features",
        }
    }

    fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|input| input.name() == name)
    }
}

/// The failure for a field of a request that is not valid.
fn invalid(field: &str, problem: &str) -> Failure {
    Failure::of_field(Reason::RequestMalformed, field, problem)
}
