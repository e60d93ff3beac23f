//! Texts of a file in a report.

/// The most bytes of a text of the file in a report: it may be as long as a row.
const MOST: usize = 500;

/// Cuts a text at a character boundary.
pub(crate) fn cut(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(MOST));
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
