//! Parser for the protobuf text format without a schema: field values are strings, words
//! or messages.
//!
//! <https://protobuf.dev/reference/protobuf/textformat-spec/>, without extensions and
//! expanded `Any`, which these configurations do not use.

use std::{iter::Peekable, str::Chars, str::FromStr};

use super::{Problem, Result};

/// Maximum nesting depth of messages.
const MAX_DEPTH: usize = 32;

/// A message: its fields in order. Each item of a list is a separate field.
pub(super) type Message = Vec<Field>;

/// A field and its value.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) name: String,
    line: usize,
    value: Value,
}

#[derive(Debug, PartialEq, Eq)]
enum Value {
    String(String),
    /// A number or an identifier.
    Word(String),
    Message(Message),
}

impl Field {
    pub(super) fn message(&self) -> Result<&Message> {
        match &self.value {
            Value::Message(message) => Ok(message),
            _ => Err(self.problem(format!("{} needs a message in braces", self.name))),
        }
    }

    pub(super) fn string(&self) -> Result<String> {
        match &self.value {
            Value::String(string) => Ok(string.clone()),
            _ => Err(self.problem(format!("{} needs a string in quotes", self.name))),
        }
    }

    pub(super) fn number<N: FromStr>(&self) -> Result<N> {
        let number = match &self.value {
            Value::Word(word) => word.parse().ok(),
            _ => None,
        };
        number.ok_or_else(|| self.problem(format!("{} needs a whole number in range", self.name)))
    }

    /// The value, if it is a number or an identifier.
    pub(super) fn word(&self) -> Option<&str> {
        match &self.value {
            Value::Word(word) => Some(word),
            _ => None,
        }
    }

    pub(super) fn boolean(&self) -> Result<bool> {
        match &self.value {
            Value::Word(word) if ["true", "True", "t", "1"].contains(&word.as_str()) => Ok(true),
            Value::Word(word) if ["false", "False", "f", "0"].contains(&word.as_str()) => Ok(false),
            _ => Err(self.problem(format!("{} needs true or false", self.name))),
        }
    }

    pub(super) fn unknown(&self, message: &str) -> Problem {
        self.problem(format!("{message} has no field {}", self.name))
    }

    fn problem(&self, message: String) -> Problem {
        Problem { line: self.line, message }
    }
}

/// Parses a whole text.
pub(super) fn parse(text: &str) -> Result<Message> {
    let mut parser = Parser { rest: text.chars().peekable(), line: 1, depth: 0 };
    let message = parser.fields(None)?;
    Ok(message)
}

struct Parser<'a> {
    rest: Peekable<Chars<'a>>,
    line: usize,
    depth: usize,
}

impl Parser<'_> {
    /// Parses fields up to `end`, or to the end of the text.
    fn fields(&mut self, end: Option<char>) -> Result<Message> {
        let mut fields = Message::new();
        loop {
            let next = self.peek();
            if next == end {
                self.rest.next();
                return Ok(fields);
            }
            if next.is_none() {
                return Err(self.problem("a brace is not closed"));
            }
            self.field(&mut fields)?;
            if matches!(self.peek(), Some(',' | ';')) {
                self.rest.next();
            }
        }
    }

    fn field(&mut self, fields: &mut Message) -> Result<()> {
        let line = self.line;
        let name = self.word("a field's name")?;
        let colon = self.accept(':');
        if self.accept('[') {
            while !self.accept(']') {
                let value = self.value(colon)?;
                fields.push(Field { name: name.clone(), line, value });
                if !self.accept(',') && self.peek() != Some(']') {
                    return Err(self.problem("a list's items are separated by commas"));
                }
            }
            return Ok(());
        }
        let value = self.value(colon)?;
        fields.push(Field { name, line, value });
        Ok(())
    }

    fn value(&mut self, colon: bool) -> Result<Value> {
        match self.peek() {
            Some('{') => self.message('}'),
            Some('<') => self.message('>'),
            _ if !colon => Err(self.problem("a colon is missing before the value")),
            Some('"' | '\'') => self.string().map(Value::String),
            _ => self.word("a value").map(Value::Word),
        }
    }

    fn message(&mut self, end: char) -> Result<Value> {
        self.rest.next();
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.problem("messages are nested too deep"));
        }
        let fields = self.fields(Some(end))?;
        self.depth -= 1;
        Ok(Value::Message(fields))
    }

    /// Parses a string; adjacent literals are concatenated.
    fn string(&mut self) -> Result<String> {
        let mut string = String::new();
        while let Some(quote @ ('"' | '\'')) = self.peek() {
            self.rest.next();
            loop {
                match self.rest.next() {
                    Some(char) if char == quote => break,
                    Some('\\') => string.push(self.escaped()?),
                    Some(char) if char != '\n' => string.push(char),
                    _ => return Err(self.problem("a string is not closed on its line")),
                }
            }
        }
        Ok(string)
    }

    fn escaped(&mut self) -> Result<char> {
        match self.rest.next() {
            Some('n') => Ok('\n'),
            Some('t') => Ok('\t'),
            Some('r') => Ok('\r'),
            Some(char @ ('\\' | '"' | '\'')) => Ok(char),
            _ => Err(self.problem("a string has an unsupported escape")),
        }
    }

    fn word(&mut self, what: &str) -> Result<String> {
        self.peek();
        let mut word = String::new();
        while let Some(&char) = self.rest.peek() {
            if !(char.is_ascii_alphanumeric() || "_-+.".contains(char)) {
                break;
            }
            word.push(char);
            self.rest.next();
        }
        if word.is_empty() { Err(self.problem(&format!("{what} is missing"))) } else { Ok(word) }
    }

    fn accept(&mut self, char: char) -> bool {
        self.peek() == Some(char) && self.rest.next().is_some()
    }

    /// The next character that is neither space nor part of a comment.
    fn peek(&mut self) -> Option<char> {
        loop {
            match self.rest.peek()? {
                '\n' => self.line += 1,
                '#' => {
                    while self.rest.next_if(|&char| char != '\n').is_some() {}
                    continue;
                }
                char if char.is_whitespace() => {}
                char => return Some(*char),
            }
            self.rest.next();
        }
    }

    fn problem(&self, message: &str) -> Problem {
        Problem { line: self.line, message: message.to_owned() }
    }
}
