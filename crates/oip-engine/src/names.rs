//! The names of models in the files by which servers know them.
//!
//! A version is published under a name of its own, and so are the other models of its package. A
//! server compares the name in a model's file with that of the directory, and an ensemble names its
//! steps, so both are replaced when the files are published.

use std::{collections::BTreeMap, ops::Range, sync::Arc};

use serde_json::{Map, Value};

use crate::code::SETTINGS;

/// The published names of the models of one package, by their names in it.
pub(crate) type Published = BTreeMap<Arc<str>, Arc<str>>;

/// A file by which a server knows a model, with the rewriting of its names. `model` is the name of
/// the model in the package.
pub(crate) type Rewrite = fn(text: &str, model: &str, names: &Published) -> Result<String, String>;

/// The files with names, by their own names: Triton's, and MLServer's.
pub(crate) const FILES: [(&str, Rewrite); 2] =
    [(CONFIGURATION, in_configuration), (SETTINGS, in_settings)];

/// Triton's configuration of a model.
pub(crate) const CONFIGURATION: &str = "config.pbtxt";

/// Replaces the names in Triton's configuration of a model, in protobuf's text format: that of the
/// model, if it has one, and those of the steps of an ensemble.
fn in_configuration(text: &str, model: &str, names: &Published) -> Result<String, String> {
    let mut written = String::with_capacity(text.len());
    let mut copied = 0;
    let mut depth = 0_usize;
    let mut scan = Scan { text, at: 0 };
    let mut field = "";
    while let Some(token) = scan.next()? {
        match token {
            Token::Word(word) => field = word,
            Token::Colon => {}
            Token::Open => depth += 1,
            Token::Close => depth = depth.saturating_sub(1),
            Token::Other => field = "",
            Token::Text(range) => {
                let name = match (field, depth) {
                    ("name", 0) => names.get(model),
                    ("model_name", 1..) => names.get(&text[range.clone()]),
                    _ => None,
                };
                if let Some(name) = name {
                    written.push_str(&text[copied..range.start]);
                    written.push_str(name);
                    copied = range.end;
                }
                field = "";
            }
        }
    }
    written.push_str(&text[copied..]);
    Ok(written)
}

/// Replaces the name of the model in MLServer's settings of it, or adds it.
fn in_settings(text: &str, model: &str, names: &Published) -> Result<String, String> {
    let mut settings: Map<String, Value> =
        serde_json::from_str(text).map_err(|error| error.to_string())?;
    let name = names.get(model).map_or(model, |name| &**name);
    settings.insert("name".to_owned(), name.into());
    serde_json::to_string_pretty(&settings).map_err(|error| error.to_string())
}

/// The tokens of protobuf's text format, as far as names need them.
struct Scan<'a> {
    text: &'a str,
    at: usize,
}

enum Token<'a> {
    /// The name of a field, or a bare value.
    Word(&'a str),
    /// The content of a string between its quotes, which is not unescaped.
    Text(Range<usize>),
    Colon,
    Open,
    Close,
    Other,
}

impl<'a> Scan<'a> {
    fn next(&mut self) -> Result<Option<Token<'a>>, String> {
        self.skip_space();
        let text = self.text;
        let Some(first) = text.as_bytes().get(self.at) else { return Ok(None) };
        let start = self.at;
        self.at += 1;
        Ok(Some(match first {
            b'"' | b'\'' => self.string(*first)?,
            b':' => Token::Colon,
            b'{' | b'[' | b'<' => Token::Open,
            b'}' | b']' | b'>' => Token::Close,
            _ if is_word(*first) => {
                let rest = &text.as_bytes()[self.at..];
                self.at += rest.iter().take_while(|byte| is_word(**byte)).count();
                Token::Word(&text[start..self.at])
            }
            _ => Token::Other,
        }))
    }

    /// A string whose first quote was read.
    fn string(&mut self, quote: u8) -> Result<Token<'a>, String> {
        let start = self.at;
        let bytes = self.text.as_bytes();
        while let Some(byte) = bytes.get(self.at) {
            self.at += 1;
            match byte {
                b'\\' => self.at += 1,
                _ if *byte == quote => return Ok(Token::Text(start..self.at - 1)),
                _ => {}
            }
        }
        Err(format!("the string at byte {} does not end", start - 1))
    }

    fn skip_space(&mut self) {
        let bytes = self.text.as_bytes();
        while let Some(byte) = bytes.get(self.at) {
            match byte {
                b'#' => {
                    let rest = &bytes[self.at..];
                    self.at += rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
                }
                _ if byte.is_ascii_whitespace() => self.at += 1,
                _ => return,
            }
        }
    }
}

/// True for the bytes of names and of bare values; letters outside of ASCII are in strings and
/// comments only, and count so that a text is never cut within one.
fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_.+-".contains(&byte) || !byte.is_ascii()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Published {
        [("m", "m-1"), ("step", "step-1")].map(|(name, new)| (name.into(), new.into())).into()
    }

    fn configuration(text: &str) -> String {
        in_configuration(text, "m", &names()).expect("valid")
    }

    #[test]
    fn triton_s_configuration_gets_the_published_names() {
        let text = r#"# name: "comment"
name: "m"  platform: 'ensemble'
input [ { name: "m" data_type: TYPE_FP32 dims: [ -1 ] } ]
ensemble_scheduling { step [
  { model_name: "step" model_version: -1 input_map { key: "step" value: "m" } },
  { model_name : 'other' }
] }
parameters { key: "model_name" value: { string_value: "step \" \\" } }"#;
        let expected = text
            .replace("name: \"m\"  platform", "name: \"m-1\"  platform")
            .replace("model_name: \"step\"", "model_name: \"step-1\"");
        assert_eq!(configuration(text), expected);
    }

    #[test]
    fn a_configuration_without_names_stays() {
        for text in ["", "backend: \"python\"", "max_batch_size: 8 # é\n", "a: [ 1, 2 ] name"] {
            assert_eq!(configuration(text), text);
        }
        assert_eq!(configuration("backend: \"é\" name: \"é\""), "backend: \"é\" name: \"m-1\"");
    }

    #[test]
    fn a_string_without_an_end_is_refused() {
        for text in ["name: \"m", "name: 'm\"", "name: \"\\"] {
            assert!(in_configuration(text, "m", &names()).is_err(), "{text}");
        }
    }

    #[test]
    fn mlserver_s_settings_get_the_published_name() {
        let settings = |text| in_settings(text, "m", &names());
        let written = settings(r#"{"name": "m", "parameters": {"uri": "./m"}}"#).expect("valid");
        let written: Value = serde_json::from_str(&written).expect("JSON");
        assert_eq!(written, serde_json::json!({"name": "m-1", "parameters": {"uri": "./m"}}));
        assert!(settings("{}").expect("valid").contains("m-1"));
        assert!(settings("[]").is_err());
    }
}
