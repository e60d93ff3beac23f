//! Texts of a file in a report.

/// The most bytes of a text of the file in a report: it may be as long as a row.
const MOST: usize = 500;

/// Cuts a text at a character boundary.
pub(crate) fn cut(mut text: String) -> String {
    let end = (0..=MOST.min(text.len())).rev().find(|&end| text.is_char_boundary(end));
    text.truncate(end.unwrap_or(0));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_at_a_character() {
        assert_eq!(cut("short".to_owned()), "short");
        assert_eq!(cut(format!("x{}", "ä".repeat(MOST))).len(), MOST - 1);
    }
}
