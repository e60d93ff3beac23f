//! Parameters of requests, tensors and responses.

use crate::Malformed;

/// The most parameters that one object may have.
pub const MAX_PARAMETERS: usize = 128;

/// The value of a parameter.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub enum Parameter {
    Bool(bool),
    Integer(i64),
    /// An integer that is larger than any [`Integer`](Self::Integer), or was sent as unsigned.
    Unsigned(u64),
    Real(f64),
    Text(String),
}

/// Named values, in the order of the message. Each name occurs once.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Parameters(Vec<(String, Parameter)>);

impl Parameters {
    /// Adds a parameter.
    ///
    /// # Errors
    /// There is one of this name, or there are [`MAX_PARAMETERS`].
    pub fn insert(&mut self, name: impl Into<String>, value: Parameter) -> Result<(), Malformed> {
        let name = name.into();
        if self.get(&name).is_some() {
            return Err(Malformed::at("parameters", format!("{name:?} is given twice")));
        }
        if self.0.len() >= MAX_PARAMETERS {
            let message = format!("more than {MAX_PARAMETERS}");
            return Err(Malformed::at("parameters", message));
        }
        self.0.push((name, value));
        Ok(())
    }

    /// The value of a parameter.
    pub fn get(&self, name: &str) -> Option<&Parameter> {
        self.0.iter().find(|(found, _)| found == name).map(|(_, value)| value)
    }

    /// The value of a parameter that is true or false.
    ///
    /// # Errors
    /// It is neither.
    pub fn flag(&self, name: &str) -> Result<Option<bool>, Malformed> {
        match self.get(name) {
            None => Ok(None),
            Some(Parameter::Bool(value)) => Ok(Some(*value)),
            Some(_) => Err(wrong(name, "is neither true nor false")),
        }
    }

    /// The value of a parameter that is a whole number from 0 to 2^64 - 1.
    ///
    /// # Errors
    /// It is not.
    pub fn count(&self, name: &str) -> Result<Option<u64>, Malformed> {
        let count = match self.get(name) {
            None => return Ok(None),
            Some(Parameter::Integer(value)) => u64::try_from(*value).ok(),
            Some(Parameter::Unsigned(value)) => Some(*value),
            Some(_) => None,
        };
        count.map(Some).ok_or_else(|| wrong(name, "is no whole number of at least 0"))
    }

    /// The value of a parameter that is a text.
    ///
    /// # Errors
    /// It is not.
    pub fn text(&self, name: &str) -> Result<Option<&str>, Malformed> {
        match self.get(name) {
            None => Ok(None),
            Some(Parameter::Text(text)) => Ok(Some(text)),
            Some(_) => Err(wrong(name, "is no string")),
        }
    }

    /// All parameters, in the order of the message.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Parameter)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn wrong(name: &str, message: &str) -> Malformed {
    Malformed::at(format!("parameters[{name:?}]"), message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_by_type() {
        let mut parameters = Parameters::default();
        let values = [
            ("flag", Parameter::Bool(true)),
            ("count", Parameter::Integer(7)),
            ("most", Parameter::Unsigned(u64::MAX)),
            ("least", Parameter::Integer(-1)),
            ("text", Parameter::Text("t".to_owned())),
            ("real", Parameter::Real(1.0)),
        ];
        for (name, value) in values {
            parameters.insert(name, value).expect("new");
        }
        assert_eq!(parameters.flag("flag"), Ok(Some(true)));
        assert_eq!(parameters.flag("other"), Ok(None));
        assert_eq!(parameters.count("count"), Ok(Some(7)));
        assert_eq!(parameters.count("most"), Ok(Some(u64::MAX)));
        assert_eq!(parameters.text("text"), Ok(Some("t")));
        let wrong = [parameters.count("least"), parameters.count("real"), parameters.count("text")];
        let message = "parameters[\"least\"]: is no whole number of at least 0";
        assert_eq!(wrong[0].clone().unwrap_err().to_string(), message);
        assert!(wrong.iter().all(Result::is_err));
        assert!(parameters.flag("count").is_err() && parameters.text("flag").is_err());
    }

    #[test]
    fn names_are_unique_and_few() {
        let mut parameters = Parameters::default();
        for index in 0..MAX_PARAMETERS {
            parameters.insert(index.to_string(), Parameter::Bool(true)).expect("room");
        }
        let twice = parameters.insert("0", Parameter::Bool(true)).unwrap_err();
        assert_eq!(twice.to_string(), "parameters: \"0\" is given twice");
        let many = parameters.insert("x", Parameter::Bool(true)).unwrap_err();
        assert_eq!(many.to_string(), "parameters: more than 128");
    }
}
