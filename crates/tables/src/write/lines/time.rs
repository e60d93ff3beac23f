//! Dates and times as texts (RFC 3339).

use std::io::Write as _;

/// The seconds of a day.
const DAY: i64 = 86_400;

/// Appends the date so many days after 1970-01-01.
pub(super) fn date(days: i64, out: &mut Vec<u8>) {
    let (year, month, day) = civil(days);
    let sign = if year > 9999 { "+" } else { "" };
    write!(out, "\"{sign}{year:04}-{month:02}-{day:02}\"").expect("a vector grows");
}

/// Appends the time so many units after 1970-01-01T00:00:00, where a second has ten to the power of
/// `digits` units. `zone` is `Z` for times in UTC, and empty for local ones.
pub(super) fn time(value: i64, (digits, zone): (u32, &str), out: &mut Vec<u8>) {
    let unit = 10_i64.pow(digits);
    let (seconds, fraction) = (value.div_euclid(unit), value.rem_euclid(unit));
    let (days, seconds) = (seconds.div_euclid(DAY), seconds.rem_euclid(DAY));
    date(days, out);
    out.pop();
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    write!(out, "T{hour:02}:{minute:02}:{second:02}").expect("a vector grows");
    if digits > 0 {
        write!(out, ".{fraction:0width$}", width = digits as usize).expect("a vector grows");
    }
    write!(out, "{zone}\"").expect("a vector grows");
}

/// The year, month and day of a date in the Gregorian calendar: `civil_from_days` of H. Hinnant,
/// "chrono-Compatible Low-Level Date Algorithms". A year begins in March there.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days.saturating_add(719_468);
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let date = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + i64::from(month <= 2), month, date)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(append: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        append(&mut out);
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (days, expected) in [
            (0, "1970-01-01"),
            (-1, "1969-12-31"),
            (11_016, "2000-02-29"),
            (11_017, "2000-03-01"),
            (20_783, "2026-11-26"),
            (-719_162, "0001-01-01"),
            (2_932_897, "+10000-01-01"),
        ] {
            assert_eq!(text(|out| date(days, out)), format!("{expected:?}"), "{days}");
        }
    }

    #[test]
    fn times_have_the_digits_of_their_units() {
        for (value, form, expected) in [
            (0, (0, "Z"), "1970-01-01T00:00:00Z"),
            (-1, (3, ""), "1969-12-31T23:59:59.999"),
            (951_827_696_000_007, (6, "Z"), "2000-02-29T12:34:56.000007Z"),
            (1, (9, ""), "1970-01-01T00:00:00.000000001"),
        ] {
            assert_eq!(text(|out| time(value, form, out)), format!("{expected:?}"), "{value}");
        }
    }
}
