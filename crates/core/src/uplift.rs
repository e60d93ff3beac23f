//! The control of an uplift model.

use std::{collections::BTreeMap, fmt};

/// The control with which an uplift model compares rows.
#[derive(Debug, Clone, PartialEq)]
pub enum Uplift {
    /// An S-learner: the values that columns have in the control, by the columns' names. None is a
    /// missing value.
    Control(BTreeMap<String, Option<f64>>),
    /// A T-learner: the names of the arms, in the order of their numbers. That of the control is
    /// `control`.
    Arms(Vec<String>),
}

impl fmt::Display for Uplift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = |(name, value): (&String, &Option<f64>)| match value {
            Some(value) => format!("{name}={value}"),
            None => format!("{name} missing"),
        };
        match self {
            Self::Control(values) => {
                let values: Vec<_> = values.iter().map(value).collect();
                write!(f, "control {}", values.join(", "))
            }
            Self::Arms(names) => write!(f, "arms {}", names.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_control_is_shown_with_its_values() {
        let values = [("age", None), ("discount", Some(0.5))];
        let control = Uplift::Control(values.map(|(name, value)| (name.to_owned(), value)).into());
        assert_eq!(control.to_string(), "control age missing, discount=0.5");
        let arms = Uplift::Arms(["control", "mens"].map(str::to_owned).into());
        assert_eq!(arms.to_string(), "arms control, mens");
    }
}
