//! The paths of models, as clients write them.

use std::fmt;

/// The path of a model, or of a version of it.
pub fn model_path(model: &str, version: Option<&str>) -> String {
    let model = escaped(model);
    match version {
        None => format!("/v2/models/{model}"),
        Some(version) => format!("/v2/models/{model}/versions/{}", escaped(version)),
    }
}

/// A name as one segment of a path (RFC 3986, section 3.3).
pub fn escaped(name: &str) -> Escaped<'_> {
    Escaped(name)
}

/// A name that is written with escapes.
#[derive(Debug, Clone, Copy)]
pub struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A segment of dots alone would be a step in the path.
        let dots = self.0.bytes().all(|byte| byte == b'.');
        self.0.bytes().try_for_each(|byte| match byte {
            b'.' if dots => f.write_str("%2E"),
            _ if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) => {
                write!(f, "{}", char::from(byte))
            }
            _ => write!(f, "%{byte:02X}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_one_segment_of_a_path() {
        assert_eq!(model_path("churn-2.0_a", None), "/v2/models/churn-2.0_a");
        assert_eq!(model_path("a/b c", Some("..")), "/v2/models/a%2Fb%20c/versions/%2E%2E");
        assert_eq!(model_path("é?#", None), "/v2/models/%C3%A9%3F%23");
    }
}
