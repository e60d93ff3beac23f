//! The settings of stores in the environment.

use http::Uri;

/// The variables of the environment with names that begin with `prefix`. An empty one counts as absent,
/// as for the programs of the providers.
///
/// # Errors
/// One should be the address of a server, and is not.
pub(super) fn settings(prefix: &str) -> Result<Vec<(String, String)>, String> {
    let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        Some((name.into_string().ok()?, value.into_string().ok()?))
    };
    let variables = std::env::vars_os().filter_map(text);
    of(variables.filter(|(name, _)| name.starts_with(prefix)))
}

fn of(variables: impl Iterator<Item = (String, String)>) -> Result<Vec<(String, String)>, String> {
    let mut found = Vec::new();
    for (name, value) in variables.filter(|(_, value)| !value.is_empty()) {
        if is_address(&name) {
            check(&value).map_err(|problem| format!("{name}: {value:?} {problem}"))?;
        }
        found.push((name, value));
    }
    Ok(found)
}

/// True if a variable of this name has the address of a server.
fn is_address(name: &str) -> bool {
    let is_flag = name.contains("_USE_");
    (name.contains("ENDPOINT") && !is_flag) || name.ends_with("_URL") || name.ends_with("_FULL_URI")
}

fn check(address: &str) -> Result<(), &'static str> {
    let no_scheme = "has no scheme: it begins with https:// or http://";
    if !address.starts_with("https://") && !address.starts_with("http://") {
        return Err(no_scheme);
    }
    let uri: Uri = address.parse().map_err(|_| "is not an address")?;
    let authority = uri.authority().ok_or("has no host")?;
    let rest = authority.as_str().rsplit_once(authority.host()).map_or("", |(_, rest)| rest);
    match (authority.host(), rest, authority.port_u16()) {
        ("", _, _) => Err("has no host"),
        (_, "", _) | (_, _, Some(_)) => Ok(()),
        _ => Err("has no valid port"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_one(name: &str, value: &str) -> Result<usize, String> {
        of([(name.to_owned(), value.to_owned())].into_iter()).map(|found| found.len())
    }

    #[test]
    fn addresses_of_servers_have_a_scheme_and_a_host() {
        for name in ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AZURE_STORAGE_ENDPOINT"] {
            for valid in ["http://localhost:9000", "https://s3.example/path", "http://[::1]:80"] {
                assert_eq!(of_one(name, valid), Ok(1), "{valid}");
            }
            for (wrong, problem) in [
                ("localhost:9000", "no scheme"),
                ("s3.example", "no scheme"),
                ("//s3.example", "no scheme"),
                ("ftp://s3.example", "no scheme"),
                ("http://", "not an address"),
                ("https:///bucket", "not an address"),
                ("http://a b", "not an address"),
                ("http://a:99999", "port"),
            ] {
                let refused = of_one(name, wrong).expect_err(wrong);
                assert!(refused.starts_with(name) && refused.contains(problem), "{refused}");
            }
            assert_eq!(of_one(name, ""), Ok(0), "as if it were absent");
        }
        assert_eq!(of_one("AWS_SECRET_ACCESS_KEY", "a b://"), Ok(1));
        assert_eq!(of_one("AZURE_USE_FABRIC_ENDPOINT", "true"), Ok(1));
    }
}
