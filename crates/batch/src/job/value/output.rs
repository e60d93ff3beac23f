//! The columns of the output, as a job states them.

use outrigger_oip::DataType;
use serde::{Deserialize, Deserializer, de};

use super::forms;

/// A column of the output: the name of its tensor, or an object with `tensor`, which may also state the
/// tensor's type and the sizes of a row in place of the hosts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Output {
    /// The model's name for the tensor.
    pub tensor: String,
    /// The type of the tensor.
    pub datatype: Option<DataType>,
    /// The sizes of a row, without the first dimension; -1 for any size.
    pub shape: Option<Vec<i64>>,
}

impl Output {
    /// The column of the tensor with this name, as the hosts describe it.
    pub fn of(tensor: &str) -> Self {
        Self { tensor: tensor.to_owned(), ..Self::default() }
    }
}

impl<'de> Deserialize<'de> for Output {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Default, Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Full {
            tensor: String,
            #[serde(default)]
            datatype: Option<String>,
            #[serde(default)]
            shape: Option<Vec<i64>>,
        }
        let text = |tensor| Full { tensor, ..Full::default() };
        let Full { tensor, datatype, shape } = forms::text_or_map(deserializer, text)?;
        let wrong = shape.iter().flatten().find(|size| **size != -1 && **size < 1);
        if let Some(size) = wrong {
            return Err(de::Error::custom(format_args!(
                "shape: {size} is not a size of a row; it is at least 1, or -1 for any size"
            )));
        }
        let named = |name: String| {
            DataType::read(&name).map_err(|malformed| de::Error::custom(malformed.to_string()))
        };
        Ok(Self { tensor, datatype: datatype.map(named).transpose()?, shape })
    }
}
