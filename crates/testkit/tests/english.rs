//! Refuses comments whose first words hide their subject, as "What is left" or "Of the rest" do.
//!
//! The rule: a comment names its subject first, so that it can be understood without the code around it.

#[path = "english/comments.rs"]
mod comments;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use comments::{Comment, in_python, in_rust};

/// First words that are refused, in any case.
const REFUSED: &[&str] = &["what", "who", "whoever", "of", "nobody", "so many", "as many"];

/// Comments that still break the rule, by crate or by directory of testenv. A number may only shrink, and shrinks in
/// the commit that rewrites a comment; what is not listed has none.
const REMAINING: &[(&str, usize)] = &[];

fn begins_with(text: &str, words: &str) -> bool {
    let text = text.to_ascii_lowercase();
    let rest = text.strip_prefix(words);
    rest.is_some_and(|rest| {
        !rest.starts_with(|next: char| next.is_ascii_alphanumeric() || next == '_')
    })
}

/// `Whether` is the usual first word for a boolean and refused elsewhere.
fn is_refused(comment: &Comment) -> bool {
    let hidden = REFUSED.iter().any(|words| begins_with(&comment.text, words));
    hidden || (begins_with(&comment.text, "whether") && !comment.is_of_boolean())
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every file with this extension under a directory.
fn files(directory: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap_or_else(|error| panic!("{directory:?}: {error}"));
    let paths = entries.map(|entry| entry.expect("a directory entry").path());
    let nested = paths.flat_map(|path| {
        if path.is_dir() {
            files(&path, extension)
        } else {
            Vec::from_iter(path.extension().is_some_and(|found| found == extension).then_some(path))
        }
    });
    nested.collect()
}

/// `FILE:LINE: comment` for each refused comment in one part of the tree.
fn refused(part: &str, extension: &str, read: fn(&str) -> Vec<Comment>) -> Vec<String> {
    let mut found = Vec::new();
    for file in files(&root().join(part), extension) {
        let source = fs::read_to_string(&file).expect("a source file in UTF-8");
        let comments = read(&source).into_iter().filter(is_refused);
        let shown = file.strip_prefix(root()).unwrap_or(&file).display();
        found.extend(comments.map(|c| format!("{shown}:{}: {}", c.line, c.text)));
    }
    found.sort();
    found
}

fn subdirectories(parent: &str) -> Vec<String> {
    let entries = fs::read_dir(root().join(parent)).expect("a directory of the project");
    let paths =
        entries.map(|entry| entry.expect("a directory entry").path()).filter(|path| path.is_dir());
    let names = paths.map(|path| path.file_name().expect("a name").to_string_lossy().into_owned());
    names.map(|name| format!("{parent}/{name}")).collect()
}

/// Refused comments of every crate, of both parts of testenv and of the packages; parts without any are left out.
fn refused_by_part() -> BTreeMap<String, Vec<String>> {
    let crates = subdirectories("crates").into_iter().map(|part| {
        let found = refused(&part, "rs", in_rust);
        (part, found)
    });
    let python = ["testenv/src", "testenv/tests", "packages"]
        .map(|part| (part.to_owned(), refused(part, "py", in_python)));
    crates.chain(python).filter(|(_, found)| !found.is_empty()).collect()
}

#[test]
fn comments_name_their_subject_first() {
    let found = refused_by_part();
    let counts: BTreeMap<_, _> =
        found.iter().map(|(part, found)| (part.as_str(), found.len())).collect();
    let listed: BTreeMap<_, _> = REMAINING.iter().copied().collect();
    let parts = counts.keys().chain(listed.keys());
    let wrong = parts.filter(|part| counts.get(*part) != listed.get(*part));
    let wrong: Vec<_> =
        wrong.flat_map(|part| found.get(*part).into_iter().flatten()).cloned().collect();
    assert!(
        counts == listed,
        "rewrite new comments below; where comments were rewritten, REMAINING shrinks to\n{counts:?}\n{}",
        wrong.join("\n")
    );
}

#[test]
fn refused_words_are_found_in_any_kind_of_comment() {
    let rust = "//! What a module holds.\n\n/// Of two, the first.\nfn f() {\n    g(); // so many\n    // Nobody\n}\n";
    let lines: Vec<_> = in_rust(rust).into_iter().filter(is_refused).map(|c| c.line).collect();
    assert_eq!(lines, [1, 3, 5, 6]);
    let python = "\"\"\"Who asks.\"\"\"\n\ndef f():\n    \"\"\"Sums.\n\n    Whoever reads\n    \"\"\"\n    # As many\n";
    let lines: Vec<_> = in_python(python).into_iter().filter(is_refused).map(|c| c.line).collect();
    assert_eq!(lines, [1, 6, 8]);
}

#[test]
fn words_inside_a_comment_or_a_longer_word_are_not_refused() {
    let rust = "/// The rest\n/// of it.\n/// Offers whatever fits.\nlet url = \"http://who\";\nlet x = \"// what\";\n";
    assert!(!in_rust(rust).iter().any(is_refused));
    let python = "text = \"\"\"\nWhat\n\"\"\"\n# Often\n# of it\nurl = \"#what\"\n";
    assert!(!in_python(python).iter().any(is_refused));
}

#[test]
fn whether_is_for_booleans() {
    let accepted = [
        "/// Whether it is full.\n#[must_use]\npub fn full(\n    &self,\n) -> bool\nwhere\n    T: Fn() -> u8,\n{\n",
        "/// Whether it is on.\npub enabled: bool,\n",
        "/// Whether it is on.\n#[serde(\n    default,\n)]\nenabled: bool = true,\n",
        "/// Whether it is on.\nconst ON: bool = true;\n",
    ];
    for source in accepted {
        assert!(!in_rust(source).iter().any(is_refused), "{source}");
    }
    for source in
        ["/// Whether it is full.\nfn f() -> Fill {\n", "/// Whether it is on.\non: Arc<bool>,\n"]
    {
        assert!(in_rust(source).iter().any(is_refused), "{source}");
    }
    let python = "def f(\n    a,\n) -> bool:\n    \"\"\"Whether.\"\"\"\n\nclass A:\n    # Whether.\n    on: bool = True\n";
    assert!(!in_python(python).iter().any(is_refused));
    assert!(in_python("def f() -> int:\n    \"\"\"Whether.\"\"\"\n").iter().any(is_refused));
}
