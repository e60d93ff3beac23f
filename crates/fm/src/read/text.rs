//! The text forms: XGBoost Serving's for binary models, alphaFM's and alphaFM_softmax's.
//!
//! The first line is `bias` and the numbers of the bias, other lines are a feature and its numbers.
//! In the form of XGBoost Serving the numbers are `w v1 .. vk` (`w` for the bias). In the others
//! they are, for each class, `w v1 .. vk`, followed by the state of the trainer, which is passed
//! over: `w_n w_z v_n1 .. v_nk v_z1 .. v_zk`.

use crate::{
    Error, Skipped,
    read::{
        Fault, Features, File, Kind, Lines,
        lines::{fields, number, quoted},
    },
    table::{Growing, Shape},
};

/// The form of the lines.
#[derive(Debug, Clone, Copy)]
struct Form {
    kind: Kind,
    classes: usize,
    /// True if the state of the trainer follows the numbers of each class.
    state: bool,
}

impl Form {
    /// The form that has a first line of `count` fields, if it is of this kind, or of any.
    fn of(kind: Option<Kind>, count: usize) -> Option<Self> {
        let binary = |state| Self { kind: Kind::Binary, classes: 1, state };
        match (kind, count) {
            (None | Some(Kind::Binary), 2) => Some(binary(false)),
            (None | Some(Kind::Binary), 4) => Some(binary(true)),
            (None | Some(Kind::Softmax), 4..) if (count - 1).is_multiple_of(3) => {
                Some(Self { kind: Kind::Softmax, classes: (count - 1) / 3, state: true })
            }
            _ => None,
        }
    }

    /// The sizes of a machine with vectors of this length.
    fn shape(self, factors: usize) -> Shape {
        Shape { classes: self.classes, factors, softmax: self.kind == Kind::Softmax }
    }

    /// The length of the vectors in a line of `count` fields.
    fn factors(self, count: usize) -> Option<usize> {
        let numbers = count.checked_sub(1)?;
        let of_class = numbers.is_multiple_of(self.classes).then_some(numbers / self.classes)?;
        if !self.state {
            return of_class.checked_sub(1);
        }
        of_class.is_multiple_of(3).then_some((of_class / 3).checked_sub(1)?)
    }

    /// Appends the numbers of all classes in `fields`, those of the trainer's state excepted.
    fn numbers<'l>(
        self,
        mut fields: impl Iterator<Item = &'l [u8]>,
        factors: usize,
        values: &mut Vec<f32>,
    ) -> Result<(), Fault> {
        for _ in 0..self.classes {
            for field in fields.by_ref().take(1 + factors) {
                values.push(number(field)?);
            }
            if self.state {
                // There are two further numbers for each one.
                fields.by_ref().take(2 * (1 + factors)).for_each(drop);
            }
        }
        Ok(())
    }
}

/// Reads a text file.
pub(super) fn read(
    file: File<'_>,
    mut features: Features<'_>,
) -> Result<(Growing, Skipped), Error> {
    let mut lines = Lines::new(file);
    let (form, mut bias) = head(&mut lines, &mut features)?;
    let (mut table, mut values) = (None::<Growing>, Vec::new());
    while let Some(line) = lines.next(&mut features.faults, features.budget)? {
        values.clear();
        features.budget.reserve(&mut values, line.len() / 2)?;
        let (id, factors) = match feature(line, form, &features, &mut values) {
            Ok(found) => found,
            Err(fault) => {
                features.faults.found(fault)?;
                continue;
            }
        };
        let table = match &mut table {
            Some(table) => table,
            none => {
                let shape = form.shape(factors);
                none.insert(Growing::new(shape, std::mem::take(&mut bias), features.budget)?)
            }
        };
        let others = table.shape().factors;
        if factors != others {
            let text = format!("it has {factors} factors, and lines before it have {others}");
            return Err(features.faults.error(text));
        }
        features.add(id, &values, table, form.state)?;
    }
    features.budget.release::<f32>(values.capacity());
    let table = table.ok_or_else(|| features.faults.invalid("it has no features"))?;
    Ok((table, features.end()))
}

/// Reads the first line of a text file: the kind of the machine, and the number of its classes.
pub(super) fn kind(file: File<'_>, mut features: Features<'_>) -> Result<(Kind, usize), Error> {
    let (form, _) = head(&mut Lines::new(file), &mut features)?;
    Ok((form.kind, form.classes))
}

/// Reads the first line: the form, and the bias of each class.
fn head(lines: &mut Lines<'_>, features: &mut Features<'_>) -> Result<(Form, Vec<f32>), Error> {
    let (kind, lenient) = (features.reading.kind, features.reading.lenient);
    let faults = &mut features.faults;
    let Some(line) = lines.next(faults, features.budget)? else {
        return Err(faults.invalid("it is empty"));
    };
    let mut rest = fields(line);
    let count = rest.clone().count();
    let name = rest.next().unwrap_or_default();
    if name != b"bias" && !lenient {
        return Err(faults.error(format!("it begins with {} instead of \"bias\"", quoted(name))));
    }
    let form = Form::of(kind, count).ok_or_else(|| {
        let expected = match kind {
            Some(Kind::Binary) => "2 or 4",
            Some(Kind::Softmax) => "1 and three for each class",
            None => "2, or 1 and three for each class",
        };
        faults.error(format!("it has {count} fields instead of {expected}"))
    })?;
    let mut bias = features.budget.filled(0.0, form.classes)?;
    bias.clear();
    form.numbers(rest, 0, &mut bias).map_err(|fault| faults.error(fault))?;
    Ok((form, bias))
}

/// The id of the feature in a line, and the length of its vectors. Its numbers are appended to
/// `values`.
fn feature(
    line: &[u8],
    form: Form,
    features: &Features<'_>,
    values: &mut Vec<f32>,
) -> Result<(u64, usize), Fault> {
    let mut fields = fields(line);
    let count = fields.clone().count();
    let name = fields.next().ok_or("the line is empty")?;
    let id = features.id(name)?;
    let factors = form.factors(count);
    // XGBoost Serving has no vectors of length 0, and skips lines that seem to have one.
    let factors = factors.filter(|factors| *factors > 0 || form.state || !features.reading.lenient);
    let factors = factors.ok_or_else(|| format!("it has {count} fields"))?;
    form.numbers(fields, factors, values)?;
    Ok((id, factors))
}
