use std::{
    fs,
    io::{ErrorKind, Write as _},
    os::unix::fs::symlink,
};

use tempfile::TempDir;

use super::*;

fn below() -> (TempDir, Root) {
    let directory = tempfile::tempdir().expect("a directory");
    fs::create_dir(directory.path().join("in")).expect("a directory");
    let root = Root::below(&directory.path().join("in")).expect("a root");
    (directory, root)
}

fn write(root: &Root, path: &str, replace: bool) -> io::Result<()> {
    let file = root.create(Path::new(path), replace)?;
    file.handle()?.write_all(path.as_bytes())?;
    file.finish()
}

#[test]
fn paths_stay_below_the_directory() {
    let (directory, root) = below();
    let inside = directory.path().join("in");
    fs::write(directory.path().join("secret"), "secret").expect("a file");
    fs::write(inside.join("rows"), "rows").expect("a file");
    fs::create_dir(inside.join("sub")).expect("a directory");
    symlink("../secret", inside.join("link")).expect("a link");
    symlink("rows", inside.join("near")).expect("a link");
    symlink("..", inside.join("up")).expect("a link");
    symlink(inside.join("sub"), inside.join("absolute")).expect("a link");
    assert!(root.open(Path::new("./rows")).is_ok());
    let outside = directory.path().join("secret");
    let outside = outside.to_str().expect("utf-8");
    for path in
        ["../secret", "sub/../../secret", outside, "", ".", "/", "link", "near", "up/secret"]
    {
        let error = root.open(Path::new(path)).expect_err(path);
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{path}: {error}");
    }
    for path in ["../new", "up/new", "absolute/new", "link", "near", "sub"] {
        let error = write(&root, path, true).expect_err(path);
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{path}: {error}");
    }
    assert_eq!(fs::read_to_string(outside).expect("a file"), "secret");
    assert_eq!(fs::read_to_string(inside.join("rows")).expect("a file"), "rows");
    assert_eq!(fs::read_dir(inside.join("sub")).expect("a directory").count(), 0);
}

#[test]
fn other_things_than_files_are_not_read() {
    let (directory, root) = below();
    let pipe = directory.path().join("in/pipe");
    rustix::fs::mknodat(CWD, &pipe, FileType::Fifo, Mode::from_raw_mode(0o600), 0).expect("a pipe");
    fs::create_dir(directory.path().join("in/sub")).expect("a directory");
    for (root, pipe) in [(&root, Path::new("pipe")), (&Root::Any, &pipe)] {
        let error = root.open(pipe).expect_err("a pipe");
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{root:?}");
    }
    let kind = root.open(Path::new("sub")).expect_err("a directory").kind();
    assert_eq!(kind, ErrorKind::IsADirectory);
    assert_eq!(root.open(Path::new("none")).expect_err("missing").kind(), ErrorKind::NotFound);
}

#[test]
fn a_file_is_replaced_in_one_step_and_only_if_it_may_be() {
    let (directory, root) = below();
    let inside = directory.path().join("in");
    fs::write(inside.join("a"), "before").expect("a file");
    let error = write(&root, "a", false).expect_err("it exists");
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    // It appears while the new one is written.
    let unfinished = root.create(Path::new("b"), false).expect("a file");
    fs::write(inside.join("b"), "before").expect("a file");
    let error = unfinished.finish().expect_err("it exists");
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    drop(root.create(Path::new("a"), true).expect("a file"));
    for name in ["a", "b"] {
        assert_eq!(fs::read_to_string(inside.join(name)).expect("a file"), "before");
        write(&root, name, true).expect("replaced");
        assert_eq!(fs::read_to_string(inside.join(name)).expect("a file"), name);
    }
    write(&root, "c", false).expect("a new file");
    assert_eq!(fs::read_dir(inside).expect("a directory").count(), 3, "nothing unfinished stays");
}
