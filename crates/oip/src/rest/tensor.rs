//! One tensor of a message: an input of a request, or an output of a response.

use std::sync::Arc;

use bytes::Bytes;
use outrigger_json::Cursor;

use super::{
    data,
    fields::{self, Fault, Reading, is_null, put},
};
use crate::{DataType, Malformed, Parameters, Tensor, infer};

/// A tensor whose JSON was read.
#[derive(Debug)]
pub(super) struct Head {
    name: Arc<str>,
    datatype: DataType,
    shape: Vec<i64>,
    data: Data,
}

/// The place of a tensor's data.
#[derive(Debug)]
enum Data {
    Here(Bytes),
    /// Behind the JSON; the number of bytes.
    Behind(u64),
}

/// The fields of a tensor, as they were found.
#[derive(Debug, Default)]
struct Fields<'a> {
    name: Option<Arc<str>>,
    datatype: Option<DataType>,
    shape: Option<Vec<i64>>,
    parameters: Option<Parameters>,
    data: Option<Found<'a>>,
}

#[derive(Debug)]
enum Found<'a> {
    Read(Bytes),
    /// They came before the datatype or the shape: the cursor is in front of them.
    Unread(Cursor<'a>),
}

/// Reads a tensor. Its data are read when the datatype and the shape are known.
pub(super) fn read(cursor: &mut Cursor<'_>, reading: Reading) -> Result<Head, Fault> {
    let mut fields = Fields::default();
    fields::object(cursor, |key, cursor| fields.member(key, cursor, reading))?;
    fields.finish(cursor, reading)
}

impl<'a> Fields<'a> {
    fn member(
        &mut self,
        key: &[u8],
        cursor: &mut Cursor<'a>,
        reading: Reading,
    ) -> Result<bool, Fault> {
        match key {
            b"name" => put(&mut self.name, fields::name(cursor)?, "name"),
            b"datatype" => put(&mut self.datatype, fields::datatype(cursor)?, "datatype"),
            b"shape" => put(&mut self.shape, fields::shape(cursor)?, "shape"),
            b"parameters" => {
                let parameters = fields::parameters_as(reading, cursor)?;
                put(&mut self.parameters, parameters, "parameters")
            }
            b"data" if is_null(cursor) => Ok(true),
            b"data" => {
                let found = match (self.datatype, &self.shape) {
                    (Some(datatype), Some(shape)) => {
                        Found::Read(data::read(cursor, datatype, shape, reading)?)
                    }
                    _ => {
                        let before = *cursor;
                        data::skip(cursor)?;
                        Found::Unread(before)
                    }
                };
                put(&mut self.data, found, "data")
            }
            _ => Ok(false),
        }
    }

    fn finish(self, cursor: &mut Cursor<'a>, reading: Reading) -> Result<Head, Fault> {
        let missing = |key: &str| Fault::from(Malformed::at(key, "is missing"));
        let name = self.name.ok_or_else(|| missing("name"))?;
        let shape = self.shape.ok_or_else(|| missing("shape"))?;
        let datatype = self.datatype.ok_or_else(|| missing("datatype"))?;
        let parameters = self.parameters.unwrap_or_default();
        if reading == Reading::Strict {
            infer::refuse(&parameters)?;
        }
        let behind = parameters.count(infer::BINARY_SIZE)?;
        let data = match (self.data, behind) {
            (Some(_), Some(_)) => {
                let message = "is given, and binary_data_size too";
                return Err(Malformed::at("data", message).into());
            }
            (Some(Found::Read(data)), None) => Data::Here(data),
            (Some(Found::Unread(mut before)), None) => {
                match data::read(&mut before, datatype, &shape, reading) {
                    Ok(data) => Data::Here(data),
                    Err(fault) => {
                        // The place of an error of the syntax.
                        *cursor = before;
                        return Err(fault);
                    }
                }
            }
            (None, Some(size)) => Data::Behind(size),
            (None, None) if reading == Reading::Lenient && shape.contains(&0) => {
                Data::Here(Bytes::new())
            }
            (None, None) => return Err(missing("data")),
        };
        Ok(Head { name, datatype, shape, data })
    }
}

impl Head {
    /// The tensor; its data are taken from the front of `behind` if they are not in the JSON.
    ///
    /// # Errors
    /// There are too few bytes, or they are not those of the datatype and the shape.
    pub(super) fn finish(self, behind: &mut Bytes) -> Result<Tensor, Malformed> {
        let Self { name, datatype, shape, data } = self;
        match data {
            Data::Here(data) => Ok(Tensor { name, datatype, shape, data }),
            Data::Behind(size) => match usize::try_from(size) {
                Ok(size) if size <= behind.len() => {
                    Tensor::new(name, datatype, shape, behind.split_to(size))
                }
                _ => {
                    let rest = behind.len();
                    let message = format!("{size}, but {rest} bytes are left behind the JSON");
                    Err(Malformed::at("parameters[\"binary_data_size\"]", message))
                }
            },
        }
    }
}
