//! An extension of tables: inputs whose rows need not all have a value.

/// The name of the input of BOOL that says for each row whether the input `name` has a value there.
pub fn presence(name: &str) -> String {
    format!("present({name})")
}

/// The name of the input that `input` says this of, if it is such a one.
pub fn presence_of(input: &str) -> Option<&str> {
    input.strip_prefix("present(")?.strip_suffix(')')
}
