//! Finds the comments of a source file, line by line; no parser of either language is needed for that.

/// A paragraph of a comment.
pub(crate) struct Comment {
    /// The line it begins on, counted from 1.
    pub(crate) line: usize,
    /// Its first line, without comment marks.
    pub(crate) text: String,
    /// The head of the item that it documents, up to the body.
    item: String,
}

impl Comment {
    /// Whether the documented item is a field or constant of type `bool`, or a function that returns one.
    pub(crate) fn is_of_boolean(&self) -> bool {
        let item = self.item.split(" where ").next().unwrap_or_default();
        let type_of_item = match item.rsplit_once("->") {
            Some((_, returned)) => returned,
            None => item.split_once(": ").map_or("", |(_, declared)| declared),
        };
        type_of_item.split([' ', ',', ';', '{', '=', ':']).find(|word| !word.is_empty())
            == Some("bool")
    }
}

/// The comment on this line, with what stands before it: code, or nothing.
fn split<'a>(line: &'a str, mark: &str) -> Option<(&'a str, &'a str)> {
    let at = line.match_indices(mark).map(|(at, _)| at).find(|at| {
        let code = &line[..*at];
        (code.trim().is_empty() || code.ends_with(' '))
            && code.matches('"').count().is_multiple_of(2)
    })?;
    Some((line[..at].trim(), line[at..].trim()))
}

/// The head of the item that starts at or after this line, attributes skipped.
fn item_after(lines: &[&str]) -> String {
    let mut open = 0;
    let code = lines.iter().map(|line| line.trim()).skip_while(|line| {
        let is_attribute = open > 0 || line.starts_with("#[") || line.starts_with('@');
        if is_attribute {
            open += line.matches(['[', '(']).count();
            open -= line.matches([']', ')']).count().min(open);
        }
        is_attribute || line.is_empty()
    });
    head(code)
}

/// A function's whole signature, or the first line of anything else.
fn head<'a>(mut code: impl Iterator<Item = &'a str>) -> String {
    let mut head = code.next().unwrap_or_default().to_owned();
    while head.contains("fn ") && !head.ends_with(['{', ';', '}']) {
        let Some(line) = code.next() else { break };
        head.push(' ');
        head.push_str(line);
    }
    head
}

/// Paragraphs of comments that start with `mark`, on lines of their own or behind code.
fn marked(source: &str, mark: &str) -> Vec<Comment> {
    let lines: Vec<&str> = source.lines().collect();
    let mut comments = Vec::new();
    let mut continues = false;
    for (index, line) in lines.iter().enumerate() {
        let Some((code, comment)) = split(line, mark) else {
            continues = false;
            continue;
        };
        let text = comment.trim_start_matches(['/', '!', '#']).trim();
        if !text.is_empty() && (!continues || !code.is_empty()) {
            let after =
                lines[index..].iter().take_while(|line| line.trim().starts_with(mark)).count();
            let item =
                if code.is_empty() { item_after(&lines[index + after..]) } else { code.to_owned() };
            comments.push(Comment { line: index + 1, text: text.to_owned(), item });
        }
        continues = !text.is_empty() && code.is_empty();
    }
    comments
}

/// Every paragraph of the comments of a Rust file.
pub(crate) fn in_rust(source: &str) -> Vec<Comment> {
    marked(source, "//")
}

/// Every paragraph of the comments and docstrings of a Python file.
pub(crate) fn in_python(source: &str) -> Vec<Comment> {
    let mut comments = marked(source, "#");
    comments.extend(docstrings(source));
    comments.sort_by_key(|comment| comment.line);
    comments
}

/// Strings in triple quotes that are statements of their own.
fn docstrings(source: &str) -> Vec<Comment> {
    let mut comments = Vec::new();
    let mut definition = String::new();
    let (mut inside, mut is_docstring, mut continues) = (false, false, false);
    for (index, line) in source.lines().enumerate() {
        let trimmed = line.trim();
        let text = trimmed.trim_matches('"').trim();
        if !inside {
            is_docstring = trimmed.starts_with("\"\"\"");
            continues = false;
        }
        if is_docstring
            && (inside || trimmed.starts_with("\"\"\""))
            && !text.is_empty()
            && !continues
        {
            comments.push(Comment {
                line: index + 1,
                text: text.to_owned(),
                item: definition.clone(),
            });
        }
        continues = !text.is_empty();
        if !inside && !is_docstring && !trimmed.is_empty() {
            definition = trimmed.trim_end_matches(':').to_owned();
        }
        inside ^= line.matches("\"\"\"").count() % 2 == 1;
    }
    comments
}
