//! The outputs of a model before its first answer: what a person has written counts first, and then the
//! description of the hosts. Answers confirm both, and add what neither says.

use std::collections::BTreeMap;

use outrigger_oip::{DataType, Tensor, metadata::TensorMetadata};

use super::{OutputColumn, RowForm, resolve::names};
use crate::{Error, Output, decode};

/// The outputs of a model, as far as they are known before an answer.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Expected {
    /// None if neither the job nor the hosts name any.
    outputs: Vec<ExpectedOutput>,
}

/// An output of a model, as far as it is known before an answer.
#[derive(Debug, Clone, PartialEq)]
struct ExpectedOutput {
    column: String,
    tensor: String,
    datatype: Option<DataType>,
    /// The sizes of a row, without the first dimension; -1 is any size.
    row: Option<Vec<i64>>,
}

/// The outputs that the job wants from a model that the hosts describe so.
///
/// # Errors
/// The hosts describe outputs, and not one that the job names.
pub(crate) fn expected_outputs(
    wanted: &BTreeMap<String, Output>,
    described: &[TensorMetadata],
) -> Result<Expected, Error> {
    let of = |tensor: &str| described.iter().find(|output| output.name == tensor);
    let unknown = |output: &&Output| !described.is_empty() && of(&output.tensor).is_none();
    if let Some(Output { tensor, .. }) = wanted.values().find(unknown) {
        let known = names(described.iter().map(|output| &output.name));
        return Err(Error::usage(format!("the model has no output {tensor:?}; it has {known}")));
    }
    let named = |(column, stated): (&String, &Output)| output(column, stated, of(&stated.tensor));
    let every = |it: &TensorMetadata| output(&it.name, &Output::of(&it.name), Some(it));
    let outputs = match wanted.is_empty() {
        true => described.iter().filter(|it| has_values(&it.shape)).map(every).collect(),
        false => wanted.iter().map(named).collect(),
    };
    Ok(Expected { outputs })
}

/// True if rows of tensors of this shape have values. An output without any is none.
fn has_values(shape: &[i64]) -> bool {
    !shape.iter().skip(1).any(|size| *size == 0)
}

fn output(column: &str, stated: &Output, described: Option<&TensorMetadata>) -> ExpectedOutput {
    let Output { tensor, datatype, shape } = stated;
    let named = || DataType::named(&described?.datatype);
    ExpectedOutput {
        column: column.to_owned(),
        tensor: tensor.clone(),
        datatype: datatype.or_else(named),
        row: shape.clone().or_else(|| row(described?)),
    }
}

/// The sizes of a row as the hosts describe them. A shape that does not begin with any number of rows
/// describes no rows.
fn row(described: &TensorMetadata) -> Option<Vec<i64>> {
    match &described.shape[..] {
        [-1, row @ ..] => Some(row.to_vec()),
        _ => None,
    }
}

impl Expected {
    /// The names of the tensors; none if they are not known.
    pub(crate) fn tensors(&self) -> impl Iterator<Item = &str> {
        self.outputs.iter().map(|output| output.tensor.as_str())
    }

    /// True if one answer confirms all there is to know. Otherwise answers add to it.
    pub(crate) fn is_complete(&self) -> bool {
        self.without_answer().is_some()
    }

    /// The columns of the output if an answer would only confirm them.
    pub(crate) fn without_answer(&self) -> Option<Vec<OutputColumn>> {
        let column = |it: &ExpectedOutput| {
            let RowForm { depth, sizes } = RowForm::of(it.row.as_ref()?);
            Some(OutputColumn {
                column: it.column.clone(),
                tensor: it.tensor.clone(),
                datatype: it.datatype?,
                depth,
                sizes,
                is_json: false,
            })
        };
        let columns: Option<Vec<_>> = self.outputs.iter().map(column).collect();
        columns.filter(|columns| !columns.is_empty())
    }

    /// The columns of the output by an answer.
    ///
    /// # Errors
    /// The answer has no outputs, or contradicts what is known.
    pub(crate) fn columns(&self, answer: &[Tensor]) -> Result<Vec<OutputColumn>, String> {
        if answer.is_empty() {
            return Err("it has no outputs".to_owned());
        }
        let columns: Vec<_> = match self.outputs.is_empty() {
            true => answer.iter().filter(|it| has_values(&it.shape)).map(of_answer).collect(),
            false => {
                let of = |it: &ExpectedOutput| it.column_of(answer);
                self.outputs.iter().map(of).collect::<Result<Vec<_>, _>>()?
            }
        };
        if columns.is_empty() {
            return Err("it has no outputs with values".to_owned());
        }
        decode::check(answer, &columns)?;
        Ok(columns)
    }
}

impl ExpectedOutput {
    fn column_of(&self, answer: &[Tensor]) -> Result<OutputColumn, String> {
        let Self { column, tensor, datatype, row } = self;
        let found = answer.iter().find(|output| *output.name == **tensor);
        let found = found.ok_or_else(|| format!("output {tensor} is missing"))?;
        if row.is_none() && !has_values(&found.shape) {
            let shape = &found.shape;
            return Err(format!(
                "outputs.{column}: the output {tensor} has the shape {shape:?}, without values; leave \
                 it out, or state its shape"
            ));
        }
        let of_answer = of_answer(found);
        let form = row.as_ref().map(|row| RowForm::of(row));
        let RowForm { depth, sizes } = form.unwrap_or_else(|| of_answer.rows());
        let datatype = datatype.unwrap_or(of_answer.datatype);
        Ok(OutputColumn { column: column.clone(), datatype, depth, sizes, ..of_answer })
    }
}

/// The column of a tensor about which nothing else is known. Its rows may have other sizes in other
/// answers.
fn of_answer(tensor: &Tensor) -> OutputColumn {
    let row = tensor.shape.get(1..).unwrap_or_default();
    OutputColumn {
        column: tensor.name.to_string(),
        tensor: tensor.name.to_string(),
        datatype: tensor.datatype,
        depth: RowForm::of(row).depth,
        sizes: Vec::new(),
        is_json: false,
    }
}

/// The setting that states the outputs of an answer, as a job has it.
pub(crate) fn stated(answer: &[Tensor]) -> String {
    let of = |it: &Tensor| {
        let Tensor { name, datatype, shape, .. } = it;
        let row = shape.get(1..).unwrap_or_default();
        format!("{name}: {{tensor: {name}, datatype: {datatype}, shape: {row:?}}}")
    };
    let outputs: Vec<_> = answer.iter().filter(|it| has_values(&it.shape)).map(of).collect();
    format!("outputs: {{{}}}", outputs.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(name: &str, datatype: &str, shape: &[i64]) -> TensorMetadata {
        TensorMetadata {
            name: name.to_owned(),
            datatype: datatype.to_owned(),
            shape: shape.to_vec(),
        }
    }

    fn tensor(name: &str, datatype: DataType, shape: &[i64]) -> Tensor {
        let elements = shape.iter().product::<i64>() as usize;
        let data = vec![0; elements * datatype.size().unwrap_or(4)].into();
        Tensor { name: name.into(), datatype, shape: shape.to_vec(), data }
    }

    fn wanted<const N: usize>(outputs: [(&str, Output); N]) -> BTreeMap<String, Output> {
        outputs.map(|(column, output)| (column.to_owned(), output)).into()
    }

    fn forms(columns: &[OutputColumn]) -> Vec<(&str, DataType, usize, &[i64])> {
        columns.iter().map(|it| (&*it.column, it.datatype, it.depth, &*it.sizes)).collect()
    }

    #[test]
    fn columns_are_those_of_the_description_whatever_the_first_answer_has() {
        let outputs = [described("y", "FP64", &[-1, 3]), described("s", "FP32", &[-1, 1])];
        let expected = expected_outputs(&BTreeMap::new(), &outputs).expect("outputs");
        assert!(expected.is_complete());
        let right = [tensor("s", DataType::Fp32, &[2]), tensor("y", DataType::Fp64, &[2, 3])];
        let columns = expected.columns(&right).expect("they match");
        let y = ("y", DataType::Fp64, 1, &[3][..]);
        let s = ("s", DataType::Fp32, 0, &[][..]);
        assert_eq!(forms(&columns), [y, s]);
        for (answer, fault) in [
            (vec![], "no outputs"),
            (vec![tensor("s", DataType::Fp32, &[2])], "output y is missing"),
            (vec![tensor("y", DataType::Fp32, &[2, 3]), right[0].clone()], "the type FP32"),
            (vec![tensor("y", DataType::Fp64, &[2, 4]), right[0].clone()], "shape [2, 4]"),
            (vec![tensor("y", DataType::Fp64, &[2]), right[0].clone()], "shape [2]"),
            (vec![right[1].clone(), tensor("s", DataType::Fp32, &[2, 2])], "shape [2, 2]"),
        ] {
            let refused = expected.columns(&answer).expect_err(fault);
            assert!(refused.contains(fault), "{refused}");
        }
    }

    #[test]
    fn what_a_person_states_counts_before_the_description() {
        let outputs = [described("y", "FP64", &[-1, 1])];
        let stated =
            Output { datatype: Some(DataType::Fp32), shape: Some(vec![2]), ..Output::of("y") };
        let expected = expected_outputs(&wanted([("score", stated)]), &outputs).expect("outputs");
        let columns = expected.columns(&[tensor("y", DataType::Fp32, &[4, 2])]).expect("as stated");
        assert_eq!(forms(&columns), [("score", DataType::Fp32, 1, &[2][..])]);
        assert!(expected.columns(&[tensor("y", DataType::Fp64, &[4, 1])]).is_err());
        let named = expected_outputs(&wanted([("score", Output::of("y"))]), &outputs);
        assert_eq!(named.expect("outputs").tensors().collect::<Vec<_>>(), ["y"]);
        let unknown = expected_outputs(&wanted([("score", Output::of("z"))]), &outputs);
        assert!(matches!(unknown, Err(Error::Usage(it)) if it.contains("it has y")));
        assert!(expected_outputs(&wanted([("score", Output::of("z"))]), &[]).is_ok());
    }

    #[test]
    fn answers_give_what_nobody_describes() {
        let nothing = expected_outputs(&BTreeMap::new(), &[]).expect("outputs");
        let answer = [
            tensor("s", DataType::Fp32, &[2]),
            tensor("one", DataType::Fp32, &[2, 1]),
            tensor("grid", DataType::Fp32, &[2, 3, 4]),
        ];
        let columns = nothing.columns(&answer).expect("columns");
        assert_eq!(columns.iter().map(|it| it.depth).collect::<Vec<_>>(), [0, 0, 2]);
        assert!(!nothing.is_complete() && columns.iter().all(|it| it.sizes.is_empty()));
        // A shape that does not begin with a number of rows says nothing about a row.
        let outputs = [described("y", "FP32", &[2, 1])];
        let expected = expected_outputs(&BTreeMap::new(), &outputs).expect("outputs");
        assert!(!expected.is_complete());
        let columns = expected.columns(&[tensor("y", DataType::Fp32, &[7, 2])]).expect("columns");
        assert_eq!(forms(&columns), [("y", DataType::Fp32, 1, &[][..])]);
        assert!(expected.columns(&[tensor("y", DataType::Fp64, &[7, 2])]).is_err());
        // One size that is open is a list, also where it is 1.
        let outputs = [described("y", "FP32", &[-1, -1])];
        let expected = expected_outputs(&BTreeMap::new(), &outputs).expect("outputs");
        let columns = expected.columns(&[tensor("y", DataType::Fp32, &[7, 1])]).expect("columns");
        assert_eq!(forms(&columns), [("y", DataType::Fp32, 1, &[][..])]);
    }

    #[test]
    fn an_output_without_values_is_none() {
        let answer =
            [tensor("y", DataType::Fp32, &[1, 34]), tensor("at", DataType::Int64, &[1, 0])];
        let nothing = BTreeMap::new();
        for outputs in
            [vec![], vec![described("y", "FP32", &[1, 34]), described("at", "INT64", &[1, 0])]]
        {
            let expected = expected_outputs(&nothing, &outputs).expect("outputs");
            let columns = expected.columns(&answer).expect("columns");
            assert_eq!(forms(&columns), [("y", DataType::Fp32, 1, &[][..])]);
        }
        assert!(!stated(&answer).contains("at:"));
        assert!(expected_outputs(&nothing, &[]).expect("outputs").columns(&answer[1..]).is_err());
        let of = |shape| wanted([("places", Output { shape, ..Output::of("at") })]);
        let named = expected_outputs(&of(None), &[]).expect("outputs").columns(&answer);
        assert!(named.expect_err("no values").starts_with("outputs.places: "));
        // A person may know that other rows have values.
        let open = expected_outputs(&of(Some(vec![-1])), &[]).expect("outputs").columns(&answer);
        assert_eq!(forms(&open.expect("columns")), [("places", DataType::Int64, 1, &[][..])]);
    }

    #[test]
    fn the_setting_that_a_person_can_set_has_the_form_of_the_answer() {
        let answer = [tensor("y", DataType::Fp32, &[7, 2]), tensor("s", DataType::Fp64, &[7])];
        let setting = format!("input: a\noutput: o\nmodel: m\nhosts: h\n{}\n", stated(&answer));
        let job = crate::Job::read(&setting).expect("a job");
        let expected = expected_outputs(&job.outputs, &[]).expect("outputs");
        assert!(expected.is_complete() && expected.columns(&answer).is_ok());
    }
}
