//! Flags that `outrigger engine` does not know. `tensorflow_model_server` reports an unknown flag and
//! continues, so that one command line fits several of its releases.

use std::{collections::BTreeSet, ffi::OsString};

use clap::Command;

/// The arguments of the process without the unknown flags of `engine`, and those flags.
pub(crate) fn split(
    command: &Command,
    arguments: impl Iterator<Item = OsString>,
) -> (Vec<OsString>, Vec<OsString>) {
    let mut arguments = arguments.peekable();
    let mut known: Vec<_> = arguments.by_ref().take(2).collect();
    let engine = command.find_subcommand("engine");
    let Some(engine) = engine.filter(|it| known.get(1).is_some_and(|arg| arg == it.get_name()))
    else {
        known.extend(arguments);
        return (known, Vec::new());
    };
    let names = engine.get_arguments().filter_map(|argument| argument.get_long());
    let names: BTreeSet<_> = names.chain(["help", ""]).collect();
    let mut unknown = Vec::new();
    while let Some(argument) = arguments.next() {
        let flag = argument.to_str().and_then(|text| text.strip_prefix("--"));
        let name = flag.map(|flag| flag.split('=').next().unwrap_or(flag));
        if name.is_none_or(|name| names.contains(name)) {
            known.push(argument);
            continue;
        }
        if flag == name {
            // The flag's value, if it is an argument of its own.
            let _ = arguments.next_if(|next| !next.to_string_lossy().starts_with('-'));
        }
        unknown.push(argument);
    }
    (known, unknown)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::Arguments;

    fn split_line(line: &str) -> (String, String) {
        let words = line.split(' ').map(OsString::from);
        let (known, unknown) = split(&Arguments::command(), words);
        let joined = |words: Vec<OsString>| words.join(" ".as_ref()).into_string().unwrap();
        (joined(known), joined(unknown))
    }

    #[test]
    fn unknown_flags_of_the_engine_are_taken_out_with_their_values() {
        let line = "outrigger engine --port=0 --enable_profiler=false --new --grpc_socket_path s \
                    --other 3 --help -x word";
        let (known, unknown) = split_line(line);
        assert_eq!(known, "outrigger engine --port=0 --grpc_socket_path s --help -x word");
        assert_eq!(unknown, "--enable_profiler=false --new --other");
    }

    #[test]
    fn other_commands_keep_theirs() {
        for line in ["outrigger", "outrigger --new", "outrigger serve --new engine --port=0"] {
            assert_eq!(split_line(line), (line.to_owned(), String::new()));
        }
    }
}
