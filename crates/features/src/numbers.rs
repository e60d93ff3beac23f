//! Conversions of numbers to integers.

use outrigger_core::DType;

/// The integer equal to a float, if it is whole and in range.
pub(crate) fn exact_integer(value: f64) -> Option<i64> {
    // 2^63 is exact as a float; i64::MAX is not.
    const END: f64 = 9_223_372_036_854_775_808.0;
    let whole = value.fract() == 0.0 && (-END..END).contains(&value);
    whole.then_some(value as i64)
}

/// True if an element of `dtype` can be equal to an integer, and to no other one.
pub(crate) fn fits(value: i64, dtype: DType) -> bool {
    match dtype {
        DType::Float32 => value.unsigned_abs() <= 1 << f32::MANTISSA_DIGITS,
        DType::Float64 => value.unsigned_abs() <= 1 << f64::MANTISSA_DIGITS,
        DType::Int32 => i32::try_from(value).is_ok(),
        _ => true,
    }
}
