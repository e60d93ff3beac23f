//! Sizes of tensors.

use crate::{DataType, Malformed};

/// The most dimensions of a tensor.
pub const MAX_DIMENSIONS: usize = 32;

/// The number of elements of a tensor of this shape; 1 for no dimensions, which is a scalar.
///
/// # Errors
/// There are more than [`MAX_DIMENSIONS`], a size is negative, or the product of the sizes that are
/// not 0 is more than 2^63 - 1. So no reader that multiplies in another order overflows.
pub fn elements(shape: &[i64]) -> Result<usize, Malformed> {
    if shape.len() > MAX_DIMENSIONS {
        let message = format!("{} dimensions, but at most {MAX_DIMENSIONS} are read", shape.len());
        return Err(Malformed::at("shape", message));
    }
    let mut product: i64 = 1;
    for (index, size) in shape.iter().enumerate() {
        if *size < 0 {
            return Err(Malformed::at(format!("shape[{index}]"), format!("{size} is negative")));
        }
        product = product.checked_mul((*size).max(1)).ok_or_else(too_large)?;
    }
    let elements = if shape.contains(&0) { 0 } else { product };
    usize::try_from(elements).map_err(|_| too_large())
}

/// The size in bytes of a tensor's data: exactly so many if the elements have a size of their own,
/// and at least so many for [`DataType::Bytes`].
///
/// # Errors
/// As [`elements`], or the size does not fit 63 bits.
pub fn bytes(shape: &[i64], datatype: DataType) -> Result<usize, Malformed> {
    let bytes = elements(shape)?.checked_mul(datatype.least_size());
    bytes.filter(|bytes| i64::try_from(*bytes).is_ok()).ok_or_else(too_large)
}

fn too_large() -> Malformed {
    Malformed::at("shape", "the product of the sizes is too large")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(shape: &[i64]) -> String {
        elements(shape).expect_err("refused").to_string()
    }

    #[test]
    fn elements_are_the_product_of_the_sizes() {
        assert_eq!(elements(&[]), Ok(1));
        assert_eq!(elements(&[2, 3]), Ok(6));
        assert_eq!(elements(&[0, 3]), Ok(0));
        assert_eq!(elements(&[1 << 62]), Ok(1 << 62));
    }

    #[test]
    fn sizes_that_overflow_are_refused_in_any_order() {
        let message = "shape: the product of the sizes is too large";
        for shape in [
            &[1 << 32, 1 << 32][..],
            &[i64::MAX, 2],
            &[0, 1 << 32, 1 << 32],
            &[1 << 32, 1 << 32, 0],
        ] {
            assert_eq!(fault(shape), message);
        }
        assert_eq!(bytes(&[1 << 60], DataType::Fp64).unwrap_err().to_string(), message);
        assert_eq!(bytes(&[1 << 60], DataType::Fp32), Ok(1 << 62));
    }

    #[test]
    fn negative_sizes_and_many_dimensions_are_refused() {
        assert_eq!(fault(&[2, -1]), "shape[1]: -1 is negative");
        assert_eq!(fault(&[0, i64::MIN]), "shape[1]: -9223372036854775808 is negative");
        assert_eq!(fault(&[1; 33]), "shape: 33 dimensions, but at most 32 are read");
    }

    #[test]
    fn texts_have_at_least_their_lengths() {
        assert_eq!(bytes(&[3], DataType::Bytes), Ok(12));
        assert_eq!(bytes(&[3, 2], DataType::Fp16), Ok(12));
        assert_eq!(bytes(&[], DataType::Bool), Ok(1));
    }
}
